"""Derive ``pixy/wire/messages.txt`` from the JSON schemas inside two kafka-clients jars.

Kafka 4 dropped old versions of many messages, and Kafka 3.9 lacks the newest. The script takes each version from the new
jar if it has it, otherwise from the old one, and checks the result version by version against its sources before
writing it. Without arguments it fetches the jars with Maven.

    python proto/kafka_messages.py [OLD.jar NEW.jar]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "pixy" / "wire" / "messages.txt"
OLD, NEW = "3.9.1", "4.3.0"
HEAD = f"""\
# Kafka's protocol messages, every version: derived from the schemas of kafka-clients {OLD} and {NEW}
# by proto/kafka_messages.py (`make messages`), not edited by hand.
# NAME key K versions A-B flexible C+, then a field a line, its own fields indented below it:
# NAME TYPE VERSIONS [null=VERSIONS] [tag=N] [flexible=none] [default=VALUE]
"""
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')

Json = dict[str, Any]
Range = tuple[int, int]
NONE: Range = (0, -1)
LATEST = 32767


def fetch(version: str) -> Path:
    """Return the kafka-clients jar of ``version``, fetching it with Maven the first time."""
    folder = ROOT / "build" / "kafka-clients"
    jar = folder / f"kafka-clients-{version}.jar"
    if not jar.exists():
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-DoutputDirectory={folder}",
                f"-Dartifact=org.apache.kafka:kafka-clients:{version}",
            ],
            check=True,
            timeout=900,
        )
    return jar


def schemas(jar: Path) -> dict[str, Json]:
    """Read the schemas in a jar by message name, with ``commonStructs`` expanded where they are used."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = archive.read(name).decode()
                # Remove comments, but not text inside a string that looks like one.
                text = _TOKEN.sub(lambda token: token[0] if token[0][0] == '"' else "", text)
                schema = json.loads(text)
                common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
                for each in schema.get("fields", ()):
                    _expand(each, common)
                found[schema["name"]] = schema
    return found


def _expand(field: Json, common: dict[str, list[Json]]) -> None:
    base = field["type"].removeprefix("[]")
    if base[0].isupper():
        field["type"] = field["type"].replace(base, "struct")
        # A copy: the same structure may be used twice, and merging changes fields.
        field["fields"] = json.loads(json.dumps(field.get("fields") or common[base]))
        for each in field["fields"]:
            _expand(each, common)


def parse_range(text: str | None) -> Range:
    """Parse ``"3-5"``, ``"3+"``, ``"3"`` or ``"none"`` to (first, last)."""
    if text is None or text == "none":
        return NONE
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), LATEST
    return int(first), int(last if dash else first)


def clip(one: Range, two: Range) -> Range:
    """Return the versions in both ranges."""
    first, last = max(one[0], two[0]), min(one[1], two[1])
    return (first, last) if first <= last else NONE


def join(one: Range, two: Range) -> Range:
    """Return the versions in either of two ranges, which must touch."""
    if NONE in (one, two):
        return one if two == NONE else two
    assert one[1] + 1 >= two[0] and two[1] + 1 >= one[0], (one, two)
    return min(one[0], two[0]), max(one[1], two[1])


def normal(field: Json, valid: Range) -> Json:
    """Return a field in the table's form, clipped to the versions ``valid``."""
    tagged, nullable = parse_range(field.get("taggedVersions")), parse_range(field.get("nullableVersions"))
    versions = clip(join(parse_range(field["versions"]), tagged), valid)
    assert clip(tagged, valid) in (NONE, versions), field
    default = field.get("default", "")
    if isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, int) or re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", default):
        default = str(int(str(default), 0))
    return {
        "name": field["name"],
        "type": field["type"],
        "versions": versions,
        "null": clip(nullable, versions),
        "tag": int(field["tag"]) if clip(tagged, valid) != NONE else None,
        "flexible": field.get("flexibleVersions"),
        "default": default if default not in {"", "0", "false"} else "",
        "fields": [
            each
            for each in (normal(sub, versions) for sub in field.get("fields", ()))
            if each["versions"] != NONE
        ],
    }


