"""Compare the v1/v2 REST API with confluent-kafka alone."""
