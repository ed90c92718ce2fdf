"""The ``kafka-pixy`` program: the daemon, and client commands that talk to one."""

COMPLETE = "_KAFKA_PIXY_COMPLETE"
"""The environment variable by which a shell's completion script calls the program."""

COMMANDS = {
    "produce": "write messages to a topic",
    "consume": "read messages, as a member of a group or without one",
    "topic": "list, create, describe, change and delete topics",
    "group": "list, describe, reset and delete consumer groups",
    "ack": "acknowledge a message",
    "offsets": "show or set a group's offsets",
    "topics": "list topics, or show one",
    "consumers": "show who consumes a topic",
    "status": "show a daemon's version, and whether its brokers answer",
    "doctor": "check what a daemon needs here, and say what to do",
    "trace": "tell the life of one message",
    "version": "show the version",
    "completion": "print the completion script of a shell",
    "man": "write man pages",
}
"""Commands of the shell, by name: ``pixy.cli.shell.app`` knows the module of each."""

PROGRAMS = {
    "config": "check, show or write the daemon's configuration",
    "keys": "make, list and remove API keys",
    "rules": "say why the rules allow or refuse something",
    "top": "findings, groups and busy actors of a daemon",
    "wire": "decode and encode Kafka's protocol at the shell",
    "tap": "a proxy that shows groups, members and partitions",
    "pipeline": "archive, replay and audit topics with Spark",
}
"""Programs of their own: ``pixy.cli.<name>.run(arguments)``, imported when they are called."""

EXAMPLES = {
    "kafka-pixy --sandbox": "try it out on an in-memory stand-in for Kafka",
    "kafka-pixy --kafkaPeers broker1:9092,broker2:9092": "serve a real cluster",
    "kafka-pixy --config pixy.yaml": "after kafka-pixy config init pixy.yaml",
}
"""Command lines of the daemon, each with what it does."""

EXITS = {
    0: "drained and stopped",
    1: "failed to start; stderr names the reason",
    2: "wrong command line",
    3: "not drained within shutdown_timeout",
    4: "a part of the service failed for good",
}
"""Exit codes of the daemon; 128 + n is the end by a second signal n."""

MODULES = {"config": "config_commands"}
"""The modules of programs that are not named like them."""
