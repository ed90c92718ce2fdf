"""Consuming: a group's membership, its long polls, the offers and acknowledgements of its partitions.

To follow a message from Kafka to its commit, read six files in this order:

1. ``pixy/membership/kafka/fetching_session.py``: the thread of a session polls librdkafka and posts the
   messages as ``Fetched`` to the group's actor.
2. ``pixy/engine/consume/group_consumer.py``: ``GroupConsumer`` has its ``OwnedPartitions`` pass them on to the
   owner of their partition, as records under an epoch. A client's request arrives as ``Consume`` and waits in ``TopicPolls``. After an
   owner's ``Ready`` the group sends it waiting requests as ``Serve``.
3. ``pixy/engine/consume/long_polls.py``: ``TopicPolls`` queues each request as a ``Poll`` and assigns the
   requests to the ready partitions in turn. A ``Delivery`` is a message on its way to the client: the API
   handler calls its ``sent`` or ``give_back``, which sends ``Answered`` to the owner.
4. ``pixy/engine/consume/partition_owner.py``: ``PartitionOwner`` puts ``Records`` into its ``OfferBook``,
   reports ``Ready``, and answers each ``Poll`` of a ``Serve`` with a ``Delivery``. It takes acks as
   ``Answered`` (auto-ack) or as ``Ack``, which the group makes of a client's acknowledgement.
5. ``pixy/engine/consume/offers.py``: ``OfferBook`` decides which message is the next ``Offer`` and what an
   ack does. Its ``Position`` says up to where every message is done.
6. ``pixy/engine/consume/offset_committer.py``: ``OffsetCommitter`` gets each new ``Position`` as ``Moved``,
   has the ``Session`` commit it at the next interval once no commit is in flight, and gets ``Committed``.

``group_messages.py`` and ``partition_messages.py`` define the messages. A partition comes with ``Assigned``
and goes with ``Revoked`` or ``Lost``, by way of ``owned_partitions.py``; ``owner_spawner.py`` starts its owner, and
``assignment.py`` keeps what must outlive a failure of the owner. ``subscriptions.py`` looks topics up, subscribes to
them, and gives up idle ones.
``rejoining.py`` replaces a session that has failed.
"""
