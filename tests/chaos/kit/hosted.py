"""The daemon within Envoy with the kit's control socket. Envoy imports it."""

from __future__ import annotations

import os

from pixy.cli.envoy.hosted import application
from tests.chaos.kit.daemon import install

install(os.environ["CHAOS_CONTROL"], os.environ["CHAOS_PLANT"])

__all__ = ["application"]
