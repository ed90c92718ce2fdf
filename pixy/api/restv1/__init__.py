"""The REST API of KIP-80 and of the v1 and v2 REST proxies: transports only, the engine does the work."""
