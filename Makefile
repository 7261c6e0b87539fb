# Outpace: set-up, tests, demo and benchmark. `make` alone lists the targets.

PYTHON ?= python3
WORKERS ?= 2
MINUTES ?= 10
BENCH ?= --host local --workload w1,w1n,w1t,w1k,w2,w2k,w3a,w3b,w4s,w4r,w5t,w5c --n 4000000 --json

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/lock.txt

# The stamp carries a checksum of what decides the environment's content, so a changed lock or
# pyproject (or a moved folder) sets it up again and anything else starts at once.
KEY := $(shell { cat $(LOCK) pyproject.toml; echo '$(CURDIR)'; } | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.ready-$(KEY)

# One folder for compiled kernels, shared by all test workers and by the next run.
export NUMBA_CACHE_DIR ?= $(CURDIR)/build/numba
KERNELS := $(shell cat src/outpace/engine/kernels/*.py src/outpace/simulate/kernels/*.py $(LOCK) | cksum | cut -d ' ' -f 1)
WARM := $(NUMBA_CACHE_DIR)/.warm-$(KERNELS)

.DEFAULT_GOAL := help
.PHONY: help setup java postgres test lint unit soak demo bench chaos format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) java postgres ## create .venv from the lock file; as root on Debian or Ubuntu, install Java and PostgreSQL with apt where they are missing

$(READY):
	@$(PYTHON) scripts/check_python.py
	@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.ready-*
	@touch $@

# Tests, demo and benchmark run compiled code; without this each would compile it as it goes.
$(WARM): | $(READY)
	$(BIN)/python -m outpace.hosts.compile
	@rm -f $(NUMBA_CACHE_DIR)/.warm-*
	@touch $@

# Only Spark needs Java, so a machine without it is told how to get it and goes on.
java:
	@sh scripts/java.sh

# Only the sink into PostgreSQL needs a server, and only in the tests.
postgres: | java
	@sh scripts/postgres.sh

# Types are checked while kernels are compiled: each keeps a core busy for a minute.
test: setup ## run everything CI runs: linters, types, import rules, tests, doctests, docs; installs what setup does
	@$(MAKE) --jobs 2 lint $(WARM)
	@$(MAKE) unit

lint: $(READY) ## run ruff, mypy --strict and the import rules; needs .venv alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: setup $(WARM) ## run the tests only, after setup; choose with ARGS, for example ARGS="tests/unit -k parser"
	$(BIN)/python -m pytest -n $(WORKERS) --durations 10 --junitxml build/durations.xml $(ARGS)

soak: setup $(WARM) ## after setup, simulate the operator for MINUTES=10, run the tests that take long, every property with new examples, and chaos; takes hours
	$(BIN)/python -m outpace.testing.simulation --minutes $(MINUTES)
	$(BIN)/python -m pytest -m soak $(ARGS)
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n $(WORKERS) tests/unit tests/conformance
	$(MAKE) chaos

demo: $(READY) $(WARM) ## run the demo, on Spark where there is Java; needs .venv alone
	$(BIN)/outpace demo

bench: $(READY) $(WARM) ## run the benchmark; needs .venv alone; choose with BENCH="--host local --workload w1 --n 1000000"
	$(BIN)/outpace bench $(BENCH)

chaos: setup $(WARM) ## after setup, kill streaming queries 200 times and compare; one run again with SEED=17, some with CHAOS="--query speculative"
	PYTHONPATH=tests $(BIN)/python -m chaos $(if $(SEED),--seed $(SEED)) $(CHAOS)

format: $(READY) ## sort imports and format the code; needs .venv alone
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve the dependencies again and write the lock file
	$(PYTHON) scripts/check_python.py
	test -x build/lock/bin/uv || { $(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	build/lock/bin/uv pip compile pyproject.toml --extra spark --extra postgres --extra dev \
	  --universal --python-version 3.11 --upgrade --generate-hashes --quiet \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header --output-file $(LOCK)

clean: ## remove the environment, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
