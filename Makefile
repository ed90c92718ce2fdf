# Every target sets up what it needs: Python 3.11+ for run, demo, lint and bench-actors; Java 17 and
# Maven besides for test and bench.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where Python may not write bytecode, each of the hundreds of processes that the tests start compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install dev pipeline-install run demo demo-console kafka pipeline-demo check format types imports unit quick-1 quick-2 quick-3 matrix test test-times test-long lock audit-deps dist release test-install chaos search-actors fuzz lint docs viewer bench bench-actors bench-pipeline chaos-topics tap-truth soak-console proto messages clean bench-front

#: make install           install the daemon into .venv
#: make run               serve an in-memory sandbox until Ctrl-C
#: make demo              the same, with one round over both APIs on screen
#: make demo-console      the console, on a sandbox with load and a consumer that is stuck
#: make kafka             a real broker to try things on, until Ctrl-C
#: make check             format, lint, types, import contracts, unit tests: before each commit; no Java, no Spark
#: make unit              the unit tests
#: make format            format and fix what can be fixed
#: make types             mypy --strict
#: make imports           the import contracts of setup.cfg
#: make test              everything, on real Kafka, ZooKeeper and Spark
#: make test-times        the slowest tests of the last make test (BEFORE=FILE: compared with an earlier run)
#: make test-long         the tests of which make test has a short form, in full
#: make lock              requirements.lock: the daemon's dependencies with hashes
#: make audit-deps        known holes in those
#: make dist              sdist and wheel of kafka-pixy and of kafka-pixy-actors, into dist
#: make release           build, check and tag a version (VERSION=1.0.0)
#: make test-install      sdist and wheel from the registry: Python 3.11 and 3.13, root and another user, pipx, uv
#: make chaos             half an hour of faults, and a checker (MINUTES=5 SEED=7 MEMBERSHIP=kafka-next FAULTS=daemon-kill,broker-kill)
#: make search-actors     an hour of cancellations, closed loops and preempted threads on the actor runtime (MINUTES=5 SEED=7)
#: make fuzz              ten minutes of made-up bytes and requests on a sandbox daemon (MINUTES=1 SEED=7 PART=contract; PART=floods measures)
#: make lint              format, ruff, mypy, import contracts, of everything
#: make chaos-topics      5,000 new topics and 200 elections: is every acknowledged record in the log? (20 minutes)
#: make tap-truth         half an hour of faults: does the tap say what the brokers say? (MINUTES=5 SEED=7 VERIFY=2)
#: make soak-console      an hour of five pages on 5,000 busy actors: processor, longest step on the loop, memory (MINUTES=5)
#: make matrix            the unit tests on Python 3.11 and 3.13
#: make dev               install what all tests need
#: make proto             compile proto/kafkapixy.proto
#: make messages          the table of Kafka's messages, from its jars
#: make docs              the docs site, into build/site
#: make viewer            fetch the viewer of /docs from npm (VERSION=...)
#: make bench             the tables of docs/performance.md; also bench-actors, bench-front, bench-pipeline
#: make pipeline-install  Spark and its jars, for kafka-pixy pipeline
#: make pipeline-demo     archive, replay and audit on a Kafka of its own
#: make clean             remove what was built
help:
	@sed -n 's/^#: //p' Makefile

install: $(VENV)/.installed

# `python -m venv` that Ctrl-C ends without a traceback.
MAKE_VENV := import runpy, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); runpy.run_module("venv", run_name="__main__")

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	test -x $(BIN)/pip || $(PYTHON) -c '$(MAKE_VENV)' $(VENV)  # also one that Ctrl-C has left half made

# Each run of pip resolves, builds the stubs in an environment of its own and, without --no-compile, compiles all of its packages (155 MB, of
# which the tests import a tenth): so there is one run for each set of extras, and a larger set has what the smaller ones have.
SOURCES := setup.cfg pyproject.toml constraints.txt proto/kafkapixy.proto proto/build_backend.py
PIP_INSTALL = PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install -q

