"""The proxy's engine: the actors between the APIs and Kafka, and the pure logic inside them."""
