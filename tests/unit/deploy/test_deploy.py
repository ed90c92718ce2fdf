"""The files of deploy/ say what they must, name what exists, and carry configurations that the daemon accepts."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import socket
import subprocess
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pixy import __version__
from pixy.cli import health
from pixy.cli.flags import parse
from pixy.cli.tap_flags import make_parser
from pixy.config import load_app, load_text, validate
from pixy.config.environment import PREFIX
from pixy.config.model import App
from pixy.errors import ConfigError
from tests.support import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "kafka-pixy"


def test_the_page_says_how_each_file_is_checked() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    named = {
        ROOT / each
        for each in re.findall(r"(?<= )deploy/[\w./-]+", text.partition("## Checking changed files")[2])
    }
    assert named == {
        DEPLOY / "container" / "Containerfile",
        DEPLOY / "compose" / "compose.yaml",
        DEPLOY / "systemd" / "kafka-pixy.service",
        CHART,
    }
    assert [each for each in named if not each.exists()] == []


class TestContainer:
    """deploy/container/Containerfile."""

    TEXT = (DEPLOY / "container" / "Containerfile").read_text()
    STEPS = [
        (step.split(None, 1)[0], step.split(None, 1)[1])
        for step in re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
        if step
    ]

    def test_every_instruction_is_known_and_images_have_versions(self) -> None:
        known = {
            "FROM",
            "WORKDIR",
            "COPY",
            "RUN",
            "LABEL",
            "ENV",
            "USER",
            "EXPOSE",
            "STOPSIGNAL",
            "HEALTHCHECK",
            "ENTRYPOINT",
        }
        assert {name for name, _ in self.STEPS} <= known
        for image in (rest.split()[0] for name, rest in self.STEPS if name == "FROM"):
            assert ":" in image and not image.endswith(":latest") and "/" not in image

    def test_the_last_stage_is_not_root_and_checks_its_health(self) -> None:
        last = [name for name, _ in self.STEPS][::-1].index("FROM")
        stage = dict(self.STEPS[-last:])
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage["USER"])
        assert stage["ENTRYPOINT"] == '["kafka-pixy"]'
        assert '["python", "-m", "pixy.cli.health"]' in stage["HEALTHCHECK"]
        assert "RUN" not in stage, "nothing is installed into the image that runs"
        assert "--require-hashes -r requirements.lock" in self.TEXT

    def test_what_the_build_needs_is_not_ignored_and_nothing_else_is_sent(self) -> None:
        lines = (ROOT / ".containerignore").read_text().split()
        assert lines[0] == "*" and (ROOT / ".dockerignore").resolve() == ROOT / ".containerignore"
        sent = [line[1:] for line in lines if line.startswith("!")]
        assert all((ROOT / name).exists() for name in sent)
        needed = {
            "pyproject.toml",
            "setup.cfg",
            "README.md",
            "LICENSE",
            "requirements.lock",
            "pixy",
            "actors",
            "config",
        }
        assert needed <= set(sent) and not any(fnmatch.fnmatch(".git", name) for name in sent)


def is_sent(path: str, lines: list[str]) -> bool:
    """Whether an engine sends a file to a build: of the lines that match it or a folder above it, the last one decides."""
    parts = path.split("/")
    above = ["/".join(parts[: at + 1]) for at in range(len(parts))]
    sent = True
    for line in lines:
        pattern = line.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatch(each, pattern) for each in above):
            sent = line.startswith("!")
    return sent


BUILT = [
    file
    for folder in ("deploy", "examples")
    for name in ("Containerfile", "Dockerfile")
    for file in sorted((ROOT / folder).rglob(name))
]


@pytest.mark.parametrize("file", BUILT, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_copied_into_an_image_is_sent_to_its_build(file: Path) -> None:
    ignore = file.with_name(f"{file.name}.dockerignore")
    lines = (ignore if ignore.exists() else ROOT / ".dockerignore").read_text().split()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text(), re.MULTILINE)
    sources = [each for line in copied for each in line.split()]
    assert sources
    for source in sources:
        path = "pixy/__init__.py" if source == "." else source.replace("*", "1")
        assert is_sent(path, lines), f"{file}: COPY {source} would find nothing"
    assert not is_sent(".git/config", lines) and not is_sent("tests/conftest.py", lines)


def test_there_are_images_to_look_at() -> None:
    assert len(BUILT) == 2


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, "http://127.0.0.1:19092/healthy"),
        ({"KAFKA_PIXY_TCP_ADDR": "0.0.0.0:80"}, "http://127.0.0.1:80/healthy"),
        ({"KAFKA_PIXY_TCP_ADDR": ":80"}, "http://127.0.0.1:80/healthy"),
        ({"KAFKA_PIXY_TCP_ADDR": "[::]:80"}, "http://[::1]:80/healthy"),
        (
            {"KAFKA_PIXY_TCP_ADDR": "10.0.0.1:80", "KAFKA_PIXY_TLS__CERTIFICATE_PATH": "c"},
            "https://10.0.0.1:80/healthy",
        ),
        ({"KAFKA_PIXY_TCP_ADDR": "", "KAFKA_PIXY_REST__ADDR": "0.0.0.0:81"}, "http://127.0.0.1:81/healthy"),
    ],
)
def test_the_health_check_asks_where_the_daemon_listens(variables: dict[str, str], wanted: str) -> None:
    assert health.url(load_app("", variables)) == wanted


def test_the_health_check_without_a_daemon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError):
        health.url(load_app("", {"KAFKA_PIXY_TCP_ADDR": ""}))
    monkeypatch.setenv("KAFKA_PIXY_TCP_ADDR", "127.0.0.1:1")
    assert health.main() == 1
    assert capsys.readouterr().err == "unhealthy: http://127.0.0.1:1/healthy: connection refused\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "service unavailable"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"", "remote end closed connection without response"),
    ],
)
def test_the_health_check_of_something_else_is_one_line(
    answer: bytes, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("KAFKA_PIXY_TCP_ADDR", address)
        assert health.main() == 1
    assert capsys.readouterr().err == f"unhealthy: http://{address}/healthy: {why}\n"


class TestCompose:
    """deploy/compose."""

    SERVICES: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]

    def test_ports_are_published_on_loopback_only(self) -> None:
        ports = [port for service in self.SERVICES.values() for port in service.get("ports", ())]
        assert len(ports) == 3 and all(port.startswith("127.0.0.1:") for port in ports)

    def test_the_daemon_accepts_its_command_and_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        service = self.SERVICES["kafka-pixy"]
        for name, value in service["environment"].items():
            assert name.startswith(PREFIX)
            monkeypatch.setenv(name, value)
        _, app = parse(service["command"])
        assert app.proxies["default"].kafka.seed_peers == ["tap:19093"] and app.tcp_addr == "0.0.0.0:19092"
        assert service["read_only"] and service["cap_drop"] == ["ALL"]

    def test_the_tap_accepts_its_command_and_prometheus_asks_it(self) -> None:
        program, *arguments = self.SERVICES["tap"]["command"]
        assert program == "tap" and make_parser().parse_args(arguments).metrics is not None
        scrapes = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
        assert scrapes[0]["static_configs"][0]["targets"] == ["tap:9464"]

    def test_what_is_depended_on_and_mounted_exists(self) -> None:
        for service in self.SERVICES.values():
            assert set(service.get("depends_on", ())) <= set(self.SERVICES)
            for volume in service.get("volumes", ()):
                assert (DEPLOY / "compose" / volume.split(":")[0]).exists()
        build = self.SERVICES["kafka-pixy"]["build"]
        assert (DEPLOY / "compose" / build["context"] / build["dockerfile"]).resolve().exists()


class TestSystemd:
    """deploy/systemd/kafka-pixy.service."""

    UNIT = DEPLOY / "systemd" / "kafka-pixy.service"

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="!!! systemd-analyze is missing !!!")
    def test_systemd_accepts_it_and_finds_little_exposed(self, tmp_path: Path) -> None:
        unit = tmp_path / self.UNIT.name
        unit.write_text(
            self.UNIT.read_text().replace(
                "/opt/kafka-pixy/bin/kafka-pixy", shutil.which("true") or "/bin/true"
            )
        )
        for arguments in (["verify"], ["security", "--offline=true", "--threshold=20"]):
            done = subprocess.run(
                ["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0 and "kafka-pixy.service:" not in done.stderr, (
                done.stdout + done.stderr
            )

    def test_it_reloads_and_has_a_folder_for_logs(self) -> None:
        """SIGHUP is the daemon's reload; ProtectSystem=strict leaves audit and access log no other folder."""
        lines = self.UNIT.read_text().splitlines()
        assert {"ExecReload=/bin/kill -HUP $MAINPID", "LogsDirectory=kafka-pixy"} <= set(lines)

    def test_the_daemon_accepts_its_command_lines(self, tmp_path: Path) -> None:
        (tmp_path / "kafka-pixy.yaml").write_text("")
        text = self.UNIT.read_text().replace("/etc/kafka-pixy", str(tmp_path))
        [start] = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
        _, app = parse(start.split())
        [stop] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert int(stop) > app.shutdown_timeout
        names = re.findall(r"^#?Environment=(KAFKA_PIXY_\w+)=%d/", text, re.MULTILINE)
        (tmp_path / "secret").write_text("x")
        assert names and load_app("", dict.fromkeys(names, str(tmp_path / "secret")))


