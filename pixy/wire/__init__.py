"""Kafka's wire protocol: codecs without IO, and low-level clients on top of them.

Imports nothing of the rest of pixy. The standard library suffices; the libraries that come with kafka-pixy add speed,
codecs and SRV lookups.
"""
