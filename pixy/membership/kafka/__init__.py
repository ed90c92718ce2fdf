"""Membership in Kafka's own groups: the classic protocol and KIP-848.

``session`` implements :class:`pixy.membership.Session`, ``instance`` implements
:class:`pixy.membership.instances.InstanceSession`, both on the thread of ``member_thread``. ``fetching_session`` is the
part of ``session`` that groups in ZooKeeper use too; docs/packages/membership.md lists all modules.
"""