def merge(old: list[Json], new: list[Json]) -> list[Json]:
    """Merge the fields of low and high versions into one list, in an order that suits both."""
    merged: list[Json] = []
    rest = list(new)
    by_name = {field["name"]: field for field in new}
    for field in old:
        twin = by_name.get(field["name"])
        if twin is None:
            merged.append(field)
            continue
        while rest and rest[0]["name"] not in {each["name"] for each in old}:
            merged.append(rest.pop(0))
        rest.remove(twin)
        for key in ("type", "tag", "flexible", "default"):
            assert field[key] == twin[key], (field, twin)
        merged.append(
            {
                **twin,
                "versions": join(field["versions"], twin["versions"]),
                "null": join(field["null"], twin["null"]),
                "fields": merge(field["fields"], twin["fields"]),
            }
        )
    return merged + rest


def layout(fields: list[Json], version: int) -> list[Any]:
    """Return the layout on the wire in one version, for comparing two descriptions."""
    return [
        (
            f["name"],
            f["type"],
            clip(f["null"], (version, version)) != NONE,
            f["tag"],
            f["flexible"],
            f["default"],
            layout(f["fields"], version),
        )
        for f in fields
        if clip(f["versions"], (version, version)) != NONE
    ]


def message(old: Json | None, new: Json | None) -> Json | None:
    """Merge the two schemas of a message; return None if neither has a valid version."""
    parts = []
    above = LATEST
    for schema in (new, old):
        valid = parse_range(schema["validVersions"]) if schema else NONE
        if valid != NONE and schema and "fields" in schema:
            valid = clip(valid, (0, above))
            if valid == NONE:
                continue
            above = valid[0] - 1
            fields = [normal(each, valid) for each in schema["fields"]]
            parts.append((schema, valid, [each for each in fields if each["versions"] != NONE]))
    if not parts:
        return None
    newest = parts[0][0]
    fields = parts[0][2] if len(parts) == 1 else merge(parts[1][2], parts[0][2])
    versions = join(parts[0][1], parts[-1][1])
    for _, valid, source in parts:
        for version in range(valid[0], valid[1] + 1):
            assert layout(source, version) == layout(fields, version), (newest["name"], version)
    flexible = clip(parse_range(newest.get("flexibleVersions", "none")), versions)
    for schema, valid, _ in parts:
        assert clip(flexible, valid) == clip(parse_range(schema.get("flexibleVersions")), valid), newest[
            "name"
        ]
    return {
        "name": newest["name"],
        "key": newest.get("apiKey"),
        "versions": versions,
        "flexible": flexible,
        "fields": fields,
    }


def show(versions: Range, outer: Range) -> str:
    """Format a range, open at the end if it ends with the message's last version."""
    first, last = versions
    if versions == NONE:
        return "none"
    return f"{first}+" if last == outer[1] else str(first) if first == last else f"{first}-{last}"


def lines(fields: list[Json], outer: Range, depth: int = 1) -> Iterator[str]:
    """Yield the table's lines for some fields."""
    for field in fields:
        words = [field["name"], field["type"], show(field["versions"], outer)]
        if field["null"] != NONE:
            words.append(f"null={show(field['null'], outer)}")
        if field["tag"] is not None:
            words.append(f"tag={field['tag']}")
        if field["flexible"]:
            words.append(f"flexible={field['flexible']}")
        if field["default"]:
            words.append(f"default={field['default']}")
        yield " " * depth + " ".join(words)
        yield from lines(field["fields"], outer, depth + 1)


def table(old_jar: Path, new_jar: Path) -> str:
    """Build the text of the table from two jars."""
    old, new = schemas(old_jar), schemas(new_jar)
    blocks = [HEAD]
    made = [message(old.get(name), new.get(name)) for name in {*old, *new}]
    for each in sorted((m for m in made if m), key=lambda m: (m["key"] is None, m["key"], m["name"])):
        outer = each["versions"]
        key = "" if each["key"] is None else f" key {each['key']}"
        head = f"{each['name']}{key} versions {outer[0]}-{outer[1]} flexible {show(each['flexible'], outer)}"
        blocks.append("\n".join([head, *lines(each["fields"], outer)]) + "\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    jars = [Path(each) for each in sys.argv[1:]] or [fetch(OLD), fetch(NEW)]
    TABLE.write_text(table(*jars), encoding="utf-8")
