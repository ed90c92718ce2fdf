"""``make bench``: measure the tables of docs/performance.md.

Most rows are ratios against a peer measured in the same run.
"""
