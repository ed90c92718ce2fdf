"""``kafka-pixy keys``: make, list and remove API keys in the file that ``auth.keys_file`` names."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pixy.auth.keys import Keys, StoredKey, load_keys, make_key
from pixy.cli.arguments import Parser
from pixy.config.durations import parse_duration
from pixy.errors import ConfigError, in_words
from pixy.escaping import escaped

EXIT_ERROR = 1
_EXITS = {
    0: "done",
    1: "failed, for example because the file cannot be read or has no such key; stderr names the reason",
    2: "wrong command line",
}
_NEW = {
    "kafka-pixy keys new billing --file keys": "prints the key; the file gets its hash",
    "kafka-pixy keys new shop --file keys --expires 90d --groups writers": "",
}
_REMOVE = {
    "kafka-pixy keys remove billing --file keys": "all keys of that name",
    "kafka-pixy keys remove billing --file keys --hash 5e88": "the one whose hash begins like that",
}
_LIST = {"kafka-pixy keys list --file keys": ""}
_DAY = 86_400.0


def _lifetime(text: str) -> float:
    try:
        seconds = float(text[:-1]) * _DAY if text.endswith("d") else parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90d or 12h")
    return seconds


def _hash(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty: give the beginning of a hash, as `list` shows it")
    return text


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="kafka-pixy keys",
        description="Make, list and remove API keys in the file `auth.keys_file`.",
        examples=_NEW | _REMOVE | _LIST,
        exits=_EXITS,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    new = commands.add_parser(
        "new", help="make a key, print it once, and store its hash", examples=_NEW, exits=_EXITS
    )
    new.add_argument("name", help="whose key it is; rules call it key:NAME")
    new.add_argument("--expires", type=_lifetime, metavar="TIME", help="such as 90d or 12h (default: never)")
    new.add_argument("--groups", default="", metavar="A,B", help="its groups; rules call them group:A")
    remove = commands.add_parser(
        "remove", help="remove all keys of a name, or one of them", examples=_REMOVE, exits=_EXITS
    )
    remove.add_argument("name", help="whose keys they are")
    remove.add_argument("--hash", type=_hash, help="the beginning of the hash, as `list` shows it")
    shown = commands.add_parser("list", help="list names, hashes and expiries", examples=_LIST, exits=_EXITS)
    for each in (new, remove, shown):
        each.add_argument("--file", type=Path, required=True, help="the file of keys")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command and return the exit code. A wrong command line exits with 2."""
    args = make_parser().parse_args(argv)
    try:
        return {"new": _new, "remove": _remove, "list": _list}[args.command](args)
    except (ConfigError, OSError) as error:
        print(escaped(f"kafka-pixy keys: {in_words(error)}"), file=sys.stderr)
        return EXIT_ERROR


def _stored(path: Path) -> list[StoredKey]:
    return load_keys(str(path)).stored if path.exists() else []


def _new(args: argparse.Namespace) -> int:
    expires = None if args.expires is None else time.time() + args.expires
    groups = [each for each in args.groups.split(",") if each]
    key, stored = make_key(args.name, expires, groups)
    _stored(args.file)  # a file that the daemon would refuse is not made longer
    with open(os.open(args.file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        broken = size > 0 and file.read(1) != b"\n"
        _show(key)  # first: a hash whose key nobody has seen would stay in the file
        file.write(b"\n" * broken + stored.line().encode() + b"\n")
    return 0


def _show(key: str) -> None:
    try:
        print(key, flush=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"the key could not be shown, so it was not added: standard output: {why}"
        ) from None


def _remove(args: argparse.Namespace) -> int:
    stored = load_keys(str(args.file)).stored
    lines = args.file.read_text(encoding="utf-8").splitlines()
    gone = [each for each in stored if each.name == args.name and each.digest.startswith(args.hash or "")]
    if not gone:
        raise ConfigError(f"{args.file} has no such key of {args.name}")
    digests = {f"sha256:{each.digest}" for each in gone}
    kept = [line for line in lines if digests.isdisjoint(line.split())]
    Keys("\n".join(kept))
    if not any(line.strip() for line in kept):
        kept = ["# no keys"]  # a daemon takes an empty file for one that somebody is writing
    _replace(args.file.resolve(), "".join(f"{line}\n" for line in kept))
    print(f"removed {len(gone)}")
    return 0


def _replace(path: Path, text: str) -> None:
    """Replace a file at once, with its owner, group and mode: a daemon that cannot read it keeps the keys that it has.

    Raises:
        ConfigError: this user may not give the file to its owner and group; nothing is changed.
    """
    found = path.stat()
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(
            os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        try:
            os.chown(scratch, found.st_uid, found.st_gid)
        except OSError as error:
            raise ConfigError(
                f"{path}: nothing is removed: the new file cannot have the owner of the old one: "
                f"{(error.strerror or str(error)).lower()}: run this as its owner, or as root"
            ) from None
        with contextlib.suppress(OSError):
            os.chmod(scratch, found.st_mode & 0o777)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _list(args: argparse.Namespace) -> int:
    now = time.time()
    for each in load_keys(str(args.file)).stored:
        expires = "never expires"
        if each.expires is not None:
            over = "expired" if each.expires <= now else "expires"
            expires = f"{over} {datetime.fromtimestamp(each.expires, UTC):%Y-%m-%dT%H:%M:%SZ}"
        groups = f" groups={','.join(sorted(each.groups))}" if each.groups else ""
        print(f"key:{each.name} {each.digest[:12]} {expires}{groups}")
    return 0


__all__ = ["run"]
