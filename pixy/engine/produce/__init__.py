"""Produce: one actor per topic that partitions, batches and reports delivery."""
