"""A transparent proxy for Kafka's protocol that shows who is in which group and who owns what (KIP-559's purpose).

The proxy forwards bytes and observes frames; the observer keeps state (groups, offsets, software, usage) and is
pure: no IO, no clock. To follow one frame from the client's socket to the observer, read in this order:

1. ``listener`` accepts the client and spawns a ``connection`` actor, which connects to the broker.
2. ``relay`` reads a chunk of bytes from one socket and sends it to the other.
3. ``stream_tap`` shows the chunk to a reader, which takes some bytes and skips others.
4. ``conversation`` is that reader: it finds the frames, with the decoders of ``primitives`` and
   ``partial_decoders``; ``in_flight`` matches responses with requests; ``rewrite`` changes brokers' addresses.
5. ``events`` are what the conversation reports; ``event_queue`` gathers them into batches.
6. ``supervisor`` delivers each batch to the ``observer_actor``, whose thread gives each event to the ``observer``.
7. ``observer`` decodes captured frames and passes them on: ``classic`` (with ``member_metadata``) and
   ``heartbeats`` keep groups in the ``registry``, ``offsets`` keeps commits and ends, ``sequences`` finds gaps, ``inventory`` counts versions.

Beside the path: ``service`` starts and stops the tree; ``group_view``, ``http_view``, ``metrics``, ``printer`` and
``table`` show the state; ``broker_ports`` opens a port for each broker that a rewritten response names.
"""
