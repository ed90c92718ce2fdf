"""Rules: who may do what, and why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pixy.auth.patterns import EVERYTHING, AnyOf, compile_pattern
from pixy.auth.principal import ANONYMOUS, Principal
from pixy.auth.rules import Access, Rules
from pixy.cli.rules import run
from pixy.config.security import VERBS, Rule
from pixy.errors import ConfigError, Forbidden

APP = Principal("key:app")
OPS = Principal("jwt:olga", frozenset({"ops"}))


def rule(
    who: str = "key:app", verbs: str = "produce", topics: str = "orders", groups: str = "", **more: str
) -> Rule:
    return Rule(
        who=[who],
        verbs=verbs.split(),
        topics=topics.split(),
        groups=groups.split(),
        **{k: v.split() for k, v in more.items()},
    )  # type: ignore[arg-type]


def test_without_rules_everybody_may_do_everything_and_with_one_nobody_else_may_anything() -> None:
    assert Rules([], {}).allows(APP, Access("admin", "c", "t", "g"))
    rules = Rules([rule()], {})
    assert rules.allows(APP, Access("produce", "c", "orders"))
    assert not rules.allows(OPS, Access("produce", "c", "orders"))
    assert not rules.allows(APP, Access("produce", "c", "other"))
    with pytest.raises(Forbidden, match=r"^key:app may not consume topic orders as group g in cluster c$"):
        rules.check(APP, Access("consume", "c", "orders", "g"))


def test_a_refusal_turns_no_text_around() -> None:
    rules = Rules([rule()], {})
    with pytest.raises(Forbidden) as refused:
        rules.check(APP, Access("consume", "c", "b\u202e\x1b[31m", "g\n"))
    assert str(refused.value) == r"key:app may not consume topic b\u202e\u001b[31m as group g\n in cluster c"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "x", True),
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXeu", False),
        ("re:orders-[0-9]+", "orders-12", True),
        ("re:orders-[0-9]+", "orders-12x", False),
        ("re:a|b", "bx", False),
        ("Orders", "orders", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert Rules([rule(topics=pattern)], {}).allows(APP, Access("produce", "c", name)) is matches


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "*a", "re:(", "re:(?=a)"])
def test_a_wrong_pattern_names_its_rule(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"^rules\[1\]: bad pattern"):
        Rules([rule(), Rule(who=["key:a"], verbs=["produce"], topics=[pattern])], {})


@pytest.mark.parametrize(
    "wrong", [Rule(who=["key:a"]), Rule(verbs=["produce"]), Rule(who=["key:a"], verbs=["write"])]
)
def test_a_rule_needs_who_and_known_verbs(wrong: Rule) -> None:
    with pytest.raises(ConfigError, match=r"^rules\[0\]"):
        Rules([wrong], {})


def test_a_missing_list_of_topics_or_groups_allows_none_of_them() -> None:
    rules = Rules([Rule(who=["*"], verbs=["*"])], {})
    for verb in VERBS:
        assert rules.allows(APP, Access(verb, "c"))
        assert not rules.allows(APP, Access(verb, "c", topic="t"))
        assert not rules.allows(APP, Access(verb, "c", group="g"))


def test_one_rule_must_allow_all_of_an_access() -> None:
    rules = Rules(
        [rule(verbs="consume", topics="a", groups="x"), rule(verbs="consume", topics="b", groups="y")], {}
    )
    assert rules.allows(APP, Access("consume", "c", "a", "x"))
    assert not rules.allows(APP, Access("consume", "c", "a", "y"))


def test_groups_come_from_the_configuration_or_from_the_credential() -> None:
    groups = {"ops": ["key:app", "cert:*"]}
    rules = Rules([rule(who="group:ops")], groups)
    access = Access("produce", "c", "orders")
    for name, may in (("key:app", True), ("cert:any", True), ("key:application", False), ("jwt:app", False)):
        assert rules.allows(Principal(name), access) is may, name
    assert rules.allows(OPS, access)
    assert not rules.allows(Principal("jwt:x", frozenset({"operators"})), access)


def test_a_star_is_everybody_who_is_recognized_but_not_anonymous() -> None:
    access = Access("produce", "c", "orders")
    assert Rules([rule(who="*")], {}).allows(APP, access)
    assert not Rules([rule(who="*")], {}).allows(ANONYMOUS, access)
    assert not Rules([rule(who="anon*")], {}).allows(ANONYMOUS, access)
    assert Rules([rule(who="anonymous")], {}).allows(ANONYMOUS, access)
    assert not Rules([rule(who="anonymous")], {}).allows(APP, access)


def test_long_names_of_strangers_fill_neither_the_memory_nor_an_answer() -> None:
    rules = Rules([rule(topics="*", groups="*")], {})
    for number in range(100):
        long = str(number) * 10_000
        for access in (Access("produce", "c", long), Access("ack", long), Access("ack", "c", "t", long)):
            allowed = access.verb == "produce"
            assert rules.allows(APP, access) is allowed
            assert len(str(access)) < 600
    assert rules._decided == {}
    for number in range(100):
        assert not Rules([rule(clusters="d")], {}).knows_cluster(APP, str(number) * 10_000)
        assert rules.knows_cluster(APP, str(number) * 10_000)
    assert rules._known == {}


def test_what_is_remembered_of_clusters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixy.auth.rules._MAX_CACHED", 10)
    rules = Rules([rule(clusters="c1*")], {})
    for number in range(100):
        for _ in range(2):
            assert rules.knows_cluster(APP, f"c{number}") is str(number).startswith("1")
        assert len(rules._known) <= 10
    assert not rules.knows_cluster(Principal("jwt:x"), "c1")


names = st.sampled_from(["a", "ab", "b", "a*", "*"])
lists = st.lists(names, max_size=2)


@given(
    st.lists(st.tuples(lists, lists, lists, st.sampled_from(VERBS)), min_size=1, max_size=4),
    st.sampled_from(VERBS),
    st.sampled_from([None, "a", "ab", "c"]),
    st.sampled_from([None, "a", "ab", "c"]),
)
def test_a_decision_is_the_same_when_repeated_and_agrees_with_its_explanation(
    made: list[tuple[list[str], list[str], list[str], str]], verb: str, topic: str | None, group: str | None
) -> None:
    rules = Rules([Rule(["key:*"], [v], c, t, g) for c, t, g, v in made], {})
    access = Access(verb, "a", topic, group)
    allowed = rules.allows(APP, access)

    def fits(patterns: list[str], name: str | None) -> bool:
        return name is None or any(p in ("*", name) or (p == "a*" and name.startswith("a")) for p in patterns)

    assert allowed == any(
        v == verb and fits(c, "a") and fits(t, topic) and fits(g, group) for c, t, g, v in made
    )
    assert rules.allows(APP, access) is allowed
    assert rules.explain(APP, access)[0].startswith("allowed: " if allowed else "refused: ")


CONFIG = """
auth: {enabled: true, keys_file: unused, groups: {billing: ["key:invoices"]}}
rules:
  - {who: ["group:billing"], verbs: [consume, ack], topics: ["orders.*"], groups: [billing]}
  - {who: ["key:shop"], verbs: [produce], topics: [orders.eu]}
