"""The life of one message, told from what there is: the log, the groups' owners and offsets, the journal.

===================================  ==============================================================================
:mod:`pixy.engine.life.lives`        the entrance: rights, bounds, and who is asked
:mod:`pixy.engine.life.story`        the answer as plain data, and as a document
:mod:`pixy.engine.life.groups`       where the message stands in each group
:mod:`pixy.engine.life.journal`      its events in the journal
:mod:`pixy.engine.life.search`       finds messages by key or header
===================================  ==============================================================================
"""
