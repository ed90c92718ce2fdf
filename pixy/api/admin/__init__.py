"""The admin listener: metrics, probes, findings, debugging and the console, for operators."""
