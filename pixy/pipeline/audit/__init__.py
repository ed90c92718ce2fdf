"""The delivery audit: what was produced, archived, offered and acknowledged, and what became of the rest.

Sources become *facts* (:mod:`facts`), one row each: a record in the log, a row in the lake, an event of
the journal. Facts meet by topic, partition and block of offsets, where vectors judge them
(:mod:`judge`); what comes out are counts that add up, so windows, sketches and ranges merge.
"""
