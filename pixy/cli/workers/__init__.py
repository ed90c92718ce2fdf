"""``server.workers``: processes with an engine each serve the same addresses, under one supervisor.

:mod:`~pixy.cli.workers.supervisor` runs in the process that a person starts: it starts the workers, passes signals on, has the pid file
and the exit code, replaces a worker that crashes, and all of them one by one on SIGUSR2. :mod:`~pixy.cli.workers.worker` is a worker.
"""
