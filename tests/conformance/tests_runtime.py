"""A pytest plugin that runs pykka's test suite on this project's runtime instead of pykka's."""

import os
import threading
import time

import pytest

import actors


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Replace the suite's table of runtimes with ours."""
    from tests import conftest
    from tests.types import Runtime

    kind = os.environ["ACTORS_KIND"]
    runtime = Runtime(
        name=kind,
        actor_class=getattr(actors, kind),
        event_class=threading.Event,
        future_class=actors.Future,
        sleep_func=time.sleep,
    )
    conftest.RUNTIMES.clear()
    conftest.RUNTIMES[kind] = pytest.param(runtime, id=kind)
