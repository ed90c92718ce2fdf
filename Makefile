# Every target sets up what it needs: Python 3.11+ for run, demo, lint and bench-actors; Java 17 and
# Maven besides for test and bench.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install pipeline-install run demo kafka pipeline-demo test unit lint bench bench-actors bench-pipeline proto messages clean

install: $(VENV)/.installed

$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt proto/kafkapixy.proto proto/build_backend.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install -q -e .
	touch $@

# The data pipeline: Spark's Python package, and the connector's jars by Maven. Fails without Java 17 or Maven.
pipeline-install: $(VENV)/.pipeline

$(VENV)/.pipeline: $(VENV)/.installed pixy/pipeline/spark/pom.xml
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install -q -e '.[pipeline]'
	$(BIN)/python -m pixy.pipeline.spark.jars
	touch $@

# Without Java or Maven this says so, and the tests that need them skip; in CI it fails.
$(VENV)/.dev: $(VENV)/.installed pixy/pipeline/spark/pom.xml
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install -q -e '.[test,lint,pipeline]'
	$(BIN)/python -m pixy.pipeline.spark.jars || test -z "$$CI"
	touch $@

proto: $(VENV)/.dev
	$(BIN)/python proto/build_backend.py

# The table of Kafka's messages out of the schemas in its clients' jars; it is committed.
messages:
	$(PYTHON) proto/kafka_messages.py

run: install
	$(BIN)/kafka-pixy --sandbox

demo: install
	$(BIN)/python -m pixy.cli.demo

# A real broker to try things on, and build/kafka.yaml, the daemon's configuration for it; until Ctrl-C.
kafka: install
	$(BIN)/python -m tests.kafka build/kafka.yaml

# A million messages through the proxy into a lake, out and in again; MESSAGES=20000 for a quick look. Some minutes.
pipeline-demo: pipeline-install
	$(BIN)/python -m examples.pipeline_demo $(if $(MESSAGES),--messages $(MESSAGES))

# Most tests wait for Kafka: two processes take little more than half of one's time.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=20

unit: $(VENV)/.dev
	$(BIN)/python -m pytest tests/unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-cache

# The runtime's peers; one of them brings numpy, pandas and scipy along.
$(VENV)/.bench: $(VENV)/.dev
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install -q -e '.[bench]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m tests.bench

bench-actors: $(VENV)/.bench
	$(BIN)/python -m tests.bench actors

bench-pipeline: $(VENV)/.bench $(VENV)/.pipeline
	$(BIN)/python -m tests.bench pipeline

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	rm -f pixy/proto/*_pb2*.py*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
