"""The requests to actions that docs/admin.md shows are answered as it shows."""

from __future__ import annotations

import asyncio

from pixy.config import App
from tests.pages import Block, differences, shell_blocks
from tests.unit.api.test_admin import serving

SHOWN = "127.0.0.1:19093"
EXAMPLES = [block for block in shell_blocks("docs/admin.md") if not block.reason]


def as_shown(config: App) -> None:
    """Set what the page's daemon has."""
    config.proxies = {"default": config.proxies.pop("main")}
    config.default_cluster = "default"
    config.admin_actions = True


async def output(block: Block, address: str) -> str:
    """Run a block where the daemon has another port; return what it prints."""
    shell = await asyncio.create_subprocess_shell(
        block.text.replace(SHOWN, address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await shell.communicate()
    return printed.decode()


async def test_each_example_is_answered_as_the_page_shows() -> None:
    assert len(EXAMPLES) >= 7 and all(SHOWN in block.text for block in EXAMPLES)
    async with serving(change=as_shown) as admin:
        for block in EXAMPLES:
            assert block.expected is not None, f"{block.where} shows no answer"
            found = await output(block, admin.engine.addresses["admin"])
            assert not (wrong := differences(block.expected, found)), wrong


async def test_the_actions_describe_themselves_as_the_page_says() -> None:
    async with serving(change=as_shown) as admin:
        described = await admin.get("/actions?group=billing&path=/service/default/fetcher")
        assert [each["action"] for each in described["actions"]] == [
            "pause",
            "resume",
            "give-back",
            "drain",
            "reset",
            "restart",
            "sampler",
        ]
        assert described["allowed"] is True
        assert described["daemon"] == {"allowed": True, "sampler": True, "restartable": True}
        other = await admin.get("/actions?path=/service/default")
        assert other["daemon"]["restartable"] is False
