"""``make bench-actors``: the actor runtime beside its peers, each figure a ratio within one run.

``on_*`` run one scenario on one peer, each time in a process of its own (``child``); the other
modules say what is compared and what is wanted.
"""
