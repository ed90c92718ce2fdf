"""Records of topics with a schema registry, decoded into typed columns beside their bytes. Needs neither Spark nor Java."""
