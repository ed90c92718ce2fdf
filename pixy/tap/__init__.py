"""A transparent proxy for Kafka's protocol that shows who is in which group and who owns what (KIP-559's purpose).

The proxy forwards bytes and observes frames; the observer keeps state (groups, offsets, software, usage) and is
pure: no IO, no clock. To follow one frame from the client's socket to the observer, read in this order:

1. ``listener`` accepts the client and spawns a ``connection`` actor, which shakes hands (``tls``), connects to the broker
   and starts the relay.
2. ``relay`` has two of ``direction``, each of which reads a chunk of bytes from one socket and sends it to the other, with
   a buffer and ``pipes`` that all share; ``queueing`` measures how long the bytes wait. A direction shows the chunk to the stream tap
   after sending, or before sending if responses are rewritten and the chunk goes to the client.
3. ``stream_tap`` feeds the chunk to a reader, a generator which takes some bytes and skips others.
4. ``conversation`` is what the readers of both directions share: ``request_reader`` and ``response_reader``. They find the
   frames, decode parts of them (``apis`` says of which) with ``primitives`` and ``partial_decoders``, match responses with requests (``in_flight``), have brokers' addresses
   changed (``rewrite``), and put ``events`` into the event queue. ``fast_path`` takes the frames that say nothing new.
5. ``event_queue`` gathers events into batches and delivers each through the ``supervisor`` to the observer's actor.
6. ``observer_actor`` runs in a thread and gives each event to the observer.
7. ``observer`` decodes captured frames and keeps the state, with ``connections`` and ``record_traffic``: ``classic`` (with ``member_metadata``), ``heartbeats``
   (KIP-848), ``shares``, ``streams`` and ``described`` update ``groups`` in the ``registry``, which records
   ``rebalances`` and ``anomalies``; ``assignments`` reports a member's partitions; ``offsets`` keeps commits (``transactions`` until they end) and ``ends``; ``topics``
   keeps names and sizes; ``sequences`` finds gaps; ``inventory`` counts requests by software and version, ``traffic``
   bytes, errors and throttle times, ``latency`` response times; ``findings`` are computed from all of these.

Beside the path: with ``--dump``, the readers also copy whole frames for ``dump_actor``, whose thread lets ``dump`` choose
(``dump_filter``) and ``dump_writers`` write, without what ``dump_secrets`` finds.

``service`` starts and stops the tree; ``messages`` are what its actors exchange; ``group_view``,
``http_view``, ``metrics``, ``otlp``, ``printer`` and ``table`` (``table_rows``, ``table_notes``) show the state; ``broker_ports`` opens a port for each broker that
a rewritten response names; ``verify`` asks the brokers (``--verify``); ``lenient`` decodes responses with extra bytes at the end; ``lru`` limits what is kept.
"""
