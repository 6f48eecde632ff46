# The one entry point. Every target makes what it needs on a machine that has python3 (3.11 or newer) and make.
# A C compiler is optional: without one Penstock installs all the same and checks records more slowly.
# Java is optional too: pipelines run on it (Spark). With Maven beside it the suite also runs Apache Kafka's own clients; `make bench-peers`
# and `bench-cluster` need both. With Chromium it opens pages. `make setup` installs what is missing from the system's packages if it may
# (root, apt-get), else says what to install; the rest works without.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.penstock-setup
UV_LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-slow check conformance bench bench-peers bench-cluster bench-queues bench-pipeline soak simulate package lock reference clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the locked dependencies and the project in it.

# Asked for by name, it also looks again for programs that were missing. The other targets do without them, and must not wait for that.
LOOK_AGAIN := $(if $(filter setup,$(MAKECMDGOALS)),look-again)
.PHONY: look-again

$(STAMP): pyproject.toml requirements/dev.lock $(wildcard setup.py src/penstock/*/*.pyx src/penstock/wire/*.pxi) $(LOOK_AGAIN)
	@$(PYTHON) scripts/set_up.py $(VENV) $(if $(filter-out look-again,$?),,--again)
	@touch $@

demo: setup ## Start a node, write keyed records, read them back; with Java, run a data pipeline on them.
	$(BIN)/python examples/demo.py

RECORDED = $(if $(filter-out 0 no,$(RECORD)),--record)
SUITE = $(BIN)/python scripts/suite.py $(RECORDED)
test: setup ## Run the suite (about five to ten minutes); ends with where the time went and what was skipped (TESTS=tests/wire).
	$(SUITE) $(TESTS)

test-fast: setup ## Run what takes a moment, of every package, without a JVM or a cluster (little more than a minute): after each edit.
	$(SUITE) --tier fast $(TESTS)

test-slow: setup ## Run more seeds, rounds and machines of what `make test` shows once.
	$(SUITE) --tier slow $(TESTS)

CHECKS = "ruff check ." mypy lint-imports "python scripts/reference.py --check" "python scripts/invariants.py --check" \
	"python scripts/tier_rules.py --collect" "python scripts/wall_clock.py" "python scripts/results.py"
check: setup ## Lint, types, layers, generated pages, invariants without a test, tiers and wall-clock deadlines of tests, results.
	@failed=; for check in $(CHECKS); do echo "$$check"; $(BIN)/$$check || failed="$$failed\n  $$check"; done; \
	if [ -n "$$failed" ]; then printf "failed:$$failed\n"; exit 1; fi

conformance: setup ## Fetch foreign clients and tools and play them against a node (TOOLS="kcat kafkajs").
	$(BIN)/python -m conformance $(RECORDED) $(TOOLS)

bench: setup ## Measure this node beside a bare loop, its queues, and the pipeline where Spark can run.
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.queues --alone
	$(BIN)/python -m benchmarks.pipeline --where-possible

bench-peers: setup ## The same beside Apache Kafka (needs Java 17 and Maven).
	$(BIN)/python -m benchmarks.peers

bench-cluster: setup ## Three nodes beside three of Apache Kafka, and how long a killed leader is missed (needs Java 17 and Maven).
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.failover

bench-queues: setup ## Queues beside moto and ElasticMQ (the latter needs Java 17 and Maven).
	$(BIN)/python -m benchmarks.queues

bench-pipeline: setup ## Source and sink for Spark beside Spark's own Kafka connector and plain loops (needs Java 17; Maven for the others).
	$(BIN)/python -m benchmarks.pipeline

soak: setup ## The long versions of the fault tests.
	$(SUITE) --tier soak $(TESTS)

SEEDS ?= 5000
CLUSTER_SEEDS ?= 1000
simulate: setup ## Run many simulated worlds, of one node and of clusters (SEEDS=5000 CLUSTER_SEEDS=1000).
	$(BIN)/penstock simulate --seeds $(SEEDS)
	$(BIN)/penstock simulate --cluster --seeds $(CLUSTER_SEEDS)

package: setup ## Build the wheel and the sdist into dist/.
	rm -rf build dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@ls -l dist

lock: ## Make requirements/*.lock anew from pyproject.toml.
	@$(PYTHON) scripts/make_venv.py $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip --disable-pip-version-check --quiet install uv
	$(UV_LOCK) --output-file requirements/run.lock
	$(UV_LOCK) --extra dev --output-file requirements/dev.lock

reference: setup ## Write docs/reference/ anew from the code.
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/invariants.py

clean: ## Remove what the other targets made.
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
