# One command installs everything, one runs everything that CI runs: `make help` lists them.
# Everything is installed into .venv in this checkout; nothing else on the machine changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
BENCH_STAMP := $(VENV)/.installed-bench

.DEFAULT_GOAL := help
.PHONY: help setup demo modules test test-python test-compose quick check simulation bench bench-cluster bench-features bench-latency \
  bench-idle bench-memory bench-scale bench-scheduling bench-trust bench-encryption bench-multilang bench-windows bench-state \
  bench-streams bench-nexmark bench-nexmark-peers bench-connectors bench-peers bench-spark bench-checkpoints \
  bench-report docs options constraints mutations audit sbom chaos soak format clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install the project's requirements into .venv (other targets do so if needed)

# A changed core is recompiled.
SOURCES := pyproject.toml constraints.txt hatch_build.py engine/squall_engine/core/compiled.pyx \
  $(wildcard engine/squall_engine/core/cython/*.pxi) engine/squall_engine/core/wire_format.py \
  worker/squall_worker/transport/ring/memory.pyx

# The second option is for what the build itself needs.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check \
  --constraint constraints.txt --build-constraint constraints.txt

define NEW_VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "error: Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
  echo "hint: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
  echo "error: $(PYTHON) has no venv module." >&2; \
  echo "hint: apt-get install python3-venv" >&2; exit 1; }
$(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --upgrade --disable-pip-version-check pip
endef

$(STAMP): $(SOURCES)
	@command -v java >/dev/null || { \
	  echo "error: no Java runtime found; ZooKeeper needs one." >&2; \
	  echo "hint: apt-get install default-jre-headless; make quick and make check need none" >&2; exit 1; }
	@echo "Installing into $(VENV) (once; the largest part is PySpark, which contains ZooKeeper) ..."
	$(NEW_VENV)
	$(PIP_INSTALL) -e '.[dev,spark]'
	@touch $(DEV_STAMP) $@

# What `make quick` and `make check` need: neither PySpark nor Java.
$(DEV_STAMP): $(SOURCES)
	@echo "Installing into $(VENV) what make quick and make check need (once) ..."
	$(NEW_VENV)
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

demo: $(STAMP) ## Word count on a real cluster of processes on this machine, checked
	$(BIN)/python deploy/demo.py

# Nothing to do for modules that are compiled as they are now.
modules: $(STAMP) ## Compile the modules of the engine that were changed, which run in Python until then
	@$(BIN)/python hatch_build.py

test: modules ## Run all tests that this machine can run, as CI does
	$(BIN)/python tests/run_all.py

# With an environment of its own below build, beside .venv.
OTHER = build/$(shell $(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])' || echo python)

test-python: ## Unit and component tests and the README's commands with another Python: PYTHON=python3.13
	$(MAKE) setup PYTHON=$(PYTHON) VENV=$(OTHER)
	$(OTHER)/bin/python tests/run_all.py unit component
	$(OTHER)/bin/python -m pytest -q tests/integration/test_readme.py

test-compose: $(STAMP) ## Test the cluster of deploy/compose in containers (needs Docker, or root to start it)
	$(BIN)/python -m pytest -v -s tests/compose

quick: $(DEV_STAMP) ## Lint, unit tests and changed tests: 30 seconds
	$(BIN)/python -m tests.quick

check: $(DEV_STAMP) ## Lint, types, unit tests except Spark's: three minutes on two free cores
	$(BIN)/python tests/run_all.py check

SEEDS ?= 300
simulation: $(STAMP) ## Simulate clusters with faults: SEEDS=n of them, or SEED=n with its trace
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS))

# Extra packages for benchmarks: plots, and a compiler for cores with a feature removed.
$(BENCH_STAMP): $(STAMP)
	$(PIP_INSTALL) --quiet -e '.[bench]'
	@touch $@

# Results go to build/bench; "python -m bench.report" writes them into docs/performance.md.
bench: $(BENCH_STAMP) ## Measure the headline figures: table, JSON and plot; not part of the tests
	$(BIN)/python -m bench headline

bench-cluster: $(BENCH_STAMP) ## Measure workers of a real cluster beside processes of the bench alone
	$(BIN)/python -m bench cluster

bench-features: $(BENCH_STAMP) ## Measure the cost of each default-on feature
	$(BIN)/python -m bench features

bench-latency: $(BENCH_STAMP) ## Measure complete latency at 1,000 messages a second
	$(BIN)/python -m bench latency

bench-windows: $(BENCH_STAMP) ## Measure what windows cost a tuple
	$(BIN)/python -m bench windows

bench-state: $(BENCH_STAMP) ## Measure state in memory and on disk
	$(BIN)/python -m bench state

bench-checkpoints: $(BENCH_STAMP) ## Measure what checkpoints cost with a million keys
	$(BIN)/python -m bench checkpoints

bench-streams: $(BENCH_STAMP) ## Measure streams against bolts written by hand
	$(BIN)/python -m bench streams

bench-nexmark: $(BENCH_STAMP) ## Measure the queries of Nexmark
	$(BIN)/python -m bench nexmark

bench-nexmark-peers: $(BENCH_STAMP) ## Run Nexmark on Apache Flink and Bytewax, too (installs them)
	$(BIN)/python -m bench nexmark-peers

bench-connectors: $(BENCH_STAMP) ## Measure a record in each connector, against real servers
	$(BIN)/python -m bench connectors

bench-idle: $(BENCH_STAMP) ## Measure CPU and memory of an idle cluster
	$(BIN)/python -m bench idle

bench-memory: $(BENCH_STAMP) ## Measure the memory of every process while a bolt is stuck
	$(BIN)/python -m bench memory

bench-scale: $(BENCH_STAMP) ## Scale workers, tasks, bytes and fan-out, to find a cliff
	$(BIN)/python -m bench scale

bench-scheduling: $(BENCH_STAMP) ## Time a scheduling round of clusters of 100 to 3,000 supervisors
	$(BIN)/python -m bench scheduling

bench-trust: $(BENCH_STAMP) ## Measure what a secured cluster costs, and withstands
	$(BIN)/python -m bench trust

bench-encryption: $(BENCH_STAMP) ## Measure two workers over TCP, plain and encrypted, and over shared memory
	$(BIN)/python -m bench encryption

bench-spark: $(BENCH_STAMP) ## Measure word count on Spark against hand-written PySpark
	$(BIN)/python -m bench spark

bench-multilang: $(BENCH_STAMP) ## Compare one shell bolt with bare pipes
	$(BIN)/python -m bench multilang

bench-peers: $(BENCH_STAMP) ## Run other systems on the same lines, including Apache Storm (installs them)
	$(BIN)/python -m bench peers

docs: $(DEV_STAMP) ## Build the site of docs/ into build/docs (open index.html; no server is needed)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "The site is in build/docs: open build/docs/index.html"

options: $(DEV_STAMP) ## Write defaults.yaml and the tables of docs/configuration.md
	$(BIN)/python -m squall_common.config.options

constraints: $(STAMP) ## Write constraints.txt: the newest versions within the bounds of pyproject.toml
	$(BIN)/python -m tests.constraints

audit: $(DEV_STAMP) ## Look for known vulnerabilities of the locked packages: DATABASE=all.zip without the service
	$(BIN)/python -m deploy.supply.audit $(if $(DATABASE),--database $(DATABASE))

sbom: $(STAMP) ## Write the bill of materials of a release into dist (CycloneDX)
	$(BIN)/python -m deploy.supply.sbom

bench-report: $(BENCH_STAMP) ## Write the results into docs/performance.md
	$(BIN)/python -m bench.report

mutations: $(STAMP) ## Take each check of security away, in a copy: the test of each must fail
	$(BIN)/python -m tests.mutations

SECONDS ?= 60
SEED ?=
chaos: $(STAMP) ## Kill, stop and cut off everything: SECONDS=600 SEED=7 (some tests need root)
	SQUALL_STORM_SECS=$(SECONDS) SQUALL_STORM_SEED=$(SEED) \
	  $(BIN)/python -m pytest -s -v --timeout $$(( $(SECONDS) + 300 )) tests/chaos

soak: $(STAMP) ## Run simulation, property and chaos tests for hours, with far more random input
	$(BIN)/python -m tests.mutations
	$(BIN)/python -m tests.simulation --seeds 5000 --from 100000
	SQUALL_SOAK=1 $(BIN)/python -m pytest -q -n 2 tests/simulation
	SQUALL_SOAK=1 $(BIN)/python -m tests.native --secs 3600
	SQUALL_SOAK=1 $(BIN)/python -m pytest -q -n 2 --timeout 7200 tests/property
	SQUALL_SOAK=1 $(BIN)/python -m pytest -q tests/integration/test_topology_life.py \
	  tests/integration/test_dependencies.py tests/integration/test_exactly_once_kills.py \
	  tests/integration/test_exactly_once_kinds.py tests/integration/test_rescale.py \
	  tests/integration/test_checkpoint_faults.py tests/integration/test_secure_open_cluster.py \
	  tests/integration/test_ca_rotation.py
	SQUALL_SOAK=1 $(BIN)/python -m pytest -s -v --timeout 1800 tests/chaos
	SQUALL_SOAK=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/connectors

format: $(DEV_STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything installed and built here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: bench-drpc
bench-drpc: $(STAMP) ## Measure DRPC requests per second and latency, beside a bare Thrift server
	$(BIN)/python -m bench.drpc
