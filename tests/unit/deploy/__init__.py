"""What stands in deploy/: container, compose, systemd, Helm."""
