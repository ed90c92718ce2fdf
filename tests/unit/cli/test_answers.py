"""What the shell makes of a daemon's answers: exit code, and the whole of standard output and error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from pixy.cli.main import main
from pixy.cli.shell.errors import CallError, of_call
from pixy.proto import kafkapixy_pb2 as pb
from tests.in_process import run_in_process
from tests.unit.cli.answers import NOT_FOUND, Shell

TOPIC = pb.GetTopicMetadataRs(partitions=[pb.PartitionMetadata(partition=0)])
TOPICS = pb.ListTopicRs(topics={"orders": pb.GetTopicMetadataRs()})
STATUS = pb.GetStatusRs(
    version="1", clusters=[pb.ClusterStatus(cluster="eu", brokers=[1]), pb.ClusterStatus(cluster="us", error="down")]
)  # fmt: skip
HEADINGS = "partition  begin  end  count  offset  lag  metadata  sparse_acks\n"
NOTHING = (
    "offset -: nothing is committed, so the group begins there as a new one would: consumer.initial_offset of the daemon "
    "says where\n"
)
BEGINS = "offset begin: the group begins at the oldest message\n"


def log(partition: int, offset: int, begin: int = 10, end: int = 40) -> Any:
    return pb.PartitionOffset(
        partition=partition, begin=begin, end=end, count=end - begin, offset=offset, lag=end - max(offset, begin)
    )  # fmt: skip


# -- consumers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_consumers_of_a_topic_that_does_not_exist(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API's answer is the original's: nobody consumes it."""
    nobody = pb.ListConsumersRs()
    shell = Shell(monkeypatch, {"ListConsumers": nobody, "GetTopicMetadata": NOT_FOUND, "ListTopics": TOPICS})
    assert shell.run("consumers", "odrers", "--output", form) == (
        1, "", "kafka-pixy consumers: NOT_FOUND: topic 'odrers' does not exist; did you mean 'orders'?\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    "known", [TOPIC, CallError(grpc.StatusCode.PERMISSION_DENIED, "you may not"), CallError(grpc.StatusCode.INTERNAL, "")]
)  # fmt: skip
def test_a_topic_that_nobody_consumes_or_may_look_at(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch, {"ListConsumers": pb.ListConsumersRs(), "GetTopicMetadata": known})
    table = "group  client  partitions\n"
    assert shell.run("consumers", "orders") == (0, table, "nobody consumes topic orders\n")
    assert shell.run("consumers", "orders", "-g", "g") == (
        0,
        table,
        "nobody consumes topic orders as group g\n",
    )
    assert shell.run("consumers", "orders", "--json") == (0, "{}\n", "")


def test_a_topic_with_consumers_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    group = pb.ConsumerGroups(consumers={"c": pb.ConsumerPartitions(partitions=[0, 1])})
    shell = Shell(monkeypatch, {"ListConsumers": pb.ListConsumersRs(groups={"g": group})})
    assert shell.run("consumers", "orders") == (
        0,
        "group  client  partitions\ng      c       0,1\n",
        "",
    )
    assert shell.asked == ["ListConsumers"]


# -- status -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_status_of_a_cluster_that_does_not_exist(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch, {"GetStatus": STATUS})
    assert shell.run("status", "--cluster", "nope", "--output", form) == (
        1,
        "",
        "kafka-pixy status: cluster 'nope' does not exist; the daemon has eu, us\n",
    )


