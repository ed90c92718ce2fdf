"""The configuration: defaults, texts, flags, generated names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from pixy.cli.flags import parse
from pixy.config import App, Proxy, load_file, load_text, validate
from pixy.config.client_id import VALID, make_client_id
from pixy.config.durations import parse_duration
from pixy.config.notes import notes_of
from pixy.errors import ConfigError

DEFAULT_YAML = Path(__file__).resolve().parents[3] / "config" / "default.yaml"


AUDITED = "proxies: {a: {journal: {topic: j}}}\nauth: {enabled: true, keys_file: x}\n"


def identities(
    user: str, *, name: str = "x", more: str = "max: 2", auth: str = "true", sasl: str = "true"
) -> str:
    return (
        f"proxies: {{a: {{net: {{sasl: {{enable: {sasl}}}}}, identities: {{users: {{{name}: {{{user}}}}}, {more}}}}}}}\n"
        f"auth: {{enabled: {auth}, keys_file: x}}\n"
    )


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(load_text(text))
    return str(caught.value)


def test_the_shipped_file_equals_the_defaults() -> None:
    shipped = load_file(str(DEFAULT_YAML))
    defaults = App(proxies={"default": Proxy()})
    defaults.proxies["default"].client_id = shipped.proxies["default"].client_id
    assert dataclasses.asdict(shipped) == dataclasses.asdict(defaults)


def test_the_shipped_file_names_every_key() -> None:
    """In its own section: another section's key of the same name does not count."""
    shipped = yaml.safe_load(DEFAULT_YAML.read_text())
    shipped["proxies"]["default"]["client_id"] = "generated"  # in a comment: its default differs everywhere

    def missing(section: object, document: dict[str, Any], path: str) -> list[str]:
        found = []
        for field in dataclasses.fields(section):  # type: ignore[arg-type]
            value = getattr(section, field.name)
            if field.name not in document:
                found.append(path + field.name)
            elif dataclasses.is_dataclass(value):
                found += missing(value, document[field.name], f"{path}{field.name}.")
        return found

    assert missing(App(), shipped, "") == []
    assert missing(Proxy(), shipped["proxies"]["default"], "proxies.default.") == []


def test_each_cluster_keeps_its_own_defaults() -> None:
    app = load_text(
        "proxies:\n  one:\n    consumer: {max_retries: 3}\n  two:\n    producer: {retry_max: 9}\n"
    )
    assert app.proxies["one"].consumer.max_retries == 3
    assert app.proxies["two"].consumer.max_retries == -1
    assert (app.proxies["one"].producer.retry_max, app.proxies["two"].producer.retry_max) == (6, 9)
    assert app.cluster_name("") == "one"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5m", 300),
        ("1h15m30.5s", 4530.5),
        ("0", 0),
        ("-1.5h", -5400),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("100ns", 1e-7),
        (".5s", 0.5),
        ("+2s", 2),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1s2", "--1s", "1 s", "Kaboom!"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        ("", "classic"),
        ("membership: kafka-next", "consumer"),
        ("group_protocol: consumer", "consumer"),
        ("membership: zookeeper", "classic"),  # of REST consumer instances, which are members in Kafka
    ],
)
def test_the_protocol_of_members_in_kafka(text: str, protocol: str) -> None:
    app = validate(load_text(f"proxies: {{a: {{consumer: {{{text}}}}}}}"))
    assert app.proxies["a"].consumer.kafka_protocol == protocol


def test_zookeeper_is_not_checked_where_it_is_not_used() -> None:
    validate(load_text("proxies: {a: {zoo_keeper: {seed_peers: [], chroot: x, session_timeout: 0}}}"))


def test_a_bare_integer_is_nanoseconds() -> None:
    app = load_text("proxies:\n  a:\n    consumer:\n      ack_timeout: 1500000000\n")
    assert app.proxies["a"].consumer.ack_timeout == 1.5


