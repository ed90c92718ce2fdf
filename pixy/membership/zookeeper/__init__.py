"""Groups in ZooKeeper, as the Go original keeps them, so that both can share one.

:mod:`~pixy.membership.zookeeper.layout` names the znodes, :mod:`~pixy.membership.zookeeper.assignment` divides the
partitions; both are pure. :mod:`~pixy.membership.zookeeper.member` brings
:mod:`~pixy.membership.zookeeper.registration` and :mod:`~pixy.membership.zookeeper.claims` together, over a
:class:`~pixy.membership.zookeeper.keeper.Keeper`, which :mod:`~pixy.membership.zookeeper.connection` implements with
kazoo. :mod:`~pixy.membership.zookeeper.session` adds fetching and commits. docs/membership.md is for operators.
"""
