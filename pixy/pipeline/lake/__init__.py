"""The lake: layout, manifests, data files and their checksums. Needs neither Spark nor Java."""
