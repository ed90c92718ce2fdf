"""Environment variables and files that set configuration keys, and what `kafka-pixy config` prints about them."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from hypothesis import given, strategies as st

from pixy.cli import config_commands
from pixy.cli.flags import make_parser, parse
from pixy.config import App, Proxy, load_app, load_text, validate
from pixy.config.durations import format_duration, parse_duration
from pixy.config.effective import as_yaml, rows
from pixy.config.environment import MAX_FILE_BYTES, OTHERS, PREFIX, apply
from pixy.config.load import Origins
from pixy.config.model import Duration
from pixy.config.secrets import MASK, sections
from pixy.errors import ConfigError
from pixy.kafka.brokers import bootstrap
from pixy.wire.connection import parse_address

SASL = "KAFKA_PIXY_PROXIES__DEFAULT__NET__SASL__"


def loaded(variables: dict[str, str], text: str = "", folder: Path | None = None) -> tuple[App, Origins]:
    origins: Origins = {}
    path = ""
    if folder is not None:
        path = str(folder / "pixy.yaml")
        Path(path).write_text(text)
    return load_app(path, variables, origins), origins


def problem(variables: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(load_app("", variables, {}))
    return str(caught.value)


def variable(key: str) -> str:
    return PREFIX + key.upper().replace(".", "__")


def leaves() -> list[tuple[str, Any, Any]]:
    """The path, type and default of every key."""
    app = App(proxies={"default": Proxy()})
    return [
        (
            f"{path}{field.name}",
            typing.get_type_hints(type(section))[field.name],
            getattr(section, field.name),
        )
        for section, path in sections(app)
        for field in dataclasses.fields(section)
        if not dataclasses.is_dataclass(getattr(section, field.name)) and field.name != "proxies"
    ]


NAMES = {each[0] for each in leaves()}
PLAIN = [each for each in leaves() if each[0].removesuffix("_file") not in NAMES - {each[0]}]
"""Without the keys whose value is a file to read."""


def other(kind: Any, default: Any) -> tuple[str, Any]:
    """A value that is not the default, as a variable's text and as the model has it."""
    if typing.get_origin(kind) is list and typing.get_args(kind)[0] is str:
        return "a:1, b:2", ["a:1", "b:2"]
    if typing.get_origin(kind) is dict and typing.get_origin(typing.get_args(kind)[1]) is list:
        return "{a: [b]}", {"a": ["b"]}
    if typing.get_origin(kind) is dict and dataclasses.is_dataclass(typing.get_args(kind)[1]):
        return "{a: {who: [b]}}", {"a": typing.get_args(kind)[1](who=["b"])}
    if typing.get_origin(kind) is list and not default:
        return "[{who: [b]}]", [typing.get_args(kind)[0](who=["b"])]
    if typing.get_origin(kind) in (list, dict):
        return ("[]", []) if typing.get_origin(kind) is list else ("{a: b}", {"a": "b"})
    if isinstance(default, bool):
        return ("false", False) if default else ("true", True)
    if kind is Duration:
        return "1h1s", 3601.0
    if isinstance(default, int | float):
        return "7", 7
    choices = {"version": "0.9.0.0", "compression": "gzip", "required_acks": "no_response", "workers": "auto"}
    text = next(
        (text for name, text in choices.items() if kind.__name__.lower().endswith(name.replace("_", ""))),
        "x1",
    )
    return text, text


@pytest.mark.parametrize(("key", "kind", "default"), PLAIN, ids=[each[0] for each in PLAIN])
def test_every_key_has_a_variable(key: str, kind: Any, default: Any) -> None:
    text, wanted = other(kind, default)
    app, origins = loaded({variable(key): text})
    section: Any = app
    for part in key.split("."):
        section = section[part] if isinstance(section, dict) else getattr(section, part)
    assert section == wanted and section != default
    assert origins == {key: f"${variable(key)}"}


