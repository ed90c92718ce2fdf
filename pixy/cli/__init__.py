"""The ``kafka-pixy`` program: the daemon, and client commands that talk to one."""
