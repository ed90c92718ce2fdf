"""The ``kafka-pixy`` program: the daemon, and client commands that talk to one."""

COMMANDS = {
    "produce": "write messages to a topic",
    "consume": "read messages as a member of a group",
    "ack": "acknowledge a message",
    "offsets": "show or set a group's offsets",
    "topics": "list topics, or show one",
    "consumers": "show who consumes a topic",
}