def test_a_bad_value_names_its_line() -> None:
    text = "proxies:\n  a:\n    consumer:\n      ack_timeout: Kaboom!\n"
    assert problem(text) == (
        "failed to parse config: yaml: unmarshal errors:\n"
        "  line 4: cannot unmarshal !!str `Kaboom!` into time.Duration"
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("prxies: {}", "line 1: unknown key prxies (did you mean proxies?)"),
        ("proxies: {a: {consumer: {foo: 1}}}", "unknown key proxies.a.consumer.foo"),
        ("proxies: {a: {kafka: {version: 1.x}}}", "bad kafka version, 1.x"),
        ("proxies: {a: {producer: {compression: zip}}}", "bad compression, zip"),
        ("proxies: {a: {producer: {required_acks: some}}}", "bad compression, some"),
        ("proxies: {a: {producer: {retry_max: many}}}", "cannot unmarshal !!str `many` into int"),
        ("proxies: {a: {kafka: {seed_peers: x}}}", "cannot unmarshal !!str `x` into []string"),
        ("proxies: {a: {kafka: {tls: 7}}}", "cannot unmarshal !!int `7` into bool"),
        ("a: [", "yaml: line"),
        ("- 1", "cannot unmarshal !!seq into config.App"),
        ("grpc_addr: a:1\ngrpc_addr: b:1", "stands twice"),
        ("", "at least on proxy must be configured"),
        ('proxies: {a: }\ngrpc_addr: ""\ntcp_addr: ""', "at least one API server should be configured"),
        ("proxies: {a: {client_id: 'a b'}}", "client_id 'a b' must match"),
        ("proxies: {a: }\ndefault_cluster: b", "default_cluster b is not among the proxies"),
        (
            "proxies: {a: {producer: {channel_buffer_size: 0}}}",
            "invalid config, cluster=a: invalid config parameter: producer.channel_buffer_size must be > 0",
        ),
        ("proxies: {a: {producer: {flush_bytes: -1}}}", "producer.flush_bytes must be >= 0"),
        ("proxies: {a: {producer: {retry_backoff: 0}}}", "producer.retry_backoff must be > 0"),
        ("proxies: {a: {producer: {retry_max: 0}}}", "producer.retry_max must be > 0"),
        ("proxies: {a: {producer: {shutdown_timeout: -1s}}}", "producer.shutdown_timeout must be >= 0"),
        (
            "proxies: {a: {producer: {partitioner: best}}}",
            'producer.partitioner is invalid: "bad partitioner: best"',
        ),
        ("proxies: {a: {consumer: {ack_timeout: 0}}}", "consumer.ack_timeout must be > 0"),
        ("proxies: {a: {consumer: {fetch_max_bytes: 0}}}", "consumer.fetch_bytes must be > 0"),
        ("proxies: {a: {consumer: {max_retries: -2}}}", "consumer.max_retries must be >= -1"),
        ("proxies: {a: {consumer: {subscription_timeout: 0}}}", "consumer.subscription_timeout must be > 0"),
        (
            "proxies: {a: {consumer: {membership: etcd}}}",
            'consumer.membership is invalid: "bad membership: etcd"',
        ),
        (
            "proxies: {a: {consumer: {membership: zookeeper}, zoo_keeper: {seed_peers: ['']}}}",
            "zoo_keeper.seed_peers must name at least one node",
        ),
        (
            "proxies: {a: {consumer: {membership: zookeeper}, zoo_keeper: {chroot: kafka}}}",
            "zoo_keeper.chroot 'kafka' must be a path such as /kafka",
        ),
        (
            "proxies: {a: {consumer: {membership: zookeeper}, zoo_keeper: {session_timeout: 15}}}",
            "zoo_keeper.session_timeout must be >= 1",
        ),
        (
            "proxies: {a: {consumer: {membership: zookeeper}, client_id: ..}}",
            "client_id '..' cannot be a name in ZooKeeper",
        ),
        ("proxies: {a: {journal: {topic: 'a b'}}}", "journal.topic 'a b' is not a name that Kafka allows"),
        ("proxies: {a: {journal: {batch_events: 0}}}", "journal.batch_events must be > 0"),
        ("proxies: {a: {journal: {batch_events: 10001}}}", "journal.batch_events must be <= 10000"),
        (
            "proxies: {a: {journal: {buffer_events: 999}}}",
            "journal.buffer_events must be >= journal.batch_events",
        ),
        ("proxies: {a: {net: {read_timeout: 10m}}}", "net.read_timeout must be <= 5m"),
        ("proxies: {a: {net: {dial_timeout: 2562047h}}}", "net.dial_timeout must be <= 596h31m23s"),
        (
            "proxies: {a: {producer: {max_message_bytes: 1000000001}}}",
            "producer.max_message_bytes must be <= 1000000000",
        ),
        (
            "proxies: {a: {consumer: {prefetch_max_bytes: 2147482625}}}",
            "consumer.prefetch_max_bytes must be <= 2147482624",
        ),
        (
            "proxies: {a: {consumer: {max_groups: 9223372036854775808}}}",
            "cannot unmarshal !!int `9223372036854775808` into int",
        ),
        (
            "proxies: {a: {consumer: {ack_timeout: 2562048h}}}",
            "cannot unmarshal !!str `2562048h` into time.Duration",
        ),
        ("proxies: {a: {journal: {linger: 5ms}}}", "journal.linger must be >= 0.01"),
        ("proxies: {a: {journal: {compression: zip}}}", "bad compression, zip"),
        (
            "proxies: {a: {kafka: {tls: true, ca_certificate_file: /none}}}",
            'invalid tls configuration: "kafka.ca_cert_file: open /none: no such file or directory"',
        ),
        (
            f"proxies: {{a: {{kafka: {{tls: true, ca_certificate_file: {__file__}}}}}}}",
            "kafka.ca_cert_file does not appear to be a valid CA certificate",
        ),
        (
            f"proxies: {{a: {{kafka: {{tls: true, client_certificate_file: {__file__}}}}}}}",
            "kafka.client_cert_file and kafka.client_cert_key_file are not a valid certificate pair",
        ),
        ("proxies: {a: }\ntls: {key_path: x}", "must be set together"),
        (identities("who: [a]"), "identities.users.x needs password or password_file"),
        (identities("password: p"), "identities.users.x.who names nobody"),
        (identities("who: [a], password: p", name="a.b"), "identities.users 'a.b' must be 1 to 64 letters"),
        (identities("who: [a], password: p", auth="false"), "identities need auth.enabled"),
        (identities("who: [a], password: p", sasl="false"), "identities need net.sasl.enable"),
        (
            identities("who: [a], password: p", more="others: x"),
            "identities.others must be one of own, refuse",
        ),
        (
            identities("who: [a], password: p", more="idle_timeout: 59s"),
            "identities.idle_timeout must be >= 60",
        ),
        (
            identities("who: [a], password: p") + "rest: {max_fetch_timeout: 10m}",
            "identities.idle_timeout must be longer than rest.max_fetch_timeout",
        ),
        ("proxies: {a: {identities: {others: refuse}}}", "identities.others: refuse needs identities.users"),
        (AUDITED + "audit: {topic: a/b}", "audit.topic 'a/b' is not a name that Kafka allows"),
        (AUDITED + "audit: {topic: b, cluster: c}", "audit.cluster c is not among the proxies"),
        (AUDITED + "audit: {topic: j}", "audit.topic must be another topic than journal.topic"),
        (AUDITED + "audit: {cluster: a}", "audit.cluster needs audit.topic"),
        (AUDITED + "audit: {topic: b, delivery_timeout: 10ms}", "audit.delivery_timeout must be >= 1"),
        ("proxies: {a: }\naudit: {topic: b}", "audit need auth.enabled"),
        ("proxies: {a: }\naccess_log: {sample: 2}", "access_log.sample must be <= 1"),
        ("proxies: {a: }\nlogging: [{name: console, severity: loud}]", "severity 'loud'"),
    ],
)
def test_problems(text: str, part: str) -> None:
    assert part in problem(text)


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ("timeout: -1, retry_max: 0, flush_bytes: -1", "producer.flush_bytes must be >= 0"),
        ("max_message_bytes: 1, timeout: -1s", "producer.timeout must be >= 0"),
    ],
)
def test_the_first_problem_in_the_originals_order(fields: str, first: str) -> None:
    assert first in problem(f"proxies: {{a: {{producer: {{{fields}}}}}}}")


