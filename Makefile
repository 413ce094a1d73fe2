# For GNU make 3.81 and newer. Needs only Python 3.11 or newer; everything else goes into .venv.
#   make setup            everything, into .venv (a second time: nothing to do)
#   make demo             a one-broker sandbox, data, trimming, reading back; KEEP=1 leaves it up
#                         STORE=s3 or STORE=hdfs: with such a server as the remote store
#   make demo-spark       the same records read by Spark: DataFrame, stream, export; needs no Java
#   make test             set-up, lint, then every test that CI runs; TESTS= and ARGS= narrow it
#   make long             the tests with the full numbers, and the scenarios with proxy workers
#   make long-layout      main job, conformance, faults, kills and audits with segments in blocks;
#                         LAYOUT= names another layout, TESTS= other tests
#   make mutants          takes one guard away at a time and sees which tests notice (ARGS=--help)
#   make lint             format, lint, types, import rules, fresh generated code, locks, the site
#   make check            the same and the tests of generated pages, locks, licences, known
#                         weaknesses, links and commands in pages, house rules
#   make bench            the benchmark of reads; make bench-copying: copies of a backlog to a directory
#   make bench-native     the same of Kafka's own tiered storage, pair by pair with ours
#   make bench-latency    how long records take to be acknowledged while a backlog is copied
#   make bench-rolls      from a roll to the first byte uploaded
#   make bench-leadership from a change of leaders until the service of the new one knows
#   make bench-stores     the benchmark of S3 and HDFS (ARGS=--help)
#   make bench-scale      plans and reports over a million segments
#   make bench-ledger     the ledger of a million segments beside Kafka's own cache of them
#   make bench-ledger-snapshot  the same ledger, ready from its snapshot
#   make bench-pass-through  what the proxy costs where it only passes bytes on
#   make bench-client     the consumer for Python, by services and by the store, beside aiokafka
#   make bench-floors     what the machine takes at least for the same bytes
#   make bench-connections  thousands of waiting connections, fifty readers of remote data
#   make bench-idle-connections  what clients that are silent cost the memory of a service
#   make bench-all        all benchmarks, one after the other: a night
#   make bench-idle       a service that leads 1,000 partitions and has nothing to do
#   make bench-spark      the connector beside Spark's own Kafka source
#   make proto            generate code from proto/
#   make reference        generate docs/reference/ from the code
#   make docs             docs/ as a site in build/docs; a warning is an error
#   make lock             resolve the locks again (UPGRADE=1: newest versions), record their wheels
#   make check-wheels     record again which wheels exist for the locks (needs the network)
#   make audit ADVISORIES=FOLDER  record which locked versions have known weaknesses, from a clone
#                         of pypa/advisory-database (needs no network; `make check` reads the record)
#   make dist             dist/: wheels and source distributions of kafka-rlm and kafka-rlm-spark;
#                         WHEELHOUSE=1 also all they need, to install it without a network
#   make sbom             build/sbom.json: every locked package, its hashes and licence (CycloneDX)
#   make clean            remove .venv and what tools left behind
# PYTHON=/path/to/python3.11 names the interpreter; pip's own variables (PIP_INDEX_URL, ...) work.

SHELL = /bin/sh
PYTHON ?=
KEEP ?=
STORE ?=
ADVISORIES =
WHEELHOUSE ?=
TESTS = tests
ARGS =
WORKERS = 3
LAYOUT = blocks
## Compiled modules are kept for the next process, whatever the environment says: a run of the tests starts hundreds of
## processes, and each would compile all that it imports again.
PYTHONDONTWRITEBYTECODE =
export PYTHON KEEP STORE PYTHONDONTWRITEBYTECODE

WITH_PYTHON = /bin/sh build_tools/with-python
BIN = .venv/bin
RUN = $(BIN)/python -m
## Unit tests first, on WORKERS processes; then integration tests in groups, as many side by side (tests/rings.py).
## A process that had to be ended is not replaced: xdist would give the new one the same test again, up to twelve times.
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
## From nothing each time: pages that are read from Sphinx's cache do not repeat their warnings.
SITE = rm -rf build/docs && $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs

## What `make long-layout` runs beside the conformance kit.
OF_LAYOUT = tests/docs/test_read_real_topic.py tests/spark tests/scenarios/twins \
	$(patsubst %,tests/scenarios/test_%.py,attached cluster copy_limit copy_mode deletions empty_segments \
	h06_later_versions h06_ledger_rebuild h12_reconcile h24_kill_rounds h24_workers h26_delete_records kill_rounds \
	kills layouts lineage lost_objects offload racks repeats restore retention rolls store_faults store_outage \
	three_brokers transactions two_stores verify)

