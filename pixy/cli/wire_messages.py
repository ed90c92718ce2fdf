"""``kafka-pixy wire decode``, ``encode`` and ``list``: convert protocol messages to JSON and back."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from typing import Any, Final

from pixy.cli.wire import EXITS
from pixy.escaping import json_text
from pixy.wire import frames, messages, schema
from pixy.wire.exceptions import DecodeError, EncodeError, UnsupportedVersionError
from pixy.wire.json_form import from_json, to_json

MAX_INPUT: Final = 4 * frames.MAX_FRAME
"""Largest input in bytes: the hex digits of the largest frame, and as much white space."""

_NAMING: Final = """\
NAME is a message of Kafka's schemas (JoinGroupRequest, in any case), an API
(JoinGroup) or its key (11); the latter two mean the request unless --response
is given. VERSION is a number or "latest". `kafka-pixy wire list` shows all
messages, `wire list NAME` the fields of one.
"""
_FORM: Final = """\
Fields have the names of Kafka's schemas. Bytes are base64, UUIDs 22 base64url
characters as Kafka writes them, and unknown tagged fields are under "_tags".
With --header or --frame the JSON is {"Header": {...}, "Body": {...}}.
"""


_EXAMPLES: Final = {
    "decode": {"echo 010100 | kafka-pixy wire decode ApiVersions 3": "a request's body"},
    "encode": {
        """echo '{"Topics": null}' | kafka-pixy wire encode Metadata 12""": "fields that are left out have their defaults"
    },
    "list": {
        "kafka-pixy wire list": "all messages with their keys and versions",
        "kafka-pixy wire list Metadata": "the fields of a request and its response",
    },
}


def add_parser(subparsers: Any) -> None:
    """Add the commands to ``kafka-pixy wire``."""
    for command, text, handler in (
        ("decode", "convert a message from hex on standard input to JSON", _decode),
        ("encode", "convert a message from JSON on standard input to hex", _encode),
    ):
        parser: argparse.ArgumentParser = subparsers.add_parser(
            command,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_NAMING + _FORM,
            examples=_EXAMPLES[command],
            exits=EXITS,
        )
        parser.add_argument("name", metavar="NAME", type=_name)
        parser.add_argument("version", metavar="VERSION")
        parser.add_argument("--response", action="store_true", help="an API name means its response")
        whole = parser.add_mutually_exclusive_group()
        whole.add_argument("--header", action="store_true", help="include the request's or response's header")
        whole.add_argument("--frame", action="store_true", help="include the header and the length before it")
        if command == "decode":
            parser.add_argument("--pretty", action="store_true", help="indent the JSON")
        parser.set_defaults(handler=handler, parser=parser)
    parser = subparsers.add_parser(
        "list",
        help="list the messages and their versions",
        epilog=_NAMING,
        examples=_EXAMPLES["list"],
        exits=EXITS,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", type=_name, help="show the fields of this message")
    parser.set_defaults(handler=_list, parser=parser)


def _name(text: str) -> str:
    """Return the name of a message or API, spelled as in the schemas."""
    known = {each.lower(): each for each in (*messages.names(), *schema.keys().values())}
    if text.isdecimal():
        try:
            return messages.api_name(int(text))
        except UnsupportedVersionError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    found = known.get(text.lower())
    if found is None:
        close = difflib.get_close_matches(text.lower(), known, 1)
        hint = f"did you mean {known[close[0]]}?" if close else "`kafka-pixy wire list` shows all"
        raise argparse.ArgumentTypeError(f"unknown message {text!r} ({hint})")
    return found


def _message(args: argparse.Namespace) -> tuple[str, int]:
    """Return name and version of the message. An unknown version exits with 2."""
    name: str = args.name
    if name not in messages.names():
        name += "Response" if args.response else "Request"
    known = messages.versions(name)
    if args.version == "latest":
        return name, known[-1]
    version = int(args.version) if args.version.isascii() and args.version.isdecimal() else -1
    if version not in known:
        args.parser.error(
            f"argument VERSION: {name} has no version {args.version} (known: {known[0]} to {known[-1]})"
        )
    return name, version


def _decode(args: argparse.Namespace) -> int:
    name, version = _message(args)
    data, start = _unhex(_read()), 0
    found: Any
    if args.header or args.frame:
        if args.frame:
            start = _check_length(data)
        header_name, header_version = _header(args, name, version)
        header, end = messages.decode_from(header_name, header_version, data, start)
        if name == "ApiVersionsResponse" and data[end : end + 2] == b"\0#":
            version = 0  # error 35 comes in version 0 whatever was asked for (KIP-511)
        found = {"Header": header, "Body": messages.decode(name, version, data, end)}
    else:
        found = messages.decode(name, version, data)
    print(json_text(to_json(found), sys.stdout.encoding, indent=2 if args.pretty else None))
    return 0


def _encode(args: argparse.Namespace) -> int:
    name, version = _message(args)
    value = _parse(_read())
    if not (args.header or args.frame):
        print(messages.encode(name, version, from_json(name, version, value)).hex())
        return 0
    header_name, header_version = _header(args, name, version)
    if not isinstance(value, dict) or not value.keys() <= {"Header", "Body"}:
        raise EncodeError('{"Header": {...}, "Body": {...}} is needed')
    header = value.get("Header", {})
    if header_name == "RequestHeader" and isinstance(header, dict):
        header = {"RequestApiKey": messages.api_key(name), "RequestApiVersion": version, **header}
    data = b"".join(
        [
            messages.encode(header_name, header_version, from_json(header_name, header_version, header)),
            messages.encode(name, version, from_json(name, version, value.get("Body", {}))),
        ]
    )
    print((frames.frame(data) if args.frame else data).hex())
    return 0


def _list(args: argparse.Namespace) -> int:
    if args.name is not None:
        wanted = (
            [args.name] if args.name in messages.names() else [f"{args.name}Request", f"{args.name}Response"]
        )
        print("\n\n".join(schema.blocks()[name].rstrip("\n") for name in wanted))
        return 0
    print("KEY  VERSIONS  FLEXIBLE  NAME")
    for name in messages.names():
        key, known, flexible = messages.api_key(name), messages.versions(name), messages.first_flexible(name)
        print(
            f"{'-' if key is None else key:>3}  {f'{known[0]}-{known[-1]}':<8}  "
            f"{'never' if flexible is None else f'{flexible}+':<8}  {name}"
        )
    return 0


def _header(args: argparse.Namespace, name: str, version: int) -> tuple[str, int]:
    key = messages.api_key(name)
    if key is None:
        parser: argparse.ArgumentParser = args.parser
        parser.error(f"{name} is neither a request nor a response: it has no header")
    if name.endswith("Request"):
        return "RequestHeader", messages.request_header_version(key, version)
    return "ResponseHeader", messages.response_header_version(key, version)


def _check_length(data: bytes) -> int:
    length = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or length != len(data) - 4:
        raise DecodeError(f"a frame of {length} bytes, but {max(len(data) - 4, 0)} come after the length", 0)
    return 4


def _read() -> bytes:
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise DecodeError("more input than is read", MAX_INPUT)
    return data


def _unhex(text: bytes) -> bytes:
    digits = b"".join(text.split())
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        wrong = next(
            (i for i, each in enumerate(text) if chr(each) not in "0123456789abcdefABCDEF \t\r\n\v\f"), None
        )
        if wrong is None:
            raise DecodeError("not hex: half a byte at the end", len(digits) // 2) from None
        raise DecodeError(
            f"not hex: {chr(text[wrong])!r}", len(b"".join(text[:wrong].split())) // 2
        ) from None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_fields)
    except EncodeError:
        raise
    except UnicodeDecodeError as error:
        raise EncodeError(f"not JSON: not UTF-8 (at byte {error.start})") from None
    except ValueError as error:  # also for a number with thousands of digits
        raise EncodeError(f"not JSON: {error}") from None
    except RecursionError:
        raise EncodeError("not JSON that any message has: nested too deeply") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise EncodeError(f"{next(name for name in names if names.count(name) > 1)} is given twice")
    return found
