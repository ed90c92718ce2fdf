"""The contract of all REST APIs of the daemon: OpenAPI 3.1, kept as YAML, served as JSON and as a page."""