@given(st.text(max_size=60))
def test_any_text_is_a_configuration_or_a_clear_error(text: str) -> None:
    try:
        validate(load_text(text))
    except ConfigError as error:
        assert str(error)


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize("style", ["=", " "])
def test_a_flag_beats_the_file(tmp_path: Path, dashes: str, style: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("insecure: true\ngrpc_addr: file:1\ntcp_addr: file:2\nproxies: {one: , two: }\n")

    def flag(name: str, value: str) -> list[str]:
        return [f"{dashes}{name}={value}"] if style == "=" else [f"{dashes}{name}", value]

    _, app = parse(
        [
            *flag("config", str(file)),
            *flag("grpcAddr", "flag:1"),
            *flag("unixAddr", "/x.sock"),
            *flag("kafkaPeers", "a:1, b:2"),
            *flag("zookeeperPeers", "z:1,y:2/root"),
            *flag("tcpAddr", ""),
            f"{dashes}tls",
            f"{dashes}insecureTLS=true",
        ]
    )
    assert (app.grpc_addr, app.tcp_addr, app.unix_addr) == ("flag:1", "file:2", "/x.sock")
    one, two = app.proxies["one"], app.proxies["two"]
    assert one.kafka.seed_peers == ["a:1", "b:2"] and two.kafka.seed_peers == ["localhost:9092"]
    assert (one.zoo_keeper.seed_peers, one.zoo_keeper.chroot) == (["z:1", "y:2"], "/root")
    assert (one.kafka.tls, one.kafka.insecure, two.kafka.tls) == (True, True, False)


def test_loggers_on_the_command_line_beat_the_file() -> None:
    _, app = parse(['--logging=[{"name":"json","severity":"error"}]'])
    assert [(made.name, made.severity) for made in app.logging] == [("json", "error")]


@pytest.mark.parametrize("args", [["--nope"], ["-tls=perhaps"], ["--config"], ["stray"]])
def test_bad_command_lines(args: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"bad command line|unknown command .stray."):
        parse(args)


@pytest.mark.parametrize(
    ("env", "host", "cgroup", "expected"),
    [
        ({"NOMAD_ALLOC_ID": "ab12-34", "NOMAD_ALLOC_INDEX": "2"}, "h", "", "kp_nomad_ab12_2"),
        ({"NOMAD_ALLOC_ID": "ab12-34"}, "h", "", "kp_nomad_ab12"),
        ({}, "h.x", "12:cpu:/docker/" + "0a" * 32, "kp_h.x_0a0a0a0a0a0a"),
        ({}, "h", "/var/lib/docker/containers/" + "1b" * 32 + "/hostname", "kp_h_1b1b1b1b1b1b"),
        ({}, "my host(1)", "", "kp_my_host_1__77"),
    ],
)
def test_client_ids(env: dict[str, str], host: str, cgroup: str, expected: str) -> None:
    assert make_client_id(env, host, 77, cgroup) == expected


@given(st.text(max_size=30))
def test_any_host_makes_a_valid_client_id(host: str) -> None:
    assert VALID.match(make_client_id({}, host, 1, ""))


def test_the_environment_changes_the_default_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", "0.10.2.1")
    assert load_text("proxies: {a: }").proxies["a"].kafka.version == "0.10.2.1"


@pytest.mark.parametrize("text", ["", "tcp_addr: 127.0.0.1:8080\n", "logging: [{name: console}]\n"])
def test_a_file_may_leave_out_the_clusters(tmp_path: Path, text: str) -> None:
    """One that names only what differs from the defaults has the default cluster, and flags apply to it."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    _, app = parse(["--config", str(file), "--kafkaPeers", "a:1,b:2"])
    assert {name: proxy.kafka.seed_peers for name, proxy in app.proxies.items()} == {
        "default": ["a:1", "b:2"]
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rules: [{who: ['*'], verbs: ['*']}]", "rules need auth.enabled: without it nobody is recognized"),
        ("auth: {enabled: true}", "nobody would be recognized"),
        ("auth: {enabled: true, basic: true, peer_uid: true}", "auth.basic needs auth.keys_file"),
        ("auth: {enabled: true, anonymous: true}", "auth.anonymous needs rules"),
        (
            "auth: {enabled: true, peer_uid: true, certificate_name: x}",
            "auth.certificate_name must be one of",
        ),
        ("auth: {enabled: true, jwt: {jwks_file: f}}", "auth.jwt needs issuer and audience"),
        ("auth: {enabled: true, jwt: {jwks_file: f, jwks_url: u}}", "either jwks_file or jwks_url"),
        (
            "auth: {enabled: true, jwt: {jwks_file: f, issuer: i, audience: a, algorithms: [HS256]}}",
            "auth.jwt.algorithms must be among",
        ),
        (
            "auth: {enabled: true, jwt: {jwks_file: f, issuer: i, audience: a, algorithms: [none]}}",
            "auth.jwt.algorithms must be among",
        ),
        (
            "auth: {enabled: true, jwt: {jwks_url: 'http://host/k', issuer: i, audience: a}}",
            "auth.jwt.jwks_url must begin with https://",
        ),
    ],
)
def test_a_set_up_of_auth_that_protects_nothing_is_refused(text: str, wanted: str) -> None:
    assert wanted in problem("proxies: {default: {}}\n" + text)


@pytest.mark.parametrize("url", ["https://host/keys", "http://localhost:1/keys", "http://[::1]/keys"])
def test_the_keys_of_tokens_come_over_tls_or_from_this_machine(url: str) -> None:
    text = f"proxies: {{default: {{}}}}\nauth: {{enabled: true, jwt: {{jwks_url: '{url}', issuer: i, audience: a}}}}"
    assert validate(load_text(text)).auth.jwt.jwks_url == url


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("consumer: {}", "line 1: unknown key consumer (it stands at proxies.<cluster>.consumer)"),
        ("ack_timeout: 5s", "unknown key ack_timeout (it stands at proxies.<cluster>.consumer.ack_timeout)"),
        ("proxies: {a: {required_acks: x}}", "(it stands at proxies.<cluster>.producer.required_acks)"),
        ("proxies: {a: {tcp_addr: x}}", "unknown key proxies.a.tcp_addr (it stands at tcp_addr)"),
    ],
)
def test_a_key_in_the_wrong_section_is_shown_its_place(text: str, part: str) -> None:
    """The pages name keys of clusters without ``proxies.<cluster>``."""
    assert part in problem(text)


def test_a_text_that_ends_too_early_says_so() -> None:
    assert problem("foo: [").endswith("expected the node content, but found the end of the file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("proxies: [1", "line 1: expected ',' or ']', but got the end of the file"),
        ("proxies: {\na: 1\n\n", "line 3: expected ',' or '}', but got the end of the file"),
        ("%foo\n", "line 1: expected '<document start>', but found the end of the file"),
        ("a: [1\nb: c", "line 2: expected ',' or ']', but got ':'"),
        ("a: &", "line 1: expected alphabetic or numeric character, but found the end of the file"),
        ("a: &\n", "line 1: expected alphabetic or numeric character, but found the end of the line"),
        ("%YAML 1'2", "line 1: expected a digit or '.', but found \"'\""),
        ("a:\n\tb: 1", "line 2: found character '\\t' that cannot start any token"),
        ("a: &hunter2 1\nb: &hunter2 2", "line 2: an anchor that stands twice"),
        ("a: 1\n---\nb: 2", "line 2: found a second document"),
        ("a: 1\nb: \x07", "line 2: special characters are not allowed"),
    ],
)
def test_an_error_of_yaml_says_what_was_expected_and_where(text: str, words: str) -> None:
    """Its own tokens were taken for quotations from the file, and left out; a file of one line had a second one."""
    assert problem(text) == f"failed to parse config: yaml: {words}"


def test_durations_that_are_hardly_meant_are_noted() -> None:
    def notes(text: str) -> list[str]:
        return notes_of(validate(load_text(f"proxies: {{eu: {{}}}}\n{text}")))

    assert notes("") == [] and notes("reload_interval: 0") == [] and notes("reload_interval: 5ms") == []
    assert notes_of(load_text("proxies: {eu: {consumer: {ack_timeout: 5}}}")) == [
        "proxies.eu.consumer.ack_timeout is 5ns: a number without a unit is nanoseconds; write 5s or 500ms"
    ]
    assert len(notes("body_timeout: 15000")) == 1


def test_keys_without_effect_are_noted() -> None:
    def notes(text: str) -> list[str]:
        return notes_of(validate(load_text(f"proxies: {{eu: {{}}}}\n{text}")))

    (note,) = notes("admin_actions: true")
    assert note.startswith("admin_actions: true has no effect without admin_addr")
    assert notes("admin_actions: true\nadmin_addr: 127.0.0.1:19093") == []
    (note,) = notes("tracing: {export: {endpoint: 'http://collector:4318'}}")
    assert note.startswith("tracing.export.endpoint http://collector:4318 does not end with /v1/traces")
    for path in ("/v1/traces", "/otlp/v1/traces/", "/v1/traces?team=a"):
        assert notes(f"tracing: {{export: {{endpoint: 'http://collector:4318{path}'}}}}") == []