@pytest.mark.parametrize(("cluster", "names", "code"), [("", ["eu", "us"], 1), ("eu", ["eu"], 0), ("us", ["us"], 1)])  # fmt: skip
def test_the_status_of_one_cluster(
    cluster: str, names: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is that cluster's, too."""
    shell = Shell(monkeypatch, {"GetStatus": STATUS})
    found, out, err = shell.run("status", "--json", "--cluster", cluster)
    assert (found, list(json.loads(out)["clusters"]), err) == (code, names, "")


# -- offsets ----------------------------------------------------------------------------------------


def test_nothing_committed_is_a_dash_and_a_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pb.GetOffsetsRs(offsets=[log(0, 12), log(1, -1), log(2, -2)])
    shell = Shell(monkeypatch, {"GetOffsets": found})
    assert shell.run("offsets", "orders", "-g", "g") == (
        0,
        HEADINGS
        + "        0     10   40     30      12   28\n"
        + "        1     10   40     30       -    -\n"
        + "        2     10   40     30   begin   30\n",
        NOTHING + BEGINS,
    )
    code, out, err = shell.run("offsets", "orders", "-g", "g", "--json")
    assert (code, [each["offset"] for each in json.loads(out)], err) == (0, [12, -1, -2], "")


def test_a_group_s_description_has_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pb.DescribeGroupRs(
        group="g", state="Empty", topics=[pb.GroupTopicOffsets(topic="orders", offsets=[log(0, -2)])]
    )
    shell = Shell(monkeypatch, {"DescribeGroup": found})
    assert shell.run("group", "describe", "g") == (
        0,
        "group g: Empty, 0 members, lag 30\n"
        "topic   partition  begin  end  offset  lag  client\n"
        "orders          0     10   40   begin   30       -\n",
        BEGINS,
    )
    code, out, err = shell.run("group", "describe", "g", "--json")
    assert (code, json.loads(out)["offsets"][0]["offset"], err) == (0, -2, "")


def test_an_offset_beyond_the_end_does_not_lower_the_lag_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pb.GroupTopicOffsets(topic="orders", offsets=[log(0, 10), log(1, 65)])
    found = pb.DescribeGroupRs(group="g", state="Empty", topics=[topic])
    shell = Shell(monkeypatch, {"DescribeGroup": found})
    assert shell.run("group", "describe", "g") == (
        0,
        "group g: Empty, 0 members, lag 30\n"
        "topic   partition  begin  end  offset  lag  client\n"
        "orders          0     10   40      10   30       -\n"
        "orders          1     10   40      65  -25       -\n",
        "",
    )


def test_numbers_need_no_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch, {"GetOffsets": pb.GetOffsetsRs(offsets=[log(0, 12)])})
    assert shell.run("offsets", "orders", "-g", "g")[2] == ""


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (99, "partition 0: 99 is after the end (40) of the log\n"),
        (3, "partition 0: 3 is before the beginning (10) of the log\n"),
        (40, ""),
        (10, ""),
        ("end", ""),
        (-2, ""),
    ],
)
def test_an_offset_that_was_set_beyond_the_log_is_said(
    offset: int | str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was set without a word, as typed; a reset keeps it within the log."""
    shown = 40 if isinstance(offset, str) else max(offset, 10)
    found = pb.GetOffsetsRs(offsets=[log(0, shown)])
    shell = Shell(monkeypatch, {"GetOffsets": found, "SetOffsets": pb.SetOffsetsRs()})
    code, _, err = shell.run("offsets", "orders", "-g", "g", "--set", f"0={offset}")
    assert (code, err) == (0, said) and "SetOffsets" in shell.asked


# -- group reset ------------------------------------------------------------------------------------

RESET = ("group", "reset", "g", "orders")


def test_a_place_that_a_group_cannot_go_to_names_all_that_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = Group(monkeypatch, log(0, 20)).shell.run(*RESET, "--to", "nonsense")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("kafka-pixy group: --to nonsense: begin, end, an offset, a time such as 2026-"), err


class Group:
    """A group's offsets, and those that were set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *offsets: Any) -> None:
        self.set: dict[int, int] = {}
        found = pb.GetOffsetsRs(offsets=offsets)
        at = pb.FindOffsetsRs(
            offsets=[pb.PartitionOffset(partition=each.partition, offset=41) for each in offsets]
        )
        self.shell = Shell(
            monkeypatch,
            {"GetTopicMetadata": TOPIC, "GetOffsets": found, "SetOffsets": self._set, "FindOffsets": at},
        )  # fmt: skip

    def _set(self, request: Any) -> Any:
        self.set = {each.partition: each.offset for each in request.offsets}
        return pb.SetOffsetsRs()


@pytest.mark.parametrize(
    ("args", "to", "said"),
    [
        (("--to", "99"), 40, "partition 0: 99 is after the end of the log: {} to 40\n"),
        (("--to", "3"), 10, "partition 0: 3 is before the beginning of the log: {} to 10\n"),
        (("--shift", "-50"), 10, "partition 0: -30 is before the beginning of the log: {} to 10\n"),
        (("--shift", "50"), 40, "partition 0: 70 is after the end of the log: {} to 40\n"),
        (("--to", "40"), 40, ""),
        (("--to", "end"), 40, ""),
        (("--to", "now"), 41, ""),  # a message came in between
    ],
)
def test_an_offset_beyond_the_log_is_said(
    args: tuple[str, ...], to: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(monkeypatch, log(0, 20))
    table = f"partition  from  to  lag\n        0    20  {to}  {40 - to:>3}\n"
    dry = "nothing was set (--dry-run)\n"
    assert group.shell.run(*RESET, *args, "--dry-run") == (0, table, said.format("would be set") + dry)
    assert group.set == {}
    assert group.shell.run(*RESET, *args) == (0, table, said.format("set"))
    assert group.set == {0: to}
    code, out, err = group.shell.run(*RESET, *args, "--json")
    assert (code, json.loads(out), err) == (
        0, [{"partition": 0, "from": 20, "to": to, "lag": 40 - to}], said.format("set")
    )  # fmt: skip


def test_many_partitions_are_not_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(monkeypatch, *(log(number, 20) for number in range(7)))
    lines = group.shell.run(*RESET, "--to", "99")[2].splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"partition {number}" for number in range(5)),
        "2 more partitions, too",
    ]