$(VENV)/.installed: $(SOURCES) | $(BIN)/pip
	@echo 'installing into $(VENV), which takes a minute or two ...'
	$(PIP_INSTALL) -e .
	$(BIN)/python -m compileall -q actors pixy
	touch $@

# The data pipeline: Spark's Python package, and the connector's jars by Maven. Fails without Java 17 or Maven. The jars are looked at each
# time: they belong to a user, and his cache may have been emptied since.
pipeline-install: $(VENV)/.pipeline
	@$(BIN)/python -m pixy.pipeline.spark.jars

$(VENV)/.pipeline: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[pipeline]'
	touch $@

# Everything that tests and linters need, without running them.
dev: $(VENV)/.dev $(VENV)/.tools

# For the unit tests: neither Java nor Spark.
$(VENV)/.test: $(SOURCES) | $(BIN)/pip
	$(PIP_INSTALL) --no-compile -e '.[test]'
	$(BIN)/python -m compileall -q actors pixy
	touch $(VENV)/.installed $@

# For the linters too.
$(VENV)/.unit: $(SOURCES) | $(BIN)/pip
	$(PIP_INSTALL) --no-compile -e '.[test,lint]'
	$(BIN)/python -m compileall -q actors pixy
	touch $(VENV)/.installed $(VENV)/.test $@

# All packages. DIST_EXTRA_CONFIG: pyspark has no wheel, and to compress 430 MB of jars that are unpacked at once takes half a minute.
$(VENV)/.dev: $(SOURCES) | $(BIN)/pip
	DIST_EXTRA_CONFIG=$(CURDIR)/proto/stored_wheels.cfg $(PIP_INSTALL) --no-compile -e '.[test,lint,pipeline,release]'
	$(BIN)/python -m compileall -q actors pixy
	touch $(VENV)/.installed $(VENV)/.test $(VENV)/.unit $@

# What the tests need besides packages; with --jobs at the same time as those. Without Java or Maven this says so, and the tests that need
# them skip; in CI it fails.
$(VENV)/.tools: pixy/pipeline/spark/pom.xml | $(BIN)/pip
	$(BIN)/python -m pixy.pipeline.spark.jars || test -z "$$CI"
	$(BIN)/python -m tests.browser.chromium || test -z "$$CI"
	$(BIN)/python -m tests.integration.actors.nats_server || test -z "$$CI"
	touch $@

