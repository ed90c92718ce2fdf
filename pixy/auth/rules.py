"""Decide what a principal may do. Pure.

A rule says who may do which verbs on which clusters, topics and groups. What no rule allows is refused, once there is
a rule; without any, everybody who is recognized may do everything. The rules are additive: their order does not
matter, and none takes a right away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pixy.auth.patterns import AnyOf, Who
from pixy.auth.principal import Principal
from pixy.config.security import VERBS, Rule
from pixy.errors import ConfigError, Forbidden
from pixy.escaping import escaped

_MAX_CACHED: Final = 10_000
MAX_NAME: Final = 255
"""Characters of a name that are shown and remembered; Kafka's topics have 249 at most."""


class Access(NamedTuple):
    """Something that a caller wants to do.

    Attributes:
        verb: one of :data:`pixy.config.security.VERBS`.
        cluster: the configured name.
        topic: None: no certain one; then any topic of a rule will do.
        group: None: no certain one.
    """

    verb: str
    cluster: str
    topic: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        """Format it for the text of a refusal, which does not repeat long names."""
        topic = f" topic {self.topic[:MAX_NAME]}" if self.topic is not None else ""
        group = f" as group {self.group[:MAX_NAME]}" if self.group is not None else ""
        return f"{self.verb}{topic}{group} in cluster {self.cluster[:MAX_NAME]}"

    @property
    def longest(self) -> int:
        """The length of the longest name."""
        return max(len(self.cluster), len(self.topic or ""), len(self.group or ""))


class _Compiled:
    def __init__(self, number: int, rule: Rule, groups: Mapping[str, Sequence[str]]) -> None:
        where = f"rules[{number}]"
        if not rule.who or not rule.verbs:
            raise ConfigError(f"{where} must name who and verbs")
        for verb in rule.verbs:
            if verb not in VERBS and verb != "*":
                raise ConfigError(f"{where}.verbs: {verb!r} is not one of *, {', '.join(VERBS)}")
        self.name = where
        self.verbs = frozenset(VERBS if "*" in rule.verbs else rule.verbs)
        try:
            self.who = Who(rule.who, groups)
            self.clusters, self.topics, self.groups = map(AnyOf, (rule.clusters, rule.topics, rule.groups))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def fits(self, principal: Principal, verb: str, cluster: str) -> bool:
        """Return whether the rule allows a principal this verb in a cluster, for some topics and groups at least."""
        return verb in self.verbs and self.who(principal) and self.clusters(cluster)

    def misses(self, principal: Principal, access: Access) -> str:
        """Say what part of this rule does not allow the access; empty: all parts do."""
        checks: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("who", lambda: self.who(principal)),
            ("verbs", lambda: access.verb in self.verbs),
            ("clusters", lambda: self.clusters(access.cluster)),
            ("topics", lambda: access.topic is None or self.topics(access.topic)),
            ("groups", lambda: access.group is None or self.groups(access.group)),
        )
        return next((part for part, holds in checks if not holds()), "")


class Rules:
    """All rules.

    Args:
        rules: the section ``rules`` of the configuration.
        groups: ``auth.groups``.

    Raises:
        ConfigError: a rule is wrong; the text names it.
    """

    def __init__(self, rules: Sequence[Rule], groups: Mapping[str, Sequence[str]]) -> None:
        self._fitting: dict[tuple[Principal, str, str], list[_Compiled]] = {}
        """The rules for a principal, a verb and a cluster."""
        self._rules = [_Compiled(number, rule, groups) for number, rule in enumerate(rules)]
        self._decided: dict[tuple[Principal, Access], bool] = {}
        self._known: dict[tuple[Principal, str], bool] = {}
        """True if a principal may do anything in a cluster."""

    def __bool__(self) -> bool:
        """Return whether there are any rules."""
        return bool(self._rules)

    def allows(self, principal: Principal, access: Access) -> bool:
        """Return whether a principal may do something."""
        if not self._rules:
            return True
        decided = self._decided.get((principal, access))
        if decided is None:
            decided = self._decide(principal, access)
            if access.longest > MAX_NAME:
                return decided  # no name that Kafka has; thousands of them would fill the memory
            if len(self._decided) >= _MAX_CACHED:
                self._decided.clear()
            self._decided[principal, access] = decided
        return decided

    def _decide(self, principal: Principal, access: Access) -> bool:
        # A request may name a thousand topics: each is asked for in few rules, and by few calls.
        of = (principal, access.verb, access.cluster)
        fitting = self._fitting.get(of)
        if fitting is None:
            fitting = [rule for rule in self._rules if rule.fits(*of)]
            if len(access.cluster) <= MAX_NAME:
                if len(self._fitting) >= _MAX_CACHED:
                    self._fitting.clear()
                self._fitting[of] = fitting
        topic, group = access.topic, access.group
        return any(
            (topic is None or rule.topics(topic)) and (group is None or rule.groups(group))
            for rule in fitting
        )

    def check(self, principal: Principal, access: Access) -> None:
        """Raise Forbidden unless a principal may do something."""
        if not self.allows(principal, access):
            raise Forbidden(escaped(f"{principal.name} may not {access}"))

    def knows_cluster(self, principal: Principal, cluster: str) -> bool:
        """Return whether a principal may do anything in a cluster, and so may hear whether it exists."""
        known = self._known.get((principal, cluster))
        if known is None:
            known = any(self.allows(principal, Access(verb, cluster)) for verb in VERBS)
            if len(cluster) <= MAX_NAME:
                if len(self._known) >= _MAX_CACHED:
                    self._known.clear()
                self._known[principal, cluster] = known
        return known

    def explain(self, principal: Principal, access: Access) -> list[str]:
        """Say in lines why a principal may or may not do something."""
        if not self._rules:
            return [f"allowed: there are no rules, so {principal.name} may {access}"]
        found = [(rule, rule.misses(principal, access)) for rule in self._rules]
        for rule, missed in found:
            if not missed:
                return [f"allowed: {rule.name} lets {principal.name} {access}"]
        lines = [f"refused: no rule lets {principal.name} {access}"]
        return lines + [f"  {rule.name} does not match in `{missed}`" for rule, missed in found]


__all__ = ["MAX_NAME", "Access", "Rules"]
