"""``kafka-pixy rules explain`` reads what the daemon reads: files of secrets and environment variables as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.cli.main import main
from tests.in_process import run_in_process

CONFIG = """\
auth: {enabled: true, peer_uid: true}
rules: [{who: ["uid:1"], verbs: [produce], topics: [orders]}]
rest: {node_id: a, peers: {b: "http://b:1"}, peer_secret_file: SECRET}
"""


def test_files_of_secrets_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("SECRET", str(tmp_path / "secret")))
    explain = ["rules", "explain", "uid:1", "produce", "topic=orders", "--config", str(tmp_path / "c.yaml")]
    done = run_in_process(lambda: main(explain))
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(b"allowed: rules[0] lets"), (
        done
    )


def test_variables_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("auth: {enabled: true}\n")
    monkeypatch.setenv("KAFKA_PIXY_AUTH__PEER_UID", "true")
    monkeypatch.setenv("KAFKA_PIXY_DEFAULT_CLUSTER", "eu")
    monkeypatch.setenv("KAFKA_PIXY_PROXIES__EU__KAFKA__SEED_PEERS", "k:1")
    explain = ["rules", "explain", "uid:1", "produce", "topic=t", "--config", str(tmp_path / "c.yaml")]
    done = run_in_process(lambda: main(explain))
    assert done.stdout == b"allowed: there are no rules, so uid:1 may produce topic t in cluster eu\n", done


def test_a_principal_without_its_kind_is_nobody(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("auth: {enabled: true, peer_uid: true}\n")
    for principal, said in (("shop", True), ("key:shop", False), ("anonymous", False)):
        explain = ["rules", "explain", principal, "produce", "topic=t", "--config", str(tmp_path / "c.yaml")]
        done = run_in_process(lambda explain=explain: main(explain))
        assert (b"a principal begins with its kind, as in key:shop" in done.stderr) is said, done


def test_a_cluster_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The rules said what may be done in it."""
    (tmp_path / "c.yaml").write_text("proxies: {eu: {kafka: {seed_peers: ['k:1']}}}\n")
    for cluster, code in (("nope", 2), ("eu", 0)):
        explain = ["rules", "explain", "uid:1", "produce", f"cluster={cluster},topic=t", "--config"]
        done = run_in_process(lambda line=explain: main([*line, str(tmp_path / "c.yaml")]))
        assert done.returncode == code, done
        if code:
            text = f"kafka-pixy rules: cluster 'nope' is not in {tmp_path}/c.yaml: it has eu\n"
            assert (done.stdout, done.stderr.decode()) == (b"", text)
