"""What stands between a client's socket and a request: bounds on connections, deadlines, unfinished heads."""