def test_a_variable_overrides_the_file_and_a_flag_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pixy.yaml"
    file.write_text("grpc_addr: localhost:1\ntcp_addr: 127.0.0.1:1\nunix_addr: /c\n")
    monkeypatch.setenv("KAFKA_PIXY_CONFIG", str(file))
    monkeypatch.setenv("KAFKA_PIXY_TCP_ADDR", "127.0.0.1:2")
    monkeypatch.setenv("KAFKA_PIXY_UNIX_ADDR", "/d")
    origins: Origins = {}
    _, app = parse(["--unixAddr=/e", "--kafkaPeers=k:1"], origins)
    assert (app.grpc_addr, app.tcp_addr, app.unix_addr) == ("localhost:1", "127.0.0.1:2", "/e")
    assert origins == {
        "grpc_addr": f"{file}:1",
        "tcp_addr": "$KAFKA_PIXY_TCP_ADDR",
        "unix_addr": "--unixAddr",
        "proxies.default.kafka.seed_peers": "--kafkaPeers",
    }


def test_every_flag_is_an_origin(tmp_path: Path) -> None:
    values = {
        "grpcAddr": "127.0.0.1:1", "tcpAddr": "127.0.0.1:2", "unixAddr": "/x", "adminAddr": "127.0.0.1:3", "kafkaPeers": "k:1", "zookeeperPeers": "z:1/c",
        "logging": "[]", "caCertFile": "/x", "clientCertFile": "/x", "clientCertKeyFile": "/x", "insecure": "true", "insecureTLS": "true",
    }  # fmt: skip
    origins: Origins = {}
    parse([f"--{flag}={value}" for flag, value in values.items()], origins)
    assert set(origins.values()) == {f"--{flag}" for flag in values}
    assert (origins["insecure"], origins["proxies.default.kafka.insecure"]) == ("--insecure", "--insecureTLS")
    others = {"config", "pidFile", "tls", "sandbox", "waitForKafka"}
    assert {action.dest for action in make_parser()._actions} - {"help", "version"} == set(values) | others


def test_clusters_of_the_file_are_found_without_case_and_others_are_added(tmp_path: Path) -> None:
    text = "proxies:\n  Main-1.eu:\n    kafka: {seed_peers: [k:1]}\n"
    variables = {
        "KAFKA_PIXY_PROXIES__MAIN_1_EU__CONSUMER__MAX_RETRIES": "3",
        "KAFKA_PIXY_PROXIES__SECOND__KAFKA__SEED_PEERS": "k:2",
    }
    app, _ = loaded(variables, text, tmp_path)
    assert list(app.proxies) == ["Main-1.eu", "second"] and app.cluster_name("") == "Main-1.eu"
    assert app.proxies["Main-1.eu"].consumer.max_retries == 3
    assert app.proxies["Main-1.eu"].kafka.seed_peers == ["k:1"]
    assert load_app("", {"KAFKA_PIXY_PROXIES__ONE__KAFKA__SEED_PEERS": "k:2"}, {}).proxies.keys() == {"one"}


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        (
            "KAFKA_PIXY_REST__PREFX",
            "/x",
            "KAFKA_PIXY_REST__PREFX: unknown key rest.prefx (did you mean rest.prefix?)",
        ),
        ("KAFKA_PIXY_TCP_ADR", "x", "KAFKA_PIXY_TCP_ADR: unknown key tcp_adr (did you mean tcp_addr?)"),
        ("KAFKA_PIXY_REST__GZIP", "maybe", "KAFKA_PIXY_REST__GZIP: cannot unmarshal !!str `maybe` into bool"),
        ("KAFKA_PIXY_BODY_TIMEOUT", "5", "must be > 0"),
        ("KAFKA_PIXY_PROXIES__A", "x", "KAFKA_PIXY_PROXIES__A: proxies.a is a section: name a key in it"),
        ("KAFKA_PIXY_TCP_ADDR__X", "x", "tcp_addr has no keys below it"),
        ("KAFKA_PIXY_LOGGING", "[{name: x", "KAFKA_PIXY_LOGGING: not YAML"),
        (
            "KAFKA_PIXY_REST__PREFIX_FILE",
            "/no/such",
            "KAFKA_PIXY_REST__PREFIX_FILE: cannot read /no/such: no such file",
        ),
        (f"{SASL}PASSWORD_FILE", "/no/such", "proxies.default.net.sasl.password_file: cannot read /no/such"),
    ],
)
def test_problems(name: str, text: str, part: str) -> None:
    if name == "KAFKA_PIXY_BODY_TIMEOUT":
        text = "0s"
    assert part in problem({name: text})


