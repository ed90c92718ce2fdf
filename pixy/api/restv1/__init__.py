"""The REST API of KIP-80 and of the v1 and v2 REST proxies: transport only, on top of the engine."""
