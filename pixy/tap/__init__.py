"""A transparent proxy for Kafka's protocol that shows who is in which group and who owns what (KIP-559's purpose).

``relay`` moves bytes between two sockets; ``tape`` and ``walk`` find frames in what passes, without
copying records; ``observer`` keeps what the traffic says (groups, offsets, software, usage) and is pure: no
IO, no clock; ``actors`` puts the parts together, one actor per connection.
"""
