"""The v1/v2 REST API beside bare confluent-kafka."""
