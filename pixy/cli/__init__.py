"""The ``kafka-pixy`` program: the daemon, and client commands that talk to one."""

COMMANDS = {
    "produce": "write messages to a topic",
    "consume": "read messages as a member of a group",
    "ack": "acknowledge a message",
    "offsets": "show or set a group's offsets",
    "topics": "list topics, or show one",
    "consumers": "show who consumes a topic",
}

PROGRAMS = {
    "config": "check, show or write the daemon's configuration",
    "keys": "make, list and remove API keys",
    "rules": "say why the rules allow or refuse something",
    "wire": "decode and encode Kafka's protocol at the shell",
    "tap": "a proxy that shows who is in which group and who owns which partition",
    "pipeline": "archive, compact, replay, verify and audit topics with Spark",
}
"""Programs of their own: ``pixy.cli.<name>.run(arguments)``, imported when they are called."""

MODULES = {"config": "config_commands"}
"""The modules of programs that are not named like them."""
