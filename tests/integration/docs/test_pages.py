"""Every command of a page does what the page says, in the order of the page, in a fresh directory, on the page's own ports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.effort import LONG
from tests.pages import LONG_PAGES, RUN_PAGES
from tests.support import ROOT

NAMESPACE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
"""A network of its own, so that pages may use the ports that they print while other tests run."""


def namespaces_work() -> bool:
    if not (shutil.which("unshare") and shutil.which("ip") and shutil.which("curl")):
        return False
    return (
        subprocess.run(
            [*NAMESPACE, "ip", "link", "set", "lo", "up"], check=False, capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.skipif(
    not namespaces_work(), reason="!!! pages are not run: unshare --net, ip or curl is missing !!!"
)
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", RUN_PAGES + (LONG_PAGES if LONG else ()))
def test_a_page_works_as_printed(page: str) -> None:
    done = subprocess.run(
        [
            *NAMESPACE,
            "bash",
            "-c",
            'ip link set lo up && exec "$@"',
            "page",
            sys.executable,
            "-m",
            "tests.pages",
            page,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1490,
    )
    assert done.returncode == 0, done.stdout + done.stderr
