"""``kafka-pixy config``: check, show and write the daemon's configuration."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pixy.cli import flags as command_line
from pixy.cli.arguments import Parser
from pixy.cli.pid_file import PidFile
from pixy.config import default_text
from pixy.config.effective import DEFAULT, as_yaml, rows
from pixy.config.environment import CONFIG
from pixy.config.load import Origins
from pixy.config.notes import notes_of
from pixy.config.validity import expiry_note
from pixy.errors import ConfigError
from pixy.escaping import escaped

_FLAGS = "It also takes the daemon's flags, such as --config FILE and --kafkaPeers PEERS\n(kafka-pixy --help), and reads the same environment variables."
_CHECK = {
    "kafka-pixy config check --config pixy.yaml": "the file, and the files that it names",
    "kafka-pixy config check": "the environment variables alone",
}
_SHOW = {
    "kafka-pixy config show --config pixy.yaml --changed": "what the file and the variables set",
    "kafka-pixy config show --json": "",
}
_INIT = {
    "kafka-pixy config init pixy.yaml": "then: kafka-pixy --config pixy.yaml",
    "kafka-pixy config init - | less": "",
}
_EXITS = {0: "valid, or done", 1: "invalid, or failed; stderr names the reason", 2: "wrong command line"}
_WRITTEN = {
    "into time.Duration": "a number and a unit, such as 5m or 1h30m",
    "into []string": "a list, such as [localhost:9092]",
}
"""How to write what could not be read; the text itself is the original's."""
_OF_YAML = "failed to parse config: yaml: "
EXIT_OK = 0
EXIT_WRONG = 1
EXIT_USAGE = 2
_KEPT = re.compile(r"\s*(#.*)?\Z|\s*seed_peers:\Z|\s*- localhost:9092\Z")


def main(argv: Sequence[str]) -> int:
    """Run ``config check``, ``config show`` or ``config init``; return the exit code.

    Args:
        argv: the arguments after ``config``.
    """
    try:
        known, rest = _parser().parse_known_args(argv)
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    if known.action == "init":
        if rest:
            return _complain(f"kafka-pixy config: init takes no {rest[0]!r} (see --help)", EXIT_USAGE)
        return _init(known.file, force=known.force)
    if rest and not rest[0].startswith("-"):
        named = f"kafka-pixy config {known.action} --config {rest[0]}"
        return _complain(f"kafka-pixy config: name the file with --config: {named}", EXIT_USAGE)
    origins: Origins = {}
    try:
        flags, app = command_line.parse(rest, origins)
    except command_line.UsageError as error:
        return _complain(f"kafka-pixy config: {error}", EXIT_USAGE)
    except SystemExit as end:
        return int(end.code or 0)
    except ConfigError as error:
        return _complain("\n".join(f"kafka-pixy config: {each}" for each in _problems(error)), EXIT_WRONG)
    shown = [row for row in rows(app, origins) if not (known.changed and row.origin == DEFAULT)]
    if known.action == "check":
        from pixy.cli.start_problems import start_problem  # here: `show` and `init` do without its libraries

        if problem := start_problem(app) or _pid_file_problem(flags.pidFile):
            return _complain(f"kafka-pixy config: {problem}", EXIT_WRONG)
        changed = sum(row.origin != DEFAULT for row in shown)
        print(_summary(flags.config or os.environ.get(CONFIG, ""), list(app.proxies), changed))
        for note in filter(None, (*notes_of(app), expiry_note(app.tls))):
            print(escaped(f"note: {note}"))
    elif known.json:
        print(json.dumps([row._asdict() for row in shown], indent=2))
    else:
        sys.stdout.write(as_yaml(app, origins, changed=known.changed))
    return EXIT_OK


def _problems(error: ConfigError) -> list[str]:
    """Return each problem of a configuration as one line, without the words that the original, and so the daemon, begins with."""
    first, *more = str(error).splitlines()
    found = (
        [each.strip() for each in more]
        if more and first.endswith(":")
        else [first.removeprefix(_OF_YAML), *more]
    )
    hints = [next((how for kind, how in _WRITTEN.items() if each.endswith(kind)), "") for each in found]
    return [f"{each}: write {hint}" if hint else each for each, hint in zip(found, hints, strict=True)]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="kafka-pixy config",
        description="Check, show and write the daemon's configuration.",
        examples=_INIT | _CHECK | _SHOW,
        exits=_EXITS,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="check|show|init")
    check = actions.add_parser(
        "check",
        help="say whether the daemon would start with its configuration and the files that it names",
        epilog=_FLAGS,
        examples=_CHECK,
        exits={
            0: "it would start",
            1: "it would not; stderr names each reason in a line",
            2: "wrong command line",
        },
        allow_abbrev=False,
    )
    check.set_defaults(json=False, changed=False)
    show = actions.add_parser(
        "show",
        help="print every value with its origin; secrets are masked",
        epilog=_FLAGS,
        examples=_SHOW,
        exits=_EXITS,
        allow_abbrev=False,
    )
    show.add_argument("--changed", action="store_true", help="only values that are no defaults")
    show.add_argument(
        "--json", action="store_true", help="a JSON array of objects with key, value and origin"
    )
    init = actions.add_parser(
        "init",
        help="write a file with every key, commented out",
        examples=_INIT,
        exits=_EXITS,
        allow_abbrev=False,
    )
    init.add_argument(
        "file", nargs="?", default="kafka-pixy.yaml", help="default: %(default)s; - is standard output"
    )
    init.add_argument("--force", action="store_true", help="replace the file if it exists")
    return parser


def template() -> str:
    """Return ``config/default.yaml`` with its keys commented out (``#`` and no space), but for the brokers and the sections.

    So the file changes nothing until somebody takes a ``#`` away, and a later version's defaults are not pinned.
    """
    lines = default_text().splitlines()
    done = []
    for at, line in enumerate(lines):
        body = line.lstrip()
        section = body.endswith(":") and not lines[at + 1].lstrip().startswith("- ")
        if _KEPT.match(line) or section:
            done.append(line)
        else:
            done.append(f"{line[: len(line) - len(body)]}#{body}")
    head = "# Lines that begin with # and no space are keys with their defaults: take the # away to change one.\n\n"
    return head + "\n".join(done) + "\n"


def _init(name: str, *, force: bool) -> int:
    if name == "-":
        sys.stdout.write(template())
        return EXIT_OK
    try:
        with Path(name).open("w" if force else "x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        return _complain(f"kafka-pixy config: {name} exists; --force replaces it", EXIT_WRONG)
    except OSError as error:
        return _complain(
            f"kafka-pixy config: cannot write {name}: {(error.strerror or str(error)).lower()}", EXIT_WRONG
        )
    print(f"wrote {name}; start with: kafka-pixy --config {name}")
    return EXIT_OK


def _pid_file_problem(path: str) -> str:
    """Say why the daemon could not write its pid file; that it runs already is no problem of a configuration."""
    try:
        PidFile(path).check(daemons=False)
    except ConfigError as error:
        return str(error)
    return ""


def _summary(path: str, clusters: list[str], changed: int) -> str:
    names = f"cluster{'' if len(clusters) == 1 else 's'} {', '.join(clusters)}"
    return f"{path or 'no file'}: valid; {names}; {changed} value{'' if changed == 1 else 's'} set"


def _complain(text: str, code: int) -> int:
    print(escaped(text, keep="\n"), file=sys.stderr)
    return code


run = main
"""The name that pixy.cli.main calls."""
__all__ = ["main", "run", "template"]
