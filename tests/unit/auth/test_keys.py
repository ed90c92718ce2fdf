"""API keys: their file, their look-up, and the command that makes them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from pixy.auth.keys import Keys, StoredKey, digest_of, load_keys, make_key
from pixy.cli.keys import run
from pixy.errors import ConfigError, Unauthenticated

HASH = digest_of("kp_x")


def test_a_key_is_found_by_its_text_alone() -> None:
    key, stored = make_key("app", groups=["ops", "dev"])
    assert key.startswith("kp_") and len(key) == 46
    assert key[3:] not in stored.line()
    found = Keys(stored.line()).find(key, now=0.0)
    assert found.name == "key:app"
    assert found.groups == {"ops", "dev"}


def test_two_keys_of_one_name_are_valid_at_the_same_time() -> None:
    made = [make_key("app"), make_key("app")]
    keys = Keys("\n".join(stored.line() for _, stored in made))
    assert {keys.find(key, 0.0).name for key, _ in made} == {"key:app"}


@pytest.mark.parametrize(
    "wrong", ["", "kp_", "kp_y", "kp_x ", HASH, f"sha256:{HASH}", "kp_" + "x" * 1_000_000, "\udcff"]
)
def test_anything_else_is_no_key(wrong: str) -> None:
    with pytest.raises(Unauthenticated, match="the API key is not known"):
        Keys(f"app sha256:{HASH}").find(wrong, 0.0)


def test_a_key_ends_at_its_time_and_not_before() -> None:
    keys = Keys(f"app sha256:{HASH} expires=2001-09-09T01:46:40Z")
    assert keys.find("kp_x", 999_999_999.9).name == "key:app"
    with pytest.raises(Unauthenticated, match="has expired"):
        keys.find("kp_x", 1_000_000_000.0)


def test_a_name_must_fit_if_the_client_sends_one() -> None:
    keys = Keys(f"app sha256:{HASH}")
    assert keys.find("kp_x", 0.0, "app").name == "key:app"
    with pytest.raises(Unauthenticated):
        keys.find("kp_x", 0.0, "other")


@pytest.mark.parametrize(
    "line",
    [
        "app",
        f"app {HASH}",
        f"app sha256:{HASH[1:]}",
        f"a,b sha256:{HASH}",
        f"app sha256:{HASH} expires=soon",
        f"app sha256:{HASH} groups=",
        f"app sha256:{HASH} secret",
    ],
)
def test_a_wrong_line_is_named_by_its_number_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Keys(f"# keys\n\n{line}")
    assert str(caught.value).startswith("line 3: ")
    assert HASH[:8] not in str(caught.value) and "secret" not in str(caught.value)


def test_a_line_is_read_as_it_was_written() -> None:
    stored = StoredKey("app", HASH, 1_800_000_000.0, frozenset({"b", "a"}))
    assert Keys(stored.line()).stored == [stored]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"auth\.keys_file: .*no such file"):
        load_keys(str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_keys(str(tmp_path / "bytes"))


def test_the_command_makes_lists_and_removes_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys"
    assert run(["new", "app", "--file", str(file), "--groups", "ops"]) == 0
    key = capsys.readouterr().out.strip()
    assert load_keys(str(file)).find(key, 0.0).groups == {"ops"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key not in file.read_text()
    file.write_text(file.read_text().rstrip("\n"))  # as some editors leave it
    assert run(["new", "app", "--file", str(file), "--expires", "90d"]) == 0
    assert run(["new", "other", "--file", str(file)]) == 0
    assert [each.name for each in load_keys(str(file)).stored] == ["app", "app", "other"]
    capsys.readouterr()
    assert run(["remove", "app", "--file", str(file), "--hash", digest_of(key)[:12]]) == 0
    with pytest.raises(Unauthenticated):
        load_keys(str(file)).find(key, 0.0)
    assert run(["list", "--file", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "key:app" in shown and "expires 20" in shown and "key:other" in shown
    assert not Keys(file.read_text()).blank
    for name in ("app", "other"):
        assert run(["remove", name, "--file", str(file)]) == 0
    assert not load_keys(str(file)).stored and not load_keys(str(file)).blank, "a daemon must believe it"
    assert run(["remove", "nobody", "--file", str(file)]) == 1
    assert "has no such key of nobody" in capsys.readouterr().err


def test_a_key_is_removed_from_the_file_that_a_link_names(tmp_path: Path) -> None:
    """The link became a file, and the daemon went on with the one that it reads."""
    file, link = tmp_path / "keys", tmp_path / "link"
    file.write_text(f"app sha256:{HASH}\nother sha256:{HASH[::-1]}\n")
    link.symlink_to("keys")
    assert run(["remove", "app", "--file", str(link)]) == 0
    assert link.is_symlink() and file.read_text() == f"other sha256:{HASH[::-1]}\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["keys", "link"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_file_of_keys_keeps_its_owner(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root's new file could not be read by the daemon, whose keys stayed as they were."""
    file, owned, line = tmp_path / "keys", [], f"app sha256:{HASH}\n"
    file.write_text(line)
    file.chmod(0o640)

    def chown(path: Path, user: int, group: int) -> None:
        if not allowed:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        assert Path(path) != file and Path(path).read_text() == "# no keys\n"
        owned.append((user, group))

    monkeypatch.setattr(os, "chown", chown)
    assert run(["remove", "app", "--file", str(file)]) == (0 if allowed else 1)
    assert owned == [(os.getuid(), file.stat().st_gid)] * allowed and list(tmp_path.iterdir()) == [file]
    assert file.read_text() == ("# no keys\n" if allowed else line)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    err = capsys.readouterr().err
    assert allowed or err == (
        f"kafka-pixy keys: {file}: nothing is removed: the new file cannot have the owner of the old one: "
        "operation not permitted: run this as its owner, or as root\n"
    )


@pytest.mark.parametrize("argument", ["0d", "-1h", "soon", "1e99d", "nand"])
def test_a_wrong_lifetime_is_a_wrong_command_line(tmp_path: Path, argument: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["new", "app", "--file", str(tmp_path / "k"), f"--expires={argument}"])
    assert ended.value.code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="!!! there is no /dev/full !!!")
def test_a_key_that_nobody_has_seen_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its hash stood in the file, and nobody could say whose it was."""
    path = tmp_path / "keys"
    out = open("/dev/full", "w")  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", out)
    assert run(["new", "app", "--file", str(path)]) == 1
    with contextlib.suppress(OSError):
        out.close()
    assert path.read_text() == ""
    assert capsys.readouterr().err == (
        "kafka-pixy keys: the key could not be shown, so it was not added: standard output: no space left on device\n"
    )
