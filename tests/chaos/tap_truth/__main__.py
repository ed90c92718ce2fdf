"""Disturb members, brokers and offsets, and compare the tap with the brokers all the while.

    python -m tests.chaos.tap_truth --minutes 5 --seed 7

Each round draws one or two faults, looks once a second for 12 s, undoes them, and waits until all is quiet. What the tap has told at a
time must fit what the brokers answered before and after; an old number must have its age. When all is quiet, states, owners,
offsets, ends and lags must equal those of DescribeGroups, ConsumerGroupDescribe and ``kafka-consumer-groups``. A finding is printed,
with the faults before it, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.chaos.tap_truth.world import GROUPS, IDLE, LIVE, PARTITIONS, TOPIC, UNREACHABLE, World, draw
from tests.integration.tap.support import tap_table

LOOKS: Final = 12
QUIET_WITHIN: Final = 120.0
"""Seconds after the faults within which tap and brokers must agree."""
WHOLE: Final = {(TOPIC, each) for each in range(PARTITIONS)}


class Run:
    """One run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found: dict[str, None] = {}
        """Findings, each once."""
        self.looks = self.rounds = 0

    def note(self, findings: list[str], during: str) -> None:
        """Print what is new among findings."""
        for each in findings:
            if each not in self.found:
                self.found[each] = None
                print(f"WRONG, during {during}: {each}", flush=True)

    async def look(self, during: str) -> None:
        """Compare once, as far as the brokers answer."""
        world, self.looks = self.world, self.looks + 1
        groups = await world.groups()
        with contextlib.suppress(*UNREACHABLE):
            await asyncio.to_thread(world.ask_offsets)
        self.note(world.truth.offsets(groups), during)
        for name in LIVE:
            began = time.time()
            table = None
            with contextlib.suppress(*UNREACHABLE):
                state, found = await asyncio.to_thread(world.table, name)
                owned = [each for partitions in found.values() for each in partitions]
                table = found if state == "Stable" and sorted(owned) == sorted(WHOLE) else None
            group = next((each for each in await world.groups() if each["group"] == name), None)
            if group is not None:
                self.note(world.truth.anomalies(group, table, began, time.time()), during)

    async def round(self) -> None:
        """Disturb, look, undo, and wait until tap and brokers agree."""
        world, self.rounds = self.world, self.rounds + 1
        names, heals = [], []
        faults = [draw(world)]
        if world.random.random() < 0.4:
            faults.append(draw(world))
        brokers = 0
        for name, fault in faults:
            if "broker" in name:
                brokers += 1
                if brokers > 1:
                    continue
            names.append(name)
            try:
                heals.append(await asyncio.to_thread(fault))
            except UNREACHABLE as error:
                names[-1] += f": {error}"
        during = f"round {self.rounds}: {', '.join(names)}"
        for _ in range(LOOKS):
            await self.look(during)
            await asyncio.sleep(1)
        for heal in heals:
            if heal is not None:
                await asyncio.to_thread(heal)
        await asyncio.to_thread(world.cluster.wait_ready)
        for group, members in world.members.items():
            members[:] = [each for each in members if each.process.poll() is None]
            while len(members) < 2:
                await world.add_member(group)
        await self.settle(during)

    async def settle(self, during: str) -> None:
        """Stop writing, and wait until tap and brokers agree; looks go on meanwhile."""
        world = self.world
        await asyncio.to_thread(world.write, False)
        deadline, differs = time.monotonic() + QUIET_WITHIN, ["nothing was compared"]
        while differs and time.monotonic() < deadline:
            await self.look(during)
            with contextlib.suppress(*UNREACHABLE):
                # The tool takes seconds: what changes meanwhile, such as the first commit of a member, differs once.
                differs = await self.differences() or self.compare_tool(
                    await world.groups(), await asyncio.to_thread(world.lags)
                )
        self.note(differs, f"{during}, {QUIET_WITHIN:g} s after it")
        world.write(True)
        print(f"{during}: {'agreed' if not differs else 'differed'} when quiet", flush=True)

    async def differences(self) -> list[str]:
        """Compare states, owners and offsets of groups with members, now."""
        world, found = self.world, []
        groups = {each["group"]: each for each in await world.groups()}
        for name in LIVE:
            state, table = await asyncio.to_thread(world.table, name)
            group = groups.get(name)
            if group is None:
                found.append(f"{name} is not known")
            elif (group["state"], tap_table(group)) != (state, table) or state != "Stable":
                found.append(f"{name}: tap {group['state']} {tap_table(group)}, broker {state} {table}")
            elif group["anomalies"] or group["lag"] != 0:
                found.append(f"{name}: lag {group['lag']}, anomalies {group['anomalies']}")
        return found

    def compare_tool(
        self, groups: list[dict[str, Any]], lags: dict[tuple[str, int], tuple[int, int]]
    ) -> list[str]:
        """Compare offsets, ends and lags with those that ``kafka-consumer-groups`` prints, when all is quiet."""
        found = [] if lags else ["kafka-consumer-groups prints no lag"]
        seen = {(group["group"], each["partition"]): each for group in groups for each in group["offsets"]}
        for key, (committed, end) in lags.items():
            each = seen.get(key)
            if key[0] not in GROUPS:
                continue
            if each is None:
                found.append(f"{key[0]}, partition {key[1]}: the tap knows no offset, the tool {committed}")
                continue
            old = self.world.truth.committed[key].since
            if each["committed"] != committed and (key[0] != IDLE or each["committed_at"] > old):
                found.append(f"{key}: committed {each['committed']}, the tool says {committed}")
            if each["end"] != end or each["lag"] != max(0, end - each["committed"]):
                found.append(f"{key}: end {each['end']}, lag {each['lag']}; the tool says end {end}")
        return found


async def main(minutes: float, seed: int, verify: float) -> int:
    """Run; return the exit code."""
    print(f"seed {seed}, {minutes:g} minutes", flush=True)
    until = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="tap-truth-") as folder:
        async with World(seed, Path(folder), verify) as world:
            run = Run(world)
            await run.settle("the start")
            while time.monotonic() < until:
                await run.round()
            counts = (await world.tap.ask())["counts"]
    lost = {
        "undecodable",
        "unmatched",
        "lost_sync",
        "defects",
        "lost_events",
        "rewrite_failed",
    } & counts.keys()
    run.note([f"{each}: {counts[each]}" for each in sorted(lost)], "the run")
    print(
        f"{run.rounds} rounds, {run.looks} looks, {world.truth.claims:,} claims compared, {len(run.found)} wrong; seed {seed}"
    )
    return 1 if run.found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--verify", type=float, default=0.0, help="the tap's --verify, in seconds (default: none)"
    )
    args = parser.parse_args()
    drawn = random.SystemRandom().randrange(10_000) if args.seed is None else args.seed
    sys.exit(asyncio.run(main(args.minutes, drawn, args.verify)))
