"""The transports: parse, send a message, await, render. No logic and no Kafka."""
