"""A transparent proxy for Kafka's protocol that shows who is in which group and who owns what (KIP-559's purpose).

The proxy forwards bytes and observes frames; the observer keeps state (groups, offsets, software, usage) and is
pure: no IO, no clock. To follow one frame from the client's socket to the observer, read in this order:

1. ``listener`` accepts the client and spawns a ``connection`` actor, which connects to the broker and starts the
   relay.
2. ``relay`` reads a chunk of bytes from one socket and sends it to the other. It shows the chunk to the stream tap
   after sending, or before sending if responses are rewritten and the chunk goes to the client.
3. ``stream_tap`` feeds the chunk to a reader, a generator which takes some bytes and skips others.
4. ``conversation`` has the readers of both directions. They find the frames, decode parts of them with
   ``primitives`` and ``partial_decoders``, match responses with requests (``in_flight``), have brokers' addresses
   changed (``rewrite``), and put ``events`` into the event queue.
5. ``event_queue`` gathers events into batches and delivers each through the ``supervisor`` to the observer's actor.
6. ``observer_actor`` runs in a thread and gives each event to the observer.
7. ``observer`` decodes captured frames and keeps the state: ``classic`` (with ``member_metadata``) and
   ``heartbeats`` update ``groups`` in the ``registry``, which records ``rebalances`` and ``anomalies``; ``offsets``
   keeps commits; ``topics`` keeps names, sizes and end offsets; ``sequences`` finds gaps; ``inventory`` counts
   requests by software and version.

Beside the path: ``service`` starts and stops the tree; ``messages`` are what its actors exchange; ``group_view``,
``http_view``, ``metrics``, ``printer`` and ``table`` show the state; ``broker_ports`` opens a port for each broker that
a rewritten response names; ``lenient`` decodes responses with extra bytes at the end; ``lru`` limits what is kept.
"""
