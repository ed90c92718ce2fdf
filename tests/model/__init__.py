"""Scenarios that run against our model of Kafka and against real Kafka, and must show the same.

The simulations (``tests/unit/engine``) search with models of Kafka and of librdkafka. A model that is kinder
than reality hides defects. So each scenario here is one script, written in the words of :mod:`tests.model.world`;
``test_scenarios.py`` runs it twice and compares what was seen, line by line:

- ``on_model.py``: the script on :mod:`tests.model.log` and :mod:`tests.model.consumer`, in virtual time;
- ``on_kafka.py``: the script on a real broker, with librdkafka and the daemon's own session.

``test_brokers.py`` does the same with the scripts of ``broker_scenarios.py``, on three brokers, of which some die.

Read in this order: ``world.py`` and ``member.py`` (the language), ``client_scenarios.py`` and ``session_scenarios.py``
(the scripts), ``log.py`` (Kafka's logs in the model), ``group.py`` (the coordinator), ``consumer.py`` (librdkafka),
``session.py`` (the daemon's session). ``test_planted_models.py`` checks that a wrong model is found.
"""
