"""Group membership by Kafka itself: classic groups and KIP-848."""
