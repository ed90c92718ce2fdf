"""``make bench-actors``: compare the actor runtime with its peers.

A module ``on_PEER`` has the scenarios of one peer; ``child`` runs one of them in a process of its own. The
other modules compare the results and hold the targets.
"""