# Two runs of pip at a time would spoil the environment.
ifneq ($(filter-out dev lint test,$(MAKECMDGOALS)),)
ifneq ($(filter-out imports types quick-%,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
endif

proto: $(VENV)/.unit
	$(BIN)/python proto/build_backend.py

# The table of Kafka's messages out of the schemas in its clients' jars; it is committed.
messages:
	$(PYTHON) proto/kafka_messages.py

run: install
	$(BIN)/kafka-pixy --sandbox

demo: install
	$(BIN)/python -m pixy.cli.demo

# The console on a sandbox with load and a consumer that is stuck; it prints the address.
demo-console: install
	$(BIN)/python -m pixy.cli.demo_console

# A real broker to try things on, and build/kafka.yaml, the daemon's configuration for it; until Ctrl-C.
kafka: install
	$(BIN)/python -m tests.kafka build/kafka.yaml

# A million messages through the proxy into a lake, out and in again; MESSAGES=20000 for a quick look. Some minutes.
pipeline-demo: pipeline-install
	$(BIN)/python -m examples.pipeline_demo $(if $(MESSAGES),--messages $(MESSAGES))

# What to run before each commit: format, lint, types, import contracts, unit tests. No Java, no Spark, no Kafka.
# All but the first two run side by side: alone, each would leave a core idle.
check: $(VENV)/.unit
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory --keep-going --jobs imports types $(QUICK)

# Quick mode (tests/effort.py): a fifth of the examples and a quarter of the seeds that `make test` tries; the files in three shares.
QUICK := quick-1 quick-2 quick-3
$(QUICK): quick-%: $(VENV)/.unit
	PIXY_QUICK_TESTS=1 PIXY_TEST_SHARE=$*/$(words $(QUICK)) $(UNIT)

format: $(VENV)/.unit
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

imports: $(VENV)/.unit
	PYTHONPATH=. $(BIN)/lint-imports --no-cache --no-logo

# Without Spark's package the half of the pipeline that imports it is left out; `make lint` checks everything.
SPARKLESS := $(addprefix -p ,actors pixy.api pixy.cli pixy.config pixy.engine pixy.kafka pixy.membership pixy.tap \
	pixy.wire pixy.pipeline.lake) -m pixy.errors -m pixy.journal
types: $(VENV)/.unit
	$(BIN)/mypy $$($(BIN)/python -c 'import pyspark' 2>/dev/null || echo --follow-imports=silent $(SPARKLESS))

# Each process of the tests would load these plugins and use none. Without -P pytest finds kafka_pixy.egg-info here, takes all
# of pixy and actors for a plugin, and each process compiles them anew in a clone that is new.
PYTEST = $(BIN)/python -P -m pytest -p no:schemathesis -p no:anyio
UNIT = $(PYTEST) tests/unit -q
unit: $(VENV)/.unit
	$(UNIT) -n 2

# Most tests wait for Kafka, so there are more processes than cores (tests/lanes.py).
PROCESSES ?= 4
test: $(VENV)/.dev $(VENV)/.tools build/classes/.made
	PIXY_TEST_TIMES=$(TIMES) $(PYTEST) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations=20

# The slowest tests of the last `make test`, and how busy each process was. BEFORE is an earlier such file, or what
# an earlier `make test` printed.
TIMES := build/test-times.txt
test-times: $(VENV)/.test
	@$(BIN)/python -m tests.times $(TIMES) $(if $(BEFORE),--before $(BEFORE))

# With more requests that are made up, more kills and more messages (tests/effort.py).
test-long: $(VENV)/.dev $(VENV)/.tools build/classes/.made
	PIXY_LONG_TESTS=1 $(BIN)/python -m pytest tests/integration/restv1/test_contract.py \
	  tests/integration/pipeline/test_kills.py tests/integration/pipeline/test_demo.py tests/integration/docs

# The daemon's dependencies with hashes, at the versions of constraints.txt, for every platform and Python from 3.11 on.
lock: $(VENV)/.audit
	$(BIN)/uv pip compile setup.cfg -c constraints.txt --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --quiet --custom-compile-command 'make lock' -o requirements.lock

# Known holes in what requirements.lock pins. It fails, too, where pip-audit does not reach its data.
audit-deps: $(VENV)/.audit
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.lock

$(VENV)/.audit: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[audit]'
	touch $@

# The archives of kafka-pixy and of kafka-pixy-actors.
dist: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist distributions/actors

# Builds, checks, commits and tags; publishes nothing: make release VERSION=1.0.0
release: $(VENV)/.release
	$(BIN)/python distributions/release.py $(VERSION)

$(VENV)/.release: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[release]'
	touch $@

# What is built, installed with its dependencies in every way that the docs name; the short form is in `make test`.
test-install: $(VENV)/.test
	test -x build/bin/helm || GOBIN=$(CURDIR)/build/bin go install helm.sh/helm/v3/cmd/helm@v3.19.0 || echo "!!! the chart is not rendered: no helm, no go !!!"
	$(BIN)/python -m pytest -q tests/unit/deploy tests/integration/test_deploy.py
	$(BIN)/python -m tests.install

# With these the JVMs of the tests start in half the time.
build/classes/.made: $(VENV)/.dev $(VENV)/.tools
	$(BIN)/python -m tests.class_archives
	touch $@

# Half an hour of faults on three daemons and three brokers, and a checker of what came of it. A run is
# repeated with the seed that it prints; `python -m tests.chaos.kit --help` lists the kinds of faults.
MINUTES ?= 30
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos.kit --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(FRONT),--front $(FRONT)) $(if $(WORKERS),--workers $(WORKERS)) \
	  $(if $(MEMBERSHIP),--membership $(MEMBERSHIP)) $(if $(FAULTS),--faults $(FAULTS)) \
	  $(if $(RATE),--rate $(RATE)) $(if $(PLANT),--plant $(PLANT))

# A seed repeats its run; tests/unit/actors/testing/test_search.py has a short form.
search-actors: $(VENV)/.test
	$(BIN)/python -m tests.search.actors --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),60) \
	  $(if $(SEED),--seed $(SEED))