.PHONY: help setup setup-demo demo demo-spark test long long-layout lint check types other-checks compiled-tests
.PHONY: check-wheels
.PHONY: proto reference docs lock audit dist sbom clean
.PHONY: bench bench-copying bench-native bench-latency bench-rolls bench-leadership
.PHONY: bench-stores bench-scale bench-ledger bench-ledger-snapshot bench-idle bench-pass-through bench-spark mutants
.PHONY: bench-client bench-connections bench-idle-connections bench-floors bench-all

help:
	@$(WITH_PYTHON) -c "print(*[line[2:].rstrip() for line in open('Makefile') if line.startswith('# ')], sep='\n')"

setup:
	@$(WITH_PYTHON) -m build_tools.install all

setup-demo:
	@$(WITH_PYTHON) -m build_tools.install demo $(STORE)

demo: setup-demo
	@$(RUN) rlm_sandbox.demo $(ARGS)

demo-spark:
	@$(WITH_PYTHON) -m build_tools.install demo spark
	@STORE= $(RUN) rlm_sandbox.demo --spark $(ARGS)

## The tests that `check` runs are among TESTS. They are compiled beside mypy, which needs one core: workers that begin
## together with nothing compiled would each compile all. What is wrong with a module, the run itself says.
test: setup
	@$(MAKE) --no-print-directory -j 2 types other-checks compiled-tests
	@$(PYTEST) $(ARGS) $(TESTS)

compiled-tests:
	@$(BIN)/pytest --collect-only -qq -p no:cacheprovider $(TESTS) >/dev/null 2>&1 || true

long: setup
	@HYPOTHESIS_PROFILE=deep $(PYTEST) -m long --timeout 7200 $(ARGS) $(TESTS)
	@$(if $(filter tests,$(TESTS)),RLM_TEST_WORKERS=2 $(PYTEST) -m "integration and not long" $(ARGS) tests/scenarios)

long-layout: setup
	@$(PYTEST) -m "long or not long" -k test_contract_in_$(LAYOUT) tests/rsm_plugins/test_conformance.py
	@RLM_TEST_LAYOUT=$(LAYOUT) $(PYTEST) -m "integration and not long" $(ARGS) \
		$(if $(filter tests,$(TESTS)),$(OF_LAYOUT),$(TESTS))

mutants: setup
	@$(RUN) tests.mutants --workers 2 $(ARGS)

lint: setup
	@$(MAKE) --no-print-directory -j 2 types other-checks

types:
	$(RUN) mypy

other-checks:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-logo
	$(RUN) build_tools.proto --check
	$(RUN) build_tools.wheels --check
	$(RUN) build_tools.audit --check
	$(SITE)

check: lint
	$(BIN)/pytest -q --no-header tests/project tests/docs/test_architecture.py tests/docs/test_generated.py tests/docs/test_site.py

check-wheels: setup
	$(RUN) build_tools.wheels

bench: setup
	@$(RUN) bench $(ARGS)

bench-client: setup
	@$(RUN) bench.client $(ARGS)

bench-copying: setup
	@$(RUN) bench.copying $(ARGS)

bench-native: setup
	@$(RUN) bench.copying_native $(ARGS)

bench-latency: setup
	@$(RUN) bench.latency $(ARGS)

bench-rolls: setup
	@$(RUN) bench.rolls $(ARGS)

bench-leadership: setup
	@$(RUN) bench.leadership $(ARGS)

bench-stores: setup
	@$(RUN) bench.stores $(ARGS)

bench-scale: setup
	@$(RUN) bench.scale $(ARGS)

bench-ledger: setup
	@$(RUN) bench.ledger_native $(ARGS)

bench-ledger-snapshot: setup
	@$(RUN) bench.ledger_snapshot $(ARGS)

bench-idle: setup
	@$(RUN) bench.idle $(ARGS)

bench-connections: setup
	@$(RUN) bench.connections $(ARGS)

bench-idle-connections: setup
	@$(RUN) bench.idle_connections $(ARGS)

bench-floors: setup
	@$(RUN) bench.floors $(ARGS)

bench-all: setup
	@$(RUN) bench.night $(ARGS)

bench-pass-through: setup
	@$(RUN) bench.pass_through $(ARGS)

bench-spark: setup
	@$(RUN) bench.spark $(ARGS)

proto: setup
	$(RUN) build_tools.proto

reference: setup
	$(RUN) build_tools.reference

docs: setup
	@$(SITE)
	@echo build/docs/index.html

lock: setup
	$(RUN) build_tools.lock $(if $(UPGRADE),--upgrade)
	$(RUN) build_tools.wheels

audit: setup
	@$(RUN) build_tools.audit "$(ADVISORIES)"

dist: setup
	@$(RUN) build_tools.dist $(if $(WHEELHOUSE),--wheelhouse $(if $(filter 1,$(WHEELHOUSE)),service,$(WHEELHOUSE)))

sbom: setup
	@$(RUN) build_tools.sbom

clean:
	@$(WITH_PYTHON) -m build_tools.clean
