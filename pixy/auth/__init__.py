"""Recognize callers, and decide what they may do, and how much of it.

Pure logic apart from the files and URLs that :mod:`~pixy.auth.keys` and :mod:`~pixy.auth.jwks` read; the time is an
argument. Transports turn what they saw of a caller into :class:`~pixy.auth.principal.Credentials`; the
:class:`~pixy.auth.authenticator.Authenticator` turns those into one :class:`~pixy.auth.principal.Principal`, whatever
the transport. The engine's entrance (:mod:`pixy.engine.guard`) asks :mod:`~pixy.auth.rules` and
:mod:`~pixy.auth.limits` about him.
"""