class TestHelm:
    """deploy/helm/kafka-pixy: `helm template` where there is helm; without it, the parts that need none."""

    HELM = next(
        (
            each
            for each in (shutil.which("helm"), str(ROOT / "build" / "bin" / "helm"))
            if each and Path(each).exists()
        ),
        None,
    )

    def render(self, *values: str) -> list[dict[str, Any]]:
        if self.HELM is None:
            pytest.skip("!!! the chart is not rendered: helm is missing !!!")
        options = [option for value in values for option in ("--set-json", value)]
        done = subprocess.run(
            [self.HELM, "template", "r", str(CHART), "--namespace", "n", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ConfigError(done.stderr)
        return [each for each in yaml.safe_load_all(done.stdout) if each]

    def test_the_version_is_ours(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert chart["appVersion"] == __version__ and chart["version"] == re.sub(
            r"\.?((?:dev|a|b|rc)\d+)$", r"-\1", __version__
        )

    def test_braces_and_blocks_match_and_values_exist(self) -> None:
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        for file in (CHART / "templates").iterdir():
            text = file.read_text()
            assert text.count("{{") == text.count("}}"), file
            opened = len(re.findall(r"\{\{-? *(?:if|with|range|define)\b", text))
            assert opened == len(re.findall(r"\{\{-? *end\b", text)), file
            for name in re.findall(r"\.Values\.([\w.]+)", text):
                found: Any = values
                for part in name.split("."):
                    assert part in found, f"{file.name}: .Values.{name} has no default"
                    found = found[part]

    def test_the_schema_knows_the_values_and_the_keys_of_the_configuration(self) -> None:
        schema = json.loads((CHART / "values.schema.json").read_text())
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        jsonschema.validate(values, schema)
        # The last two come from a chart that depends on this one (`condition: kafka-pixy.enabled`).
        assert set(schema["properties"]) == {*values, "global", "enabled"}
        jsonschema.validate(values | {"global": {}, "enabled": True}, schema)
        assert set(schema["properties"]["config"]["properties"]) == {each.name for each in fields(App)}
        for wrong in ({"replicas": 3}, {"config": {"tcp_adr": ":1"}}, {"image": {"tagg": "x"}}):
            with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
                jsonschema.validate(wrong, schema)

    def test_a_misspelt_value_is_named(self) -> None:
        with pytest.raises(ConfigError, match="tcp_adr"):
            self.render("insecure=true", 'config={"tcp_adr": ":1"}')

    def test_it_serves_nobody_by_default(self) -> None:
        with pytest.raises(ConfigError, match="or insecure=true"):
            self.render()

    def test_the_rendered_configuration_is_accepted(self) -> None:
        documents = self.render("insecure=true", "replicaCount=2", 'config={"rest": {"gzip": true}}')
        kinds = {each["kind"]: each for each in documents}
        assert set(kinds) == {"ConfigMap", "Service", "Deployment", "PodDisruptionBudget"}
        app = validate(load_text(kinds["ConfigMap"]["data"]["kafka-pixy.yaml"]))
        assert app.rest.gzip and app.insecure and app.proxies["default"].kafka.seed_peers == ["kafka:9092"]
        assert "r-kafka-pixy.n.svc.cluster.local" in app.allowed_hosts
        pod = kinds["Deployment"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["image"] == f"kafka-pixy:{__version__}" and pod["securityContext"]["runAsNonRoot"]
        assert (
            container["securityContext"]["readOnlyRootFilesystem"] and not pod["automountServiceAccountToken"]
        )
        assert pod["terminationGracePeriodSeconds"] > app.shutdown_timeout
        ports = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]} == ports
        assert (
            kinds["Service"]["spec"]["selector"].items()
            <= kinds["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
        )

    def config(self, *values: str) -> dict[str, Any]:
        [found] = [each for each in self.render("insecure=true", *values) if each["kind"] == "ConfigMap"]
        text = found["data"]["kafka-pixy.yaml"]
        validate(load_text(text))
        return dict(yaml.safe_load(text))

    def test_brokers_are_those_of_the_default_cluster_whatever_else_is_set(self) -> None:
        peers = 'kafkaPeers=["k:1"]'
        one = self.config(peers, 'config={"proxies": {"one": {"consumer": {"disabled": true}}}}')
        assert one["proxies"] == {"one": {"consumer": {"disabled": True}, "kafka": {"seed_peers": ["k:1"]}}}
        own = self.config(peers, 'config={"proxies": {"one": {"kafka": {"seed_peers": ["own:1"]}}}}')
        assert own["proxies"] == {"one": {"kafka": {"seed_peers": ["own:1"]}}}
        both = '"proxies": {"a": {"kafka": {"seed_peers": ["a:1"]}}, "b": {}}'
        two = self.config(peers, f'config={{{both}, "default_cluster": "b"}}')
        assert {name: each["kafka"]["seed_peers"] for name, each in two["proxies"].items()} == {
            "a": ["a:1"],
            "b": ["k:1"],
        }
        with pytest.raises(ConfigError, match=r"set config\.default_cluster to one of a, b"):
            self.config(f"config={{{both}}}")

    def test_hosts_of_yours_are_added_to_those_of_the_service(self) -> None:
        hosts = self.config('config={"allowed_hosts": ["pixy.example.com"]}')["allowed_hosts"]
        assert hosts[0] == "r-kafka-pixy" and hosts[-1] == "pixy.example.com" and len(hosts) == 5

    @pytest.mark.parametrize(
        ("tls", "wanted"),
        [
            ("{}", {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}}),
            (
                '{"certificate_path": "/c", "key_path": "/k"}',
                {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTPS"}},
            ),
            (
                '{"certificate_path": "/c", "key_path": "/k", "client_ca_path": "/a"}',
                {"tcpSocket": {"port": "http"}},
            ),
        ],
    )
    def test_probes_ask_as_the_daemon_listens(self, tls: str, wanted: dict[str, Any]) -> None:
        documents = self.render("insecure=true", f'config={{"tls": {tls}}}')
        [pod] = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
        [container] = pod["containers"]
        probe = container["readinessProbe"]
        assert {name: probe[name] for name in wanted} == wanted and probe["periodSeconds"] == 5
        assert not {"httpGet", "tcpSocket"} - set(wanted) & set(probe)
        assert all(set(wanted) <= set(container[name]) for name in ("startupProbe", "livenessProbe"))

    def test_clusters_and_secrets_of_yours(self) -> None:
        documents = self.render(
            "insecure=true",
            'secretName="s"',
            'env=[{"name": "A", "value": "b"}]',
            'podAnnotations={"a": "b"}',
            'config={"proxies": {"one": {"kafka": {"seed_peers": ["k:1"]}}}}',
        )
        kinds = {each["kind"]: each for each in documents}
        assert list(yaml.safe_load(kinds["ConfigMap"]["data"]["kafka-pixy.yaml"])["proxies"]) == ["one"]
        pod = kinds["Deployment"]["spec"]["template"]
        assert (
            pod["spec"]["volumes"][1]["secret"]["secretName"] == "s"
            and pod["metadata"]["annotations"]["a"] == "b"
        )
        assert pod["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