def test_all_problems_are_listed() -> None:
    assert (
        len(
            problem(
                {"KAFKA_PIXY_REST__X": "", "KAFKA_PIXY_REST__Y": "", "KAFKA_PIXY_SHUTDOWN_TIMEOUT": "x"}
            ).splitlines()
        )
        == 4
    )


@pytest.mark.parametrize(
    "name",
    [
        "PORT",
        "SERVICE_HOST",
        "PORT_19092_TCP_ADDR",
        "SERVICE_PORT_REST",
        "SERVER",
        "PROFILE",
        "TLS",
        "JARS",
        "CONFIG",
    ],
)
def test_variables_of_kubernetes_and_of_client_commands_are_no_keys(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    text = str(tmp_path / "empty.yaml") if name == "CONFIG" else "tcp://10.0.0.1:19092"
    app, origins = loaded({PREFIX + name: text})
    assert origins == {} and dataclasses.asdict(app)["rest"] == dataclasses.asdict(App())["rest"]


@given(
    st.dictionaries(
        st.text("ABCKPRSTX_0", max_size=12).map(lambda text: PREFIX + text), st.text(max_size=20), max_size=3
    )
)
def test_any_variables_give_a_configuration_or_a_clear_error(variables: dict[str, str]) -> None:
    try:
        load_app("", variables, {})
    except ConfigError as error:
        assert any(name in str(error) for name in variables) or "config file" in str(error)


class TestSecrets:
    """Values from files, and what is shown of them."""

    def test_a_secret_is_read_from_the_file_that_a_key_names(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("hunter2\n")
        text = f"proxies: {{default: {{net: {{sasl: {{user: u, password_file: {secret}}}}}}}}}"
        app, origins = loaded({}, text, tmp_path)
        assert app.proxies["default"].net.sasl.password == "hunter2"
        assert origins["proxies.default.net.sasl.password"] == str(secret)
        assert "hunter2" not in as_yaml(app, origins) and MASK in as_yaml(app, origins)

    def test_any_variable_may_name_a_file_instead(self, tmp_path: Path) -> None:
        (tmp_path / "user").write_text("alice\r\n")
        app, origins = loaded({f"{SASL}USER_FILE": str(tmp_path / "user")})
        assert app.proxies["default"].net.sasl.user == "alice"
        assert origins == {"proxies.default.net.sasl.user": f"${SASL}USER_FILE"}

    def test_both_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("x")
        both = {f"{SASL}PASSWORD": "y", f"{SASL}PASSWORD_FILE": str(tmp_path / "x")}
        assert "are both set" in problem(both) and "y" not in problem(both).split("password")
        user = {f"{SASL}USER": "y", f"{SASL}USER_FILE": str(tmp_path / "x")}
        assert f"{SASL}USER is set, too" in problem(user)

    @pytest.mark.parametrize(
        ("data", "part"), [(b"x" * (MAX_FILE_BYTES + 1), "is longer than"), (b"\xff", "is not UTF-8")]
    )
    def test_a_file_that_is_no_secret(self, data: bytes, part: str, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(data)
        assert part in problem({f"{SASL}PASSWORD_FILE": str(tmp_path / "x")})

    def test_every_key_with_a_secret_name_is_masked(self) -> None:
        origins: Origins = {}
        for key, kind, _ in leaves():
            if kind is str and key.rpartition(".")[2] in ("password", "secret", "token", "api_key"):
                app = load_app("", {variable(key): "hunter2"}, origins)
                assert "hunter2" not in as_yaml(app, origins)

    def test_urls_show_no_password(self) -> None:
        app, origins = loaded({"KAFKA_PIXY_REST__PEERS__A": "http://me:hunter2@host:1"})
        assert "hunter2" not in as_yaml(app, origins) and "@host:1" in as_yaml(app, origins)

    @pytest.mark.parametrize(
        "url",
        [
            "https://me:hunter2/x@host:1/keys",
            "https://host:1/keys?v=1&access_token=hunter2",
            "http://host?KEY=hunter2",
        ],
    )
    def test_urls_show_no_password_with_a_slash_and_no_token(self, url: str) -> None:
        app, origins = loaded({"KAFKA_PIXY_AUTH__JWT__JWKS_URL": url})
        assert "hunter2" not in as_yaml(app, origins) and "host" in as_yaml(app, origins)

    def test_other_parts_of_urls_are_shown(self) -> None:
        app, origins = loaded({"KAFKA_PIXY_AUTH__JWT__JWKS_URL": "https://host:1/keys?p=policy&v=2"})
        assert "https://host:1/keys?p=policy&v=2" in as_yaml(app, origins)


class TestShow:
    def test_what_is_shown_is_a_configuration(self) -> None:
        app, origins = loaded(
            {"KAFKA_PIXY_PROXIES__A_B__CONSUMER__ACK_TIMEOUT": "90s", "KAFKA_PIXY_LOGGING": "[]"}
        )
        shown = as_yaml(app, origins)
        assert dataclasses.asdict(load_text(shown)) == dataclasses.asdict(app)
        app, origins = loaded(
            {
                "KAFKA_PIXY_LIMITS": "[{who: [key:a], burst: 90s}]",
                "KAFKA_PIXY_RULES": "[{who: [key:a], verbs: [consume]}]",
                "KAFKA_PIXY_AUTH__GROUPS": "{ops: [key:a]}",
            }
        )
        assert "burst: 1m30s" in as_yaml(app, origins)
        assert dataclasses.asdict(load_text(as_yaml(app, origins))) == dataclasses.asdict(app)

    def test_only_what_differs_is_shown_on_request(self) -> None:
        app, origins = loaded(
            {"KAFKA_PIXY_PROXIES__A_B__CONSUMER__ACK_TIMEOUT": "90s", "KAFKA_PIXY_LOGGING": "[]"}
        )
        changed = as_yaml(app, origins, changed=True)
        assert yaml.safe_load(changed) == {
            "proxies": {"a_b": {"consumer": {"ack_timeout": "1m30s"}}},
            "logging": [],
        }

    def test_every_key_is_shown_with_its_origin(self) -> None:
        app, origins = loaded({"KAFKA_PIXY_TCP_ADDR": "localhost:1"})
        found = {row.key: row.origin for row in rows(app, origins)}
        assert set(found) == {key for key, _, _ in leaves()}
        assert {origin for key, origin in found.items() if key != "tcp_addr"} == {"default"}

    @given(st.floats(-1e7, 1e7).map(lambda seconds: round(seconds, 9)))
    def test_durations_survive(self, seconds: float) -> None:
        assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9, rel=1e-15)


def test_the_password_of_an_identity_comes_from_a_file_and_is_masked(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("hunter2\n")
    users = "PROXIES__DEFAULT__IDENTITIES__USERS__BILLING__"
    app, origins = loaded(
        {f"{PREFIX}{users}WHO": "key:billing", f"{PREFIX}{users}PASSWORD_FILE": str(tmp_path / "p")},
        f"proxies: {{default: {{identities: {{users: {{shop: {{who: [a], password_file: {tmp_path / 'p'}}}}}}}}}}}",
        tmp_path,
    )
    made = app.proxies["default"].identities.users
    assert {name: each.password for name, each in made.items()} == {"shop": "hunter2", "billing": "hunter2"}
    shown = as_yaml(app, origins)
    assert "hunter2" not in shown and shown.count(f"password: '{MASK}'") == 2
    assert load_text(shown).proxies["default"].identities.users.keys() == made.keys()


class TestCommands:
    """`kafka-pixy config check|show|init`."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_a_file_that_is_not_named_with_config(self, capsys: pytest.CaptureFixture[str]) -> None:
        """`config init` takes the file so, and the flag is easily forgotten."""
        assert config_commands.main(["check", "/etc/k.yaml"]) == 2
        shown = (
            "kafka-pixy config: name the file with --config: kafka-pixy config check --config /etc/k.yaml\n"
        )
        assert capsys.readouterr().err == shown

    def test_a_valid_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("p.yaml").write_text("tcp_addr: localhost:1\n")
        assert config_commands.main(["check", "--config", "p.yaml", "--kafkaPeers=k:1"]) == 0
        assert capsys.readouterr() == ("p.yaml: valid; cluster default; 2 values set\n", "")
        assert config_commands.main(["check", "--config", "p.yaml", "--sandbox"]) == 0

    def test_a_wrong_file_names_every_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("p.yaml").write_text("tcp_adr: x\nrest:\n  gzip: 7\n")
        assert config_commands.main(["check", "--config=p.yaml"]) == 1
        out, err = capsys.readouterr()
        assert (
            out == "" and "line 1: unknown key tcp_adr (did you mean tcp_addr?)" in err and "line 3:" in err
        )
        assert len(err.splitlines()) == 2

    def test_check_says_that_grpc_cannot_ask_for_certificates_without_requiring_them(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ca = trustme.CA()
        issued = ca.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path("c")
        issued.private_key_pem.write_to_path("k")
        ca.cert_pem.write_to_path("a")
        Path("p.yaml").write_text(
            "tls: {certificate_path: c, key_path: k, client_ca_path: a, client_certificates: optional}\n"
            "auth: {enabled: true, certificates: true}\n"
        )
        assert config_commands.main(["check", "--config", "p.yaml"]) == 0
        _, note = capsys.readouterr().out.splitlines()
        assert note.startswith("note: tls.client_certificates: optional has no effect on gRPC")
        assert note.endswith("every gRPC call is refused")
        text = Path("p.yaml").read_text()
        without_grpc, hosted = text + "grpc_addr: ''\n", text + "server: {front: envoy}\n"
        for other in (text.replace("optional", "required"), without_grpc, hosted):
            Path("p.yaml").write_text(other)
            assert config_commands.main(["check", "--config", "p.yaml"]) == 0
            assert "note:" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        "args", [[], ["chek"], ["check", "--confg=x"], ["show", "--json=1"], ["init", "a", "b"]]
    )
    def test_a_wrong_command_line(self, args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert config_commands.main(args) == 2
        assert capsys.readouterr().out == ""

    def test_show(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert config_commands.main(["show", "--tcpAddr=localhost:1", "--changed"]) == 0
        assert capsys.readouterr().out.split() == ["tcp_addr:", "localhost:1", "#", "--tcpAddr"]
        assert config_commands.main(["show", "--json", "--changed", "--tcpAddr=localhost:1"]) == 0
        assert json.loads(capsys.readouterr().out) == [
            {"key": "tcp_addr", "value": "localhost:1", "origin": "--tcpAddr"}
        ]

    def test_init_writes_a_file_that_changes_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert config_commands.main(["init"]) == 0
        text = Path("kafka-pixy.yaml").read_text()
        shown = load_text(text)
        shown.proxies["default"].client_id = "x"
        assert dataclasses.asdict(shown) == dataclasses.asdict(App(proxies={"default": Proxy(client_id="x")}))
        assert yaml.safe_load(text).keys() >= {"proxies", "rest", "tls"} and "tcp_addr" not in yaml.safe_load(
            text
        )
        capsys.readouterr()
        assert config_commands.main(["init"]) == 1
        assert capsys.readouterr().err == "kafka-pixy config: kafka-pixy.yaml exists; --force replaces it\n"
        assert config_commands.main(["init", "--force"]) == 0

    def test_without_its_marks_the_file_is_the_documented_one(self) -> None:
        from pixy.config import default_text

        marked = config_commands.template().partition("\n\n")[2].splitlines()
        bare = [
            line.replace("#", "", 1)
            if line.lstrip()[:2] not in ("", "# ") and line.lstrip()[0] == "#"
            else line
            for line in marked
        ]
        assert bare == default_text().splitlines()


def test_the_programs_own_variables_do_not_keep_the_daemon_from_starting() -> None:
    """What pixy/ reads and docs/shell.md names is no key, however much it resembles one (PROFILES, proxies)."""
    root = Path(__file__).parents[3]
    quoted = re.compile(r'"(KAFKA_PIXY_[A-Z_]*[A-Z])"')
    read = {name for each in (root / "pixy").rglob("*.py") for name in quoted.findall(each.read_text())}
    named = set(re.findall(r"`(KAFKA_PIXY_[A-Z_]+)`", (root / "docs/shell.md").read_text()))
    assert {"KAFKA_PIXY_PROFILES", "KAFKA_PIXY_JARS"} <= read | named
    assert read | named <= OTHERS
    apply(App(), dict.fromkeys(OTHERS, "x"), {})


@pytest.mark.parametrize("version", ["latest", "4", "2.13-3.9.0"])
def test_the_version_in_the_environment_is_checked(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", version)
    shown = f"kafka.version from \\$KAFKA_VERSION: bad kafka version, {version}"
    with pytest.raises(ConfigError, match=shown):
        validate(load_app(""))


def test_the_version_in_the_environment_is_an_origin() -> None:
    origins: Origins = {}
    app = load_app("", {"KAFKA_VERSION": App(proxies={"x": Proxy()}).proxies["x"].kafka.version}, origins)
    assert validate(app) and origins == {"proxies.default.kafka.version": "$KAFKA_VERSION"}


@pytest.mark.parametrize(
    "peer",
    ["k:9092/", "::1", "k:90920", "k:0", "k:", ":9092", "k:x", "a b:1", "[::1", "http://", "k:99999999999"],
)
def test_a_seed_broker_that_is_no_address(peer: str) -> None:
    app = App(proxies={"default": Proxy()})
    app.proxies["default"].kafka.seed_peers = ["a:1", peer]
    with pytest.raises(
        ConfigError, match=r"kafka\.seed_peers .* is not host:port, such as kafka1:9092"
    ) as caught:
        validate(app)
    assert repr(peer) in str(caught.value)


@pytest.mark.parametrize(
    "peers",
    [["k:1"], ["k"], ["[::1]:9092"], ["[::1]"], [" k:1 ", ""], ["PLAINTEXT://k:1"], ["a_b.c-d:1,e:2"]],
)
def test_seed_brokers_that_are_addresses(peers: list[str]) -> None:
    """Whatever is valid is an address for the admin's requests, too."""
    app = App(proxies={"default": Proxy()})
    app.proxies["default"].kafka.seed_peers = peers
    validate(app)
    assert all(parse_address(each) for each in bootstrap({"bootstrap.servers": ",".join(peers)}))


def test_config_check_names_a_seed_broker_that_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_commands.main(["check", "--kafkaPeers", "a:1,b:99999"]) == 1
    assert "'b:99999' is not host:port" in capsys.readouterr().err
