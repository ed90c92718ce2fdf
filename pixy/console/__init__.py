"""What operators see of a running daemon: snapshots, findings, metrics, and the console's views of Kafka.

:mod:`pixy.api.admin` serves it; nothing here knows a transport. Everything is asked from the actors by messages, on demand: while
nobody looks, one message per group every :data:`pixy.console.watch.TICK` seconds is all that happens.
"""
