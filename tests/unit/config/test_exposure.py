"""An address that other hosts can reach needs a word of its own."""

from __future__ import annotations

import pytest

from pixy.cli.flags import parse
from pixy.config import App, Proxy, load_text, validate
from pixy.config.exposure import exposed
from pixy.errors import ConfigError


def test_by_default_nobody_else_can_reach_the_daemon() -> None:
    app = App(proxies={"default": Proxy()})
    assert exposed(app) == [] and not app.insecure
    assert (app.grpc_addr, app.tcp_addr, app.unix_mode) == ("127.0.0.1:19091", "127.0.0.1:19092", "0660")
    validate(app)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", ":1", "[::]:1", "10.0.0.1:1", "[2001:db8::1]:1", "broker:1", "127.0.0.1.evil:1"]
)
@pytest.mark.parametrize("key", ["grpc_addr", "tcp_addr", "unix_addr", "admin_addr", "rest"])
def test_an_address_that_others_can_reach_is_refused(key: str, address: str) -> None:
    text = f'{key}: "{address}"\n' if key != "rest" else f'rest: {{addr: "{address}"}}\n'
    text += "proxies: {default: }\n"
    name = "rest.addr" if key == "rest" else key
    with pytest.raises(ConfigError) as refused:
        validate(load_text(text))
    assert f"{name} {address} can be reached from other hosts" in str(refused.value)
    assert "\n" not in str(refused.value) and "--insecure" in str(refused.value)
    assert exposed(validate(load_text(text + "insecure: true"))) == [f"{name} {address}"]


@pytest.mark.parametrize(
    "address", ["localhost:1", "127.0.0.9:1", "[::1]:1", "a.localhost:1", "", "/run/socket"]
)
def test_loopback_and_paths_are_allowed(address: str) -> None:
    validate(load_text(f'rest: {{addr: "{address}"}}\nproxies: {{default: }}\n'))


@pytest.mark.parametrize(
    "key, address, meant",
    [("tcp_addr", "19093", "127.0.0.1:19093"), ("tcp_addr", "localhost", "localhost:19092")],
)
def test_half_an_address_is_refused(key: str, address: str, meant: str) -> None:
    """It would be the name of a socket's file in the working directory."""
    with pytest.raises(ConfigError, match=f"{key} '{address}' must be HOST:PORT, such as {meant}"):
        validate(load_text(f"{{{key}: '{address}', proxies: {{default: }}}}"))
    validate(load_text("{tcp_addr: /run/socket, proxies: {default: }}"))


def test_auth_allows_it() -> None:
    text = "{tcp_addr: 0.0.0.0:1, auth: {enabled: true, keys_file: keys}, proxies: {default: }}"
    assert exposed(validate(load_text(text))) == ["tcp_addr 0.0.0.0:1"]
    with pytest.raises(ConfigError, match="can be reached from other hosts"):
        validate(load_text(text.replace("true", "false")))


def test_the_flag_allows_it() -> None:
    _, app = parse(["--tcpAddr=0.0.0.0:1", "--insecure"])
    assert exposed(app) == ["tcp_addr 0.0.0.0:1"]
    with pytest.raises(ConfigError):
        parse(["--tcpAddr=0.0.0.0:1", "--insecure=false"])


@pytest.mark.parametrize("mode", ["", "8", "rw", "0o660", "07777"])
def test_a_mode_is_octal(mode: str) -> None:
    with pytest.raises(ConfigError, match="unix_mode"):
        validate(load_text(f'unix_mode: "{mode}"\nproxies: {{default: }}\n'))
