"""Real brokers for the tests: Apache Kafka and ZooKeeper, fetched as Maven artifacts."""
