"""The consumer instances of the REST API (v1, v2 and KIP-80): reads, positions, commits, seeks."""
