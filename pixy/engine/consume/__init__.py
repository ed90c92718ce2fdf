"""Consume: a group's membership, its long polls, its partitions' offers and acknowledgements."""