"""


def test_the_command_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)

    def explain(*args: str) -> tuple[int, str]:
        code = run(["explain", *args, "--config", str(file)])
        return code, capsys.readouterr().out

    assert explain("key:invoices", "consume", "topic=orders.eu,group=billing") == (
        0,
        "allowed: rules[0] lets key:invoices consume topic orders.eu as group billing in cluster default\n",
    )
    assert explain("key:shop", "produce", "topic=orders.us") == (
        1,
        "refused: no rule lets key:shop produce topic orders.us in cluster default\n"
        "  rules[0] does not match in `who`\n"
        "  rules[1] does not match in `topics`\n",
    )
    assert explain("jwt:x", "ack", "topic=orders.a,group=billing", "--groups", "billing")[0] == 0
    file.write_text("rules: [{who: [a], verbs: [b]}]")
    assert run(["explain", "key:a", "ack", "topic=t", "--config", str(file)]) == 2
    assert "rules need auth.enabled" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(["explain", "key:a", "ack", "orders", "--config", str(file)])


def test_a_name_that_is_not_unicode_matches_no_expression() -> None:
    """Bytes of a client that are not UTF-8; the answer was 500."""
    rules = Rules([Rule(who=["key:a"], verbs=["produce"], topics=["re:o.*", "p*"])], {})
    for topic, allowed in (("o\udcff", False), ("\ud800", False), ("p\udcff", True), ("oé", True)):
        assert rules.allows(Principal("key:a"), Access("produce", "default", topic)) is allowed


def test_a_thousand_names_are_decided_in_a_moment() -> None:
    """A request may name as many, and none of them may have been asked for before."""
    rules = Rules([rule(verbs="consume", topics=f"prefix{at}.*", groups="*") for at in range(20)], {})
    spent = []
    for turn in range(5):
        names = [Access("consume", "c", f"t{turn}.{at}", "g") for at in range(1000)]
        began = time.thread_time()
        assert not any(rules.allows(APP, each) for each in names)
        spent.append(time.thread_time() - began)
    assert min(spent) < 0.02, "seconds of processor on the event loop"


@given(
    st.lists(st.sampled_from(["*", "a", "ab*", "re:a+", "re:.*b", "b*"]), max_size=4),
    st.sampled_from(["", "a", "aa", "ab", "abc", "b", "cb", "*"]),
)
def test_several_patterns_match_what_one_of_them_matches(patterns: list[str], name: str) -> None:
    assert AnyOf(patterns)(name) is any(compile_pattern(each)(name) for each in patterns)


def test_an_expression_gives_no_right_to_all_names_at_once() -> None:
    """The admin listener asks for all of them; ``re:[^s].*`` hides some, and matched the ``*`` that stands for all."""
    every = Access("console", "c", EVERYTHING, EVERYTHING)
    for pattern in ("re:[^s].*", "re:.*", "o*", "o"):
        assert not Rules([rule(verbs="console", topics=pattern, groups=pattern)], {}).allows(APP, every)
    assert Rules([rule(verbs="console", topics="*", groups="*")], {}).allows(APP, every)
