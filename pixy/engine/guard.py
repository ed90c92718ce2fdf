"""The engine's entrance when ``auth`` is on: the one place that decides what a caller may do.

Every transport gets its clusters from :meth:`pixy.engine.engine.Engine.cluster`, which returns a
:class:`~pixy.engine.guarded.GuardedCluster` then. Each of its methods says what it is about to do
(:meth:`Guard.begin`) before it hands the call on. Without a caller in the context nothing is allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final

from pixy.auth.audit import UNKNOWN, AuditLog
from pixy.auth.authenticator import Authenticator
from pixy.auth.limits import Limiter
from pixy.auth.principal import Caller, Principal, current
from pixy.auth.rules import MAX_NAME, Access, Rules
from pixy.config.model import App
from pixy.engine.instances.owned import OwnedInstances
from pixy.engine.operation import Operation
from pixy.engine.unanswered import Unanswered
from pixy.errors import (
    ConfigError,
    Forbidden,
    InvalidParameter,
    Limited,
    PixyError,
    StartError,
    Unauthenticated,
)
from pixy.escaping import escaped
from pixy.kafka import settings
from pixy.kafka.line_producer import LineProducer

LONGEST: Final = 32_767
"""Characters of a name. Strings in Kafka's requests are no longer; a longer name is refused before patterns and limits look at it."""


