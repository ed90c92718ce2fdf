"""Produce: one actor per topic that partitions, batches and reports delivery.

``topic_producer`` is the actor. It finds its topic with ``topic_lookup``, keeps what Kafka has not confirmed as
``pending_records``, sends through :class:`pixy.kafka.producer.ProducerClient`, and answers callers in ``settling``.
docs/architecture.md ("Produce") has the whole way.
"""
