"""Forward both directions of a connection until both have ended, or one is broken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from pixy.tap.conversation import Conversation
from pixy.tap.direction import Direction
from pixy.tap.pipes import SharedBuffer
from pixy.tap.tls import say_goodbye


class Relay:
    """Forward both directions of a connection.

    Args:
        client: the client's socket, non-blocking.
        broker: the broker's socket, non-blocking.
        conversation: observes both directions.
        buffer: the shared read buffer.
        on_close: is called once with the reason, after both sockets are closed.
        rewriting: whether the conversation may change bytes on their way to the client, which are then sent after it
            has seen them.
    """

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        conversation: Conversation,
        buffer: SharedBuffer,
        on_close: Callable[[str], None],
        *,
        rewriting: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = buffer
        self.conversation = conversation
        self._on_close = on_close
        self._ends = 0
        self.closed = False
        """Whether both sockets are closed."""
        self.to_broker = Direction(self, client, broker, conversation.to_broker, True, "bytes_to_broker")
        self.to_client = Direction(
            self, broker, client, conversation.to_client, not rewriting, "bytes_to_client"
        )
        self._sockets = (client, broker)

    def start(self) -> None:
        """Start to forward."""
        self.to_broker.start()
        self.to_client.start()

    def ended(self) -> None:
        """Count a direction that has ended cleanly; the other one may go on (half-closed)."""
        self._ends += 1
        if self._ends == 2:
            self.close("closed")

    def fail(self, error: OSError) -> None:
        """Close the connection because one of its sockets is broken."""
        self.close(error.strerror or str(error))

    def close(self, reason: str) -> None:
        """Stop forwarding and close both sockets."""
        if self.closed:
            return
        self.closed = True
        self.to_broker.release()
        self.to_client.release()
        for each in self._sockets:
            if each.fileno() >= 0:
                self.loop.remove_reader(each)
                self.loop.remove_writer(each)
                say_goodbye(each)
                each.close()
        self._on_close(reason)


__all__ = ["Relay"]
