"""A fake broker on a real socket, for errors that a real broker does not make."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from pixy.wire import frames, messages
from pixy.wire.exceptions import UnsupportedVersionError
from pixy.wire.frames import Request

TOPIC, PARTITION = "events", 3
Answer = Callable[[Request], bytes | None]
"""Returns the bytes to send, or None to close the connection."""


class FakeBroker:
    """Answers like a cluster of one broker, except for the APIs in ``answers``."""

    def __init__(self, answers: dict[str, Answer] | None = None, **versions: tuple[int, int]) -> None:
        self.answers = answers or {}
        self.versions = versions
        self.seen: list[Request] = []
        self.connections = 0
        self.failed: list[BaseException] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def names(self) -> list[str]:
        """Return the APIs of the requests received, without ApiVersions."""
        return [each.name.removesuffix("Request") for each in self.seen if each.header.key != 18]

    def close(self) -> None:
        if self._server.fileno() >= 0:
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._server.close()
        for each in self._open:
            each.close()
        assert not self.failed, self.failed

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        splitter = frames.FrameSplitter()
        try:
            while chunk := connection.recv(65536):
                for frame in splitter.feed(chunk):
                    answer = self.answer(frames.decode_request(frame))
                    if answer is None:
                        connection.close()
                        return
                    connection.sendall(answer)
        except OSError:
            pass
        except BaseException as error:
            self.failed.append(error)
            connection.close()

    def answer(self, request: Request) -> bytes | None:
        self.seen.append(request)
        api = request.name.removesuffix("Request")
        if api in self.answers:
            return self.answers[api](request)
        return self.usual(request)

    def usual(self, request: Request, **changes: Any) -> bytes:
        """Return a healthy broker's answer, with ``changes`` to its fields."""
        api = request.name.removesuffix("Request")
        body = getattr(self, f"_{api}", lambda _request: {})(request)
        return frames.encode_response(
            api, request.version, request.header.correlation_id, {**body, **changes}
        )

    def _ApiVersions(self, _request: Request) -> dict[str, Any]:
        found = []
        # In reverse order: a client must not look an API up by its position.
        for key in reversed(range(70)):
            try:
                api = messages.api_name(key)
            except UnsupportedVersionError:
                continue
            known = messages.versions(f"{api}Request")
            low, high = self.versions.get(api, (known[0], known[-1]))
            found.append({"ApiKey": key, "MinVersion": low, "MaxVersion": high})
        return {"ApiKeys": found}

    def _Metadata(self, request: Request) -> dict[str, Any]:
        partitions = [
            {
                "PartitionIndex": index,
                "LeaderId": 7 if index == PARTITION else -1,
                "ErrorCode": 0 if index == PARTITION else 5,
            }
            for index in (PARTITION, 0)
        ]
        known = {"Name": TOPIC, "Partitions": partitions}
        return {
            "Brokers": [
                {"NodeId": 9, "Host": "127.0.0.1", "Port": 1},
                {"NodeId": 7, "Host": "127.0.0.1", "Port": self.port},
            ],
            "ControllerId": 7,
            "Topics": [
                known if each["Name"] == TOPIC else {"Name": each["Name"], "ErrorCode": 3}
                for each in request.body["Topics"] or ()
            ],
        }

    def _FindCoordinator(self, _request: Request) -> dict[str, Any]:
        return {"NodeId": 7, "Host": "127.0.0.1", "Port": self.port}

    def _Produce(self, _request: Request) -> dict[str, Any]:
        return {
            "Responses": [{"Name": TOPIC, "PartitionResponses": [{"Index": PARTITION, "BaseOffset": 42}]}]
        }

    def _Fetch(self, _request: Request) -> dict[str, Any]:
        return {
            "Responses": [
                {"Topic": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, "HighWatermark": 50}]}
            ]
        }

    def _ListOffsets(self, _request: Request) -> dict[str, Any]:
        return {"Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, "Offset": 50}]}]}
