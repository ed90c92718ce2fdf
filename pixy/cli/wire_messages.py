"""``kafka-pixy wire decode``, ``encode`` and ``list``: protocol messages as JSON, and back."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from typing import Any, Final

from pixy.wire import frames, messages, schema
from pixy.wire.exceptions import DecodeError, EncodeError, UnsupportedVersionError
from pixy.wire.json_form import from_json, to_json

MAX_INPUT: Final = 4 * frames.MAX_FRAME
"""Bytes of standard input that are read: the hex digits of the largest frame, with as much space."""

_NAMING: Final = """\
NAME is a message of Kafka's schemas (JoinGroupRequest; case does not matter), an API (JoinGroup) or
its number (11), which stand for the request unless --response is given. VERSION is a number or
"latest". `kafka-pixy wire list` shows all messages, `wire list NAME` one's fields.
"""
_FORM: Final = """\
Fields have the names of Kafka's schemas. Bytes are base64, UUIDs Kafka's 22 characters of base64url;
tagged fields that are not known are under "_tags". With --header or --frame the JSON is
{"Header": {...}, "Body": {...}}.
"""


def add_parser(subparsers: Any) -> None:
    """Add the commands to the program ``kafka-pixy wire``."""
    for command, text, handler in (
        ("decode", "hex on standard input to JSON", _decode),
        ("encode", "JSON on standard input to hex", _encode),
    ):
        parser: argparse.ArgumentParser = subparsers.add_parser(
            command,
            help=f"a message: {text}",
            description=f"A message: {text}.",
            epilog=_NAMING + _FORM,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("name", metavar="NAME", type=_name)
        parser.add_argument("version", metavar="VERSION")
        parser.add_argument("--response", action="store_true", help="an API's name means its response")
        whole = parser.add_mutually_exclusive_group()
        whole.add_argument("--header", action="store_true", help="with the request's or response's header")
        whole.add_argument("--frame", action="store_true", help="with header and, before it, the length")
        if command == "decode":
            parser.add_argument("--pretty", action="store_true", help="indent the JSON")
        parser.set_defaults(handler=handler, parser=parser)
    parser = subparsers.add_parser("list", help="the messages and their versions", epilog=_NAMING)
    parser.add_argument("name", metavar="NAME", nargs="?", type=_name, help="show the fields of this one")
    parser.set_defaults(handler=_list, parser=parser)


def _name(text: str) -> str:
    """The message or API that is meant, spelt as in the schemas."""
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
    """Name and version of the message; ends the program with 2 if there is no such version."""
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
            version = 0  # whatever was asked for (KIP-511)
        found = {"Header": header, "Body": messages.decode(name, version, data, end)}
    else:
        found = messages.decode(name, version, data)
    print(json.dumps(to_json(found), indent=2 if args.pretty else None, ensure_ascii=False))
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
    except ValueError as error:  # also of a number with thousands of digits
        raise EncodeError(f"not JSON: {error}") from None
    except RecursionError:
        raise EncodeError("not JSON that any message has: nested too deeply") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise EncodeError(f"{next(name for name in names if names.count(name) > 1)} is given twice")
    return found
