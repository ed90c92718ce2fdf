"""What the tap tells of client software."""

from __future__ import annotations

from pixy.tap.inventory import Inventory


def test_a_version_below_zero_is_shown_like_any_other() -> None:
    """A request of 18 bytes from anybody ended a tap that shows its table."""
    inventory = Inventory(10)
    inventory.sent(("lib", "1"), "evil", {(18, -1): 1, (3000, -1): 2, (0, -1): 1})
    (found,) = inventory.to_json()
    assert found["apis"] == {"ApiVersions": {"-1": 1}, "3000": {"-1": 2}, "Produce": {"-1": 1}}
    assert "ApiVersions v-1 (needs 0 or later)" in found["breaks_on_kafka_4"]
