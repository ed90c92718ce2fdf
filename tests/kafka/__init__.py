"""Real brokers for the tests: Apache Kafka and ZooKeeper from their Maven artifacts."""
