"""``make chaos``: faults on purpose against three daemons and three brokers, and a checker of what came of it.

Clients write down what they sent and what they were told, on disk and outside of the daemons; a plain
consumer then reads what Kafka holds. :mod:`tests.chaos.kit.checker` compares the two, offline:

- :mod:`~tests.chaos.kit.scenario` starts everything, runs it, heals it, drains it and takes the final picture;
- :mod:`~tests.chaos.kit.schedule` draws the faults from the seed, :mod:`~tests.chaos.kit.faults` does them;
- :mod:`~tests.chaos.kit.links` are the TCP proxies that cut, hold and slow connections;
- :mod:`~tests.chaos.kit.daemon` is the daemon's own program plus a control socket that makes actors fail;
- ``producers``, ``consumers``, ``instances`` and ``odd`` are the clients;
- :mod:`~tests.chaos.kit.record` is the format of what they write down.
"""