def test_where_a_reset_comes_from_is_a_word_too(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(monkeypatch, log(0, -1), log(1, -2))
    assert group.shell.run(*RESET, "--to", "end") == (
        0, "partition   from  to  lag\n        0      -  40    0\n        1  begin  40    0\n", ""
    )  # fmt: skip
    rows = json.loads(group.shell.run(*RESET, "--to", "end", "--json")[1])
    assert [each["from"] for each in rows] == [None, None]


# -- produce ----------------------------------------------------------------------------------------


def test_an_empty_delimiter_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch, {})
    assert shell.run("produce", "orders", "-K", "", stdin="a\n") == (
        2,
        "",
        "kafka-pixy produce: -K: the delimiter is empty: give one character or more, such as -K :\n",
    )


@pytest.mark.parametrize(
    ("given", "stdin", "shown"),
    [
        (["--skip", "5"], "a\nb\nc\n", "--skip 5: the input has only 3 messages, so nothing was written"),
        (["--skip", "5", "-m", "x"], "", "--skip 5: the input has only 1 message, so nothing was written"),
        (["--skip", "1", "--json"], "", "--skip 1: the input has only 0 messages, so nothing was written"),
    ],
)
def test_a_skip_beyond_the_input_is_a_failure(
    given: list[str], stdin: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(monkeypatch, {})
    assert shell.run("produce", "orders", *given, stdin=stdin) == (1, "", f"kafka-pixy produce: {shown}\n")
    assert shell.asked == []


def test_a_skip_of_the_whole_input_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch, {})
    assert shell.run("produce", "orders", "--skip", "2", stdin="a\nb\n") == (
        0,
        "",
        "0 messages written to orders\n",
    )


def test_a_wrong_command_line_has_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stopped nothing; what was written before, and where to go on, is said."""
    refused = "kafka-pixy produce: --async takes neither partitions nor timestamps nor tombstones"
    shell = Shell(monkeypatch, {"Produce": pb.ProdRs(partition=-1, offset=-1)})
    assert shell.run("produce", "orders", "--async", "-p", "0", "-m", "x") == (2, "", f"{refused}\n")
    lines = '{"value": "a"}\n{"value": "b", "partition": 0}\n'
    line = ("produce", "orders", "--async", "--json-lines", "--in-flight", "1")
    assert shell.run(*line, stdin=lines) == (
        2, "", f"{refused}; stopped: 1 message written to orders; go on with --skip 1\n"
    )  # fmt: skip


def test_a_single_message_has_nothing_to_go_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 5)")
    for args in (("-m", "x"), ("-k", "k", "--tombstone")):
        shell = Shell(monkeypatch, {"Produce": refused, "ProduceMany": refused})
        code, _, err = shell.run("produce", "orders", *args)
        assert code == 1 and "--skip" not in err and "0 messages written to orders" in err, err


def test_a_refused_connection_has_written_nothing() -> None:
    """No daemon: the real connection, to a port on which nobody listens."""
    done = run_in_process(lambda: main(["produce", "orders", "-m", "x", "--server", "127.0.0.1:1"]))
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        "kafka-pixy produce: UNAVAILABLE: no daemon answers at 127.0.0.1:1: connection refused; start one "
        "(kafka-pixy --sandbox), or name another with --server or KAFKA_PIXY_SERVER\n",
    )


def test_a_first_message_that_is_too_large_has_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones had it; without it nobody knows that the rest of the input was not tried."""
    refused = CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 5)")
    shell = Shell(monkeypatch, {"ProduceMany": refused})
    code, _, err = shell.run("produce", "orders", stdin="a\nb\n")
    assert code == 1 and "message 1 has " in err and err.endswith(
        "; stopped: 0 messages written to orders; go on with --skip 0\n"
    )  # fmt: skip


# -- profiles ---------------------------------------------------------------------------------------


def test_a_format_goes_before_the_output_of_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has given --output. Who does, contradicts himself."""
    (tmp_path / "p.yaml").write_text("default: {output: json}\n")
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(tmp_path / "p.yaml"))
    offsets = pb.FindOffsetsRs(offsets=[pb.PartitionOffset(partition=0, offset=0)])
    shell = Shell(monkeypatch, {"GetTopicMetadata": pb.GetTopicMetadataRs(), "FindOffsets": offsets})
    assert shell.run("consume", "foo", "--until-end", "--format", "%s") == (0, "", "")
    code, _, said = shell.run("consume", "foo", "--until-end", "--format", "%s", "--json")
    assert (code, "--format and --output" in said) == (2, True)


def test_a_cluster_that_is_not_there_says_where_the_others_stand() -> None:
    """The daemon's text is the original's, which calls it a proxy."""

    class Refused:
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.INVALID_ARGUMENT

        def details(self) -> str:
            return "proxy `nope` does not exist"

    assert str(of_call(Refused(), "d:1", "Produce")) == (
        "INVALID_ARGUMENT: proxy `nope` does not exist; kafka-pixy status shows the clusters that --cluster can name"
    )
