"""Produce: one actor per topic that partitions, batches and reports delivery.

``topic_producer`` is the actor: it decides when to send, and what becomes of messages whose topic is not known. It holds plain
objects: ``gathered`` (messages and batches in their order, each a ``pending_records``), ``sender`` (hands them to
:class:`pixy.kafka.producer.ProducerClient`), ``topic_lookup`` (what is known of the topic), ``settling`` (answers callers), and
``drain``. ``timers`` are its messages to itself.
docs/architecture.md ("Produce") has the whole way.
"""