# A finding names its part and seed; tests/integration/edge/test_fuzz.py is a short form.
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.edge --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),10) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PART),--part $(PART))

# TOPICS=300 ELECTIONS=50 for a quick look; tests/chaos/test_produce.py has a shorter form.
chaos-topics: $(VENV)/.dev
	$(BIN)/python -m tests.chaos.new_topics $(if $(TOPICS),--topics $(TOPICS)) $(if $(ELECTIONS),--elections $(ELECTIONS))

# A seed draws the same faults; when they strike depends on the machine.
tap-truth: $(VENV)/.dev
	$(BIN)/python -m tests.chaos.tap_truth --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(VERIFY),--verify $(VERIFY))

# By pairs with nobody watching; tests/unit/actors/console/test_soak.py has a short form.
soak-console: $(VENV)/.test
	$(BIN)/python -m tests.bench.console.soak --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),60)

# The unit tests on the oldest and the newest Python that we support, each in an environment of its own.
# One that is not installed is named and left out; pyenv's are found without being activated.
MATRIX ?= 3.11 3.13
matrix:
	@set -e; for version in $(MATRIX); do \
	  python=; for found in python$$version $$HOME/.pyenv/versions/$$version*/bin/python; do \
	    if $$found -c '' 2>/dev/null; then python=$$found; break; fi; done; \
	  if test -z "$$python"; then echo "!!! NOT TESTED on Python $$version: no such interpreter !!!"; continue; fi; \
	  echo "== Python $$version: $$python"; \
	  $(MAKE) --no-print-directory unit PYTHON=$$python VENV=build/matrix/$$version; done

lint: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-cache --no-logo

# The docs site, in build/site; fails on a broken link. Needs no network once it is installed.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# The viewer of /docs: Scalar's, from npm, unchanged. It is committed; VERSION changes pixy/api/openapi/page.py and viewer/LICENSE, too.
VIEWER := pixy/api/openapi/viewer
viewer: VERSION ?= $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' pixy/api/openapi/page.py)
viewer:
	rm -rf build/viewer && mkdir -p build/viewer
	cd build/viewer && npm pack --silent @scalar/api-reference@$(VERSION) && tar xzf *.tgz
	gzip -9nc build/viewer/package/dist/browser/standalone.js > $(VIEWER)/scalar.js.gz
	sed -i 's/^VERSION = ".*"/VERSION = "$(VERSION)"/' pixy/api/openapi/page.py
	sed -i '1s/api-reference [^,]*,/api-reference $(VERSION),/' $(VIEWER)/LICENSE

$(VENV)/.docs: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[docs]'
	touch $@

# The runtime's peers; one of them brings numpy, pandas and scipy along.
$(VENV)/.bench: $(VENV)/.dev
	$(PIP_INSTALL) -e '.[bench]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m tests.bench

bench-actors: $(VENV)/.bench
	$(BIN)/python -m tests.bench actors

bench-front: $(VENV)/.bench
	$(PIP_INSTALL) -e '.[envoy]'
	$(BIN)/python -m tests.bench front workers

bench-pipeline: $(VENV)/.bench pipeline-install
	$(BIN)/python -m tests.bench pipeline

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	rm -f pixy/proto/*_pb2*.py*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
