"""Kafka's wire protocol: codecs without IO, and low-level clients on top of them.

Imports nothing of the rest of pixy. The standard library suffices; the extra ``wire`` adds speed, codecs and SRV
lookups.
"""
