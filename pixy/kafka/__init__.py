"""The only importer of confluent_kafka: typed clients, each with its threads, one error translation."""
