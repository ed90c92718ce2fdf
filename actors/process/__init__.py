"""Actors in worker processes; see :class:`actors.ProcessActor`.

``actor`` has the actor and its parent's half, ``worker`` the process as the parent sees it, ``main`` the program
that the process runs, ``spec`` what it is told at its start, ``frames`` what travels between the two.
"""
