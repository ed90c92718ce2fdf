"""The path from a client's socket to a request: bounds on connections, deadlines, unfinished heads."""
