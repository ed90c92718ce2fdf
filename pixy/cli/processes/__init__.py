"""Daemons in processes of their own, under one supervisor: what Envoy (:mod:`pixy.cli.envoy`) and workers (:mod:`pixy.cli.workers`) share.

:mod:`~pixy.cli.processes.child` is the supervisor's side of one process, :mod:`~pixy.cli.processes.supervised` the daemon in it. Both
talk over a pair of sockets, a line of JSON for each message (:mod:`~pixy.cli.processes.channel`).
"""
