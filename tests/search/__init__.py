"""Searches that a seed repeats, for as long as one likes; the unit tests run a short form."""
