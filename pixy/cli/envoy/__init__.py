"""``server.front: envoy``: Envoy serves the sockets, and hosts the daemon in its own process.

:mod:`~pixy.cli.envoy.supervisor` runs in the process that a person starts: it starts Envoy, passes signals on, has the pid file
and the exit code, and ends when Envoy does. :mod:`~pixy.cli.envoy.hosted` runs within Envoy: it is the daemon.
Both talk over a pair of sockets, a line of JSON for each message (:mod:`~pixy.cli.processes.channel`).
"""
