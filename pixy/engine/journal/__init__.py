"""The cluster's journal: a bounded buffer of events, and the actor that writes it to Kafka."""
