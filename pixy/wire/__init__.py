"""Kafka's wire protocol in Python: codecs without IO, and low-level clients on top of them.

Imports nothing of the rest of pixy and needs nothing beyond the standard library.
"""
