"""The shell: client commands that talk gRPC to a daemon, built with click.

``app`` finds a command's module and turns what a person caused into one line; ``framework`` is the shape of a command: help with
examples and exit codes, and the options that all share; ``session`` is the connection; ``output`` tables, JSON and YAML.
"""
