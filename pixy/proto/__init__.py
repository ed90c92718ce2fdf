"""Stubs generated from ``proto/kafkapixy.proto`` by the build (``make proto`` for a checkout)."""
