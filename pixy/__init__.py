"""Kafka-Pixy: a gRPC and REST proxy for Apache Kafka, written as a tree of actors."""

__version__ = "1.0.0.dev0"
