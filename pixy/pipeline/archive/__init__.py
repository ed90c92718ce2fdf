"""Archive topics into a lake, and keep the lake: streaming batches, compaction, Delta commits."""
