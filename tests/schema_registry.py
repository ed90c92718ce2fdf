"""A schema registry of Confluent's API for tests: registers schemas, and answers for subjects, versions and ids."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class TestRegistry:
    """Subjects and schemas; each different text has one id. Protobuf is registered compiled, in base64, as by Confluent's producers."""

    __test__ = False

    def __init__(self, user: str = "") -> None:
        self.url = ""
        self.asked: list[str] = []
        self._user = user
        self._ids: dict[tuple[str, str, str], int] = {}
        self._subjects: dict[str, list[int]] = {}

    def register(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        key = (kind, text, json.dumps(list(references)))
        number = self._ids.setdefault(key, len(self._ids) + 1)
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: str, query: str, body: Any, authorization: str) -> tuple[int, Any]:
        compiled = "format=serialized" in query
        self.asked.append(path)
        if self._user and authorization != f"Basic {base64.b64encode(self._user.encode()).decode()}":
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["subjects", subject, "versions"] if body is not None:
                kind, references = body.get("schemaType", "AVRO"), body.get("references") or ()
                return 200, {"id": self.register(subject, body["schema"], kind, references)}
            case ["subjects", subject] if body is not None:  # which version is it?
                kind, references = body.get("schemaType", "AVRO"), body.get("references") or ()
                number = self.register(subject, body["schema"], kind, references)
                version = self._subjects[subject].index(number) + 1
                return 200, {
                    "subject": subject,
                    "id": number,
                    "version": version,
                    **self._schema(number, compiled),
                }
            case ["subjects", subject, "versions"] if subject in self._subjects:
                return 200, list(range(1, len(self._subjects[subject]) + 1))
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                number = self._subjects[subject][int(version) - 1]
                return 200, {
                    "subject": subject,
                    "version": int(version),
                    "id": number,
                    **self._schema(number, compiled),
                }
            case ["schemas", "ids", number] if int(number) <= len(self._ids):
                return 200, self._schema(int(number), compiled)
        return 404, {"error_code": 40401, "message": "not found"}

    def _schema(self, number: int, compiled: bool) -> dict[str, Any]:
        kind, text, references = next(schema for schema, own in self._ids.items() if own == number)
        if kind == "PROTOBUF" and not compiled:
            text = 'syntax = "proto3"; // and so on'
        return {"schema": text, "schemaType": kind, "references": json.loads(references)}


@contextmanager
def serving(registry: TestRegistry, tls: ssl.SSLContext | None = None) -> Iterator[TestRegistry]:
    """Serve a registry on a port of localhost."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path, _, query = self.path.partition("?")
            status, found = registry.answer(path, query, body, self.headers.get("Authorization", ""))
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    registry.url = f"{'https' if tls else 'http'}://localhost:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
