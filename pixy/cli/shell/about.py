"""``kafka-pixy version``, ``status``, ``completion`` and ``man``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from pixy import __version__
from pixy.cli.shell.errors import ShellError
from pixy.cli.shell.framework import EXITS, Command, connected
from pixy.cli.shell.output import note, plain, write
from pixy.cli.shell.session import Session
from pixy.cli.shell.times import clock_ahead, duration
from pixy.proto import kafkapixy_pb2 as pb

_SOURCES: Final = {
    "bash": "kafka-pixy completion bash > \\\n      ~/.local/share/bash-completion/completions/kafka-pixy   "
    "after mkdir -p ~/.local/share/bash-completion/completions",
    "zsh": "kafka-pixy completion zsh > ~/.zfunc/_kafka-pixy   after mkdir -p ~/.zfunc, and with fpath+=~/.zfunc before compinit",
    "fish": "kafka-pixy completion fish > ~/.config/fish/completions/kafka-pixy.fish   after mkdir -p ~/.config/fish/completions",
}


@click.command(
    "version", cls=Command, examples={"kafka-pixy version": ""}, help="Show the version of this program."
)
def version() -> int:
    """Print the version."""
    write(f"kafka-pixy {__version__}\n")
    return 0


@click.command(
    "status",
    cls=Command,
    examples={"kafka-pixy status": "", "kafka-pixy status --server kp.example.com:19091 --json": ""},
    exits={
        **EXITS,
        1: "no daemon answers, the brokers of a cluster do not, or there is no cluster of that name",
    },
    help="Show the version of a daemon, how long it has been up, and whether the brokers of its clusters answer; with --cluster, "
    "of that one.",
)
@connected
def status(session: Session) -> int:
    """Show the state of a daemon."""
    began = time.time()
    found = session.call("GetStatus", pb.GetStatusRq())
    clusters = {
        each.cluster: {"brokers": list(each.brokers), **({"error": each.error} if each.error else {})}
        for each in found.clusters
        if session.cluster in ("", each.cluster)
    }
    if session.cluster and not clusters:
        known = ", ".join(each.cluster for each in found.clusters) or "none that you may see"
        raise ShellError(f"cluster {session.cluster!r} does not exist; the daemon has {known}")
    document: dict[str, Any] = {
        "server": session.server,
        "version": found.version,
        "uptime": round(found.uptime, 1),
        "clock_ahead": round(clock_ahead(found.time / 1000, began, time.time()), 1) + 0.0,  # never -0.0
        "clusters": clusters,
    }
    if session.out.structured:
        session.out.document(document)
    else:
        ahead = document["clock_ahead"]
        session.out.fields(
            {
                "server": session.server,
                "version": found.version,
                "uptime": duration(found.uptime),
                "clock": f"{abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} ours"
                if ahead
                else "as ours",
            }
        )
        for name, each in clusters.items():
            brokers = ",".join(map(str, each["brokers"]))
            write(f"cluster {name}: {plain(each.get('error') or f'brokers {brokers}')}\n")
    return int(any("error" in each for each in clusters.values()))


@click.command(
    "completion",
    cls=Command,
    examples={line.rpartition("   ")[0]: line.rpartition("   ")[2] for line in _SOURCES.values()},
    help="Print the completion script of a shell. It completes commands, options, topics and groups.",
)
@click.argument("shell", type=click.Choice(list(_SOURCES)))
def completion(shell: str) -> int:
    """Print a completion script."""
    from click.shell_completion import get_completion_class

    from pixy.cli.shell.app import COMPLETE, PROGRAM, ROOT

    found = get_completion_class(shell)
    assert found is not None
    write(found(ROOT, {}, PROGRAM, COMPLETE).source())
    return 0


@click.command(
    "man",
    cls=Command,
    examples={"kafka-pixy man ~/.local/share/man/man1": "then: man kafka-pixy-consume"},
    help="Write man pages of all commands into a folder.",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def man(folder: Path) -> int:
    """Write man pages."""
    from pixy.cli.shell.man_pages import pages

    path, count = folder, 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages():
            path = folder / f"{name}.1"
            path.write_text(text)
            count += 1
    except OSError as error:
        if error.filename is None:  # as of a write, where the disk is full
            error.filename = str(path)
        raise
    note(f"{count} pages in {folder}")
    return 0


__all__ = ["completion", "man", "status", "version"]