class Guard:
    """Recognizes callers and decides what they may do.

    Args:
        config: the whole configuration, with ``auth`` enabled.

    Raises:
        ConfigError: a file or a rule is wrong.
    """

    def __init__(self, config: App) -> None:
        self._config = config
        self.authenticator = Authenticator(config.auth)
        self.rules = Rules(config.rules, config.auth.groups)
        self.audit = AuditLog(config.audit, _topic_of(config)) if config.audit.enabled else None
        audited = config.audit.topic
        self._internal = (config.cluster_name(config.audit.cluster), audited) if audited else None
        self.limiter = Limiter(config.limits, config.auth.groups, config.max_concurrent_requests)
        self.owned = OwnedInstances()
        self.unanswered = Unanswered()

    def reload(self, config: App) -> None:
        """Use other rules, limits and groups from now on. What callers have used up counts on, also where their limits change.

        A file that is empty or half written is a valid configuration without ``auth``, rules and limits, and would let
        everybody do everything.

        Raises:
            ConfigError: one of them is wrong, or the last rule, the last limit or ``auth.enabled`` is gone; all stay as they were.
        """
        auth, earlier = config.auth, self._config
        if not auth.enabled:
            raise ConfigError("`auth.enabled` is not true any more; if that is meant, restart the daemon")
        if earlier.rules and not config.rules:
            raise ConfigError(
                "there are no `rules` any more, so every caller could do everything; if that is meant, restart the daemon"
            )
        if earlier.limits and not config.limits:
            raise ConfigError(
                "there are no `limits` any more; if that is meant, restart the daemon, or write `limits: [{who: ['*']}]`"
            )
        rules = Rules(config.rules, auth.groups)
        if (config.limits, auth.groups) != (earlier.limits, earlier.auth.groups):
            self.limiter = Limiter(
                config.limits, auth.groups, earlier.max_concurrent_requests, earlier=self.limiter
            )
        self.rules = rules
        self._config = config

    def start(self) -> None:
        """Begin to keep keys fresh, and to write the audit log. Raises StartError."""
        if self.audit is not None:
            try:
                self.audit.start()
            except OSError as error:
                raise StartError(
                    f"audit.path: {self._config.audit.path}: {(error.strerror or str(error)).lower()}"
                ) from error
        self.authenticator.start()

    async def stop(self) -> None:
        """End what :meth:`start` has begun. Waits some seconds for the audit log at most."""
        self.authenticator.stop()
        await self.unanswered.end()
        if self.audit is not None:
            await asyncio.to_thread(self.audit.stop)

    def caller(self) -> Caller:
        """Return the caller of the request that is being answered. Raises Unauthenticated."""
        caller = current.get()
        if caller is None:
            raise Unauthenticated("credentials are required")
        return caller

    def admit(self, caller: Caller, cluster: str) -> None:
        """Raise Forbidden unless a caller may do anything in a cluster, whether it exists or not.

        Raises:
            InvalidParameter: no cluster has so long a name.
        """
        if len(cluster) > LONGEST:
            raise InvalidParameter(f"a name is longer than {LONGEST} characters")
        if not self.rules.knows_cluster(caller.principal, cluster):
            error = Forbidden(escaped(f"{caller.principal.name} may not use cluster {cluster[:MAX_NAME]}"))
            self.note_refusal(caller, cluster, error)
            raise error

    def note_refusal(self, caller: Caller, cluster: str, error: PixyError) -> None:
        """Record that a caller may not use a cluster."""
        if self.audit is not None:
            self.audit.refused(caller, Access("describe", cluster), error)

    def allows(self, caller: Caller, access: Access) -> bool:
        """Return whether the rules let a caller do something. Neither limits nor the audit log take part."""
        return self.rules.allows(caller.principal, access)

    def check(self, caller: Caller, access: Access) -> None:
        """Raise Forbidden unless the rules let a caller do something. Neither limits nor the audit log take part."""
        self.rules.check(caller.principal, access)

    def begin(
        self, caller: Caller, *accesses: Access, polls: bool = False, creates: bool = False
    ) -> Operation:
        """Permit an operation.

        Args:
            caller: who.
            accesses: all that the operation does; the first one names it.
            polls: whether it waits for messages.
            creates: whether it makes the topic that it names, or sets offsets of the group: both count for ``limits``.

        Raises:
            InvalidParameter: a name is too long for Kafka.
            Limited: he has used up what he may.
            Forbidden: a rule is missing.
        """
        # Each Python frame between here and the end of the operation costs 0.3 us and more in a daemon that does other things
        # meanwhile, three times what a loop of nothing else shows.
        limiter, audit = self.limiter, self.audit
        for _, cluster, topic, group in accesses:
            if len(cluster) > LONGEST or len(topic or "") > LONGEST or len(group or "") > LONGEST:
                raise InvalidParameter(f"a name is longer than {LONGEST} characters")
        try:
            use = limiter.begin(caller.principal, accesses, polls=polls, creates=creates, permit=self._permit)
        except (Forbidden, Limited) as error:
            if audit is not None:
                audit.refused(caller, accesses[0], error)
            raise
        return Operation(limiter, use, audit, caller, accesses[0], polls, self.unanswered)

    @contextlib.contextmanager
    def act(self, caller: Caller, access: Access, action: str, *, creates: bool = False) -> Iterator[None]:
        """Permit an operator's action for a ``with`` block. The audit log gets a record of it, whatever ``audit.verbs`` says.

        The block is part of a task of :attr:`unanswered`.

        Args:
            caller: who.
            access: what it is done to.
            action: its name.
            creates: see :meth:`begin`.

        Raises:
            InvalidParameter: a name is too long for Kafka.
            Limited: he has used up what he may.
            Forbidden: a rule is missing.
        """
        if access.longest > LONGEST:
            raise InvalidParameter(f"a name is longer than {LONGEST} characters")
        limiter, audit, began = self.limiter, self.audit, time.monotonic()
        try:
            use = limiter.begin(
                caller.principal, (access,), polls=False, creates=creates, permit=self._permit
            )
        except (Forbidden, Limited) as error:
            if audit is not None:
                audit.refused(caller, access, error, action)
            raise
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            limiter.end(use, polls=False)
            if audit is not None:
                seconds, answered = time.monotonic() - began, self.unanswered.answers
                if isinstance(failed, asyncio.CancelledError):
                    audit.given_up(UNKNOWN, caller, access, seconds, action)
                else:
                    audit.done(caller, access, seconds, failed, action, answered=answered)

    def begin_own(self, caller: Caller, access: Access) -> Operation:
        """Permit an operation on something that belongs to the caller, whatever the rules say.

        Args:
            caller: who.
            access: names the operation.

        Raises:
            Limited: he has used up what he may.
        """
        if access.longest > LONGEST:
            raise InvalidParameter(f"a name is longer than {LONGEST} characters")
        limiter, audit = self.limiter, self.audit
        try:
            use = limiter.begin(caller.principal, (), polls=False)
        except Limited as error:
            if audit is not None:
                audit.refused(caller, access, error)
            raise
        return Operation(limiter, use, audit, caller, access, False, self.unanswered)

    def _permit(self, principal: Principal, accesses: Sequence[Access]) -> None:
        """Raise Forbidden unless a principal may do something, and it changes nothing of the audit log's topic."""
        internal, rules = self._internal, self.rules
        for access in accesses:
            if internal is not None and (access.cluster, access.topic) == internal:
                _check_internal(access)
            if not rules.allows(principal, access):
                rules.check(principal, access)

    def unknown(self, address: str, trace: str, error: Unauthenticated) -> None:
        """Record that a caller was not recognized.

        Args:
            address: of the peer.
            trace: his W3C ``traceparent``, or empty.
            error: why.
        """
        if self.audit is not None:
            self.audit.unauthenticated(address, trace, error)


def _check_internal(access: Access) -> None:
    """Raise Forbidden if an access would change the audit log's topic: nobody forges or deletes it through the daemon."""
    if access.verb == "produce" or (access.verb == "admin" and access.group is None):
        raise Forbidden(f"only the daemon itself writes to its audit log, topic {access.topic}")


def _topic_of(config: App) -> LineProducer | None:
    audit = config.audit
    if not audit.topic:
        return None
    proxy = config.proxies[config.cluster_name(audit.cluster)]
    made = settings.lines(proxy, audit.delivery_timeout, audit.max_queued)
    return LineProducer(made, audit.topic, "audit.topic")


__all__ = ["Guard", "Operation"]
