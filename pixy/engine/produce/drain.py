"""The drain of a topic's producer: who has asked for it, and whether it is over."""

from __future__ import annotations

from actors import Future


class Drain:
    """Answers those who asked for the drain once nothing is gathered, or its time is over.

    Attributes:
        begun: whether somebody has asked; no message is taken any more.
    """

    __slots__ = ("_replies", "begun")

    def __init__(self) -> None:
        self.begun = False
        self._replies: list[Future[int]] = []

    @property
    def over(self) -> bool:
        """Whether everybody who asked has an answer, so that nobody waits for what comes back."""
        return self.begun and not self._replies

    def ask(self, reply: Future[int]) -> None:
        """Begin the drain, or join the one under way."""
        self.begun = True
        self._replies.append(reply)

    def finish(self, given_up: int) -> None:
        """Answer with the number of messages that were given up."""
        replies, self._replies = self._replies, []
        for reply in replies:
            reply.try_set(given_up)
            given_up = 0  # for the others, so that the sum over all replies is right
