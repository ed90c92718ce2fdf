"""The data pipeline's part of the benchmark."""
