"""``kafka-pixy rules explain``: say why a principal may or may not do something."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pixy.auth.principal import ANONYMOUS, Principal
from pixy.auth.rules import Access, Rules
from pixy.cli.arguments import Parser
from pixy.config import load_app
from pixy.config.effective import checked
from pixy.config.load import Origins
from pixy.config.security import VERBS
from pixy.errors import ConfigError
from pixy.escaping import escaped

EXIT_REFUSED = 1
EXIT_USAGE = 2
_EXAMPLES = {
    "kafka-pixy rules explain key:billing produce topic=orders --config kp.yaml": "",
    "kafka-pixy rules explain jwt:alice consume topic=orders,group=billing \\\n"
    "      --groups readers --config kp.yaml": "",
}
_EXITS = {
    0: "allowed",
    1: "refused",
    2: "wrong command line, or a configuration that cannot be used",
}
_PARTS = ("cluster", "topic", "group")


def _resource(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if name not in _PARTS or not equals or not value or name in found:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not like topic=orders,group=billing or cluster=east,topic=orders"
            )
        found[name] = value
    return found


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="kafka-pixy rules",
        description="Try out the rules of a file.",
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    explain = commands.add_parser(
        "explain",
        help="say why a principal may do something; exit code 1 if it may not",
        examples=_EXAMPLES,
        exits=_EXITS,
    )
    explain.add_argument("principal", help="such as key:billing, jwt:alice, cert:app-1, uid:1000, anonymous")
    explain.add_argument("verb", choices=VERBS)
    explain.add_argument(
        "resource", type=_resource, help="such as topic=orders,group=billing; cluster= if not the default one"
    )
    explain.add_argument("--groups", default="", metavar="A,B", help="groups that the credential names")
    explain.add_argument("--config", required=True, metavar="FILE", help="the daemon's configuration")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command and return the exit code: 0 allowed, 1 refused, 2 wrong command line or file."""
    args = make_parser().parse_args(argv)
    origins: Origins = {}
    try:
        app = load_app(args.config, origins=origins)
        rules = Rules(checked(app, origins).rules, app.auth.groups)
    except ConfigError as error:
        print(f"kafka-pixy rules: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USAGE
    asked = args.resource
    cluster = app.cluster_name(asked.get("cluster", ""))
    if cluster not in app.proxies:
        text = f"cluster {cluster!r} is not in {args.config}: it has {', '.join(app.proxies)}"
        print(escaped(f"kafka-pixy rules: {text}"), file=sys.stderr)
        return EXIT_USAGE
    access = Access(args.verb, cluster, asked.get("topic"), asked.get("group"))
    principal = Principal(args.principal, frozenset(filter(None, args.groups.split(","))))
    for line in rules.explain(principal, access):
        print(line)
    if ":" not in args.principal and args.principal != ANONYMOUS.name:
        kinds = ", ".join(f"{kind}:{args.principal}" for kind in ("key", "jwt", "cert"))
        note = f"kafka-pixy rules: nobody is called {args.principal!r}: a principal begins with its kind, as in {kinds}"
        print(escaped(note), file=sys.stderr)
    return 0 if rules.allows(principal, access) else EXIT_REFUSED


__all__ = ["run"]
