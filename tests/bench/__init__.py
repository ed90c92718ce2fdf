"""``make bench``: the speed table of docs/performance.md, each row a ratio within this run."""
