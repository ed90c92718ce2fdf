"""To come."""

from __future__ import annotations

from pixy.api.restv1.routes import Routes


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
