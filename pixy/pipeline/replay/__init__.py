"""Write a lake's records to a topic again, each exactly once, also after a kill.

Modules, in reading order:

- ``request``: which records to write where, and how.
- ``own_topic``: refuses to write records to the topic that they came from.
- ``job``: checks the request against lake and cluster, plans, runs the writer, commits the groups' offsets.
- ``state``: the folder of a replay: its plan, and the map of old to new offsets.
- ``writer``: reads the selected records (``lake.record_reader``) and writes those that are not written yet.
- ``on_executors``: the same on Spark's executors, a task for each partition.
- ``schema_ids``: gives records the schema ids of another registry.
- ``find_message``: where the copies of a message are.
- ``group_offsets``: translates a group's offsets by the map.
"""
