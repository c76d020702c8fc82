# Every target sets itself up: a virtual environment, once, from the pins in constraints/.
# What is needed beforehand: Python 3.11+, and Java 17+ for whatever runs Spark.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
LOCK := constraints/dev.txt
BENCH_VENV := .venv-bench
SPARK ?= 4.3.0
SPARK_VENV := .venv-spark-$(SPARK)
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3
ARGS ?=

# Sets the shell variable `python`, or says what is missing.
define find_python
python=; \
for candidate in $(if $(PYTHON),$(PYTHON),$(PYTHONS)); do \
  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
  echo "Python 3.11 or newer is needed; found $$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null || echo none). Name one with make PYTHON=/path/to/python" >&2; exit 1; \
fi; \
if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
  echo "$$python cannot make virtual environments: its venv module is missing (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; \
fi
endef

# $(call install,VENV,WHAT FOR,PIP ARGUMENTS)
define install
@$(find_python); \
echo "Setting up $(1) for $(2) with $$($$python --version), and compiling kernels: once, some minutes" >&2; \
[ -x $(1)/bin/python ] || "$$python" -m venv $(1); \
$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3)
@touch $@
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: java $(VENV)/.demo ## Read a log that a real LevelDB wrote with Spark; run a live pipeline that survives a kill
	@$(BIN)/python examples/demo.py

FORMATS := leveldb_log leveldb_table leveldb_database deephaven_log deephaven_table filodb_record milvus_binlog

.PHONY: kernels
kernels: $(VENV)/.dev ## Compile the library of kernels again, if their sources have changed since
	@$(BIN)/python -m sawlog.kernels.build --if-needed

# Half of the time of each start of Spark. It is kept elsewhere, so no file here could say that it is there.
.PHONY: archive
archive: java $(VENV)/.dev
	@$(BIN)/python -m sawlog warm-up >/dev/null

.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: java kernels archive ## Run the tests, those with Spark included, in four processes: some of them often wait for Spark
	$(BIN)/python -m pytest -n 4 --no-loadscope-reorder $(ARGS)

.PHONY: test-all
test-all: override ARGS += --all
test-all: test ## Run the tests with all samples of the laws, every bit of headers, and all parameter sets

.PHONY: test-heavy
test-heavy: $(VENV)/.dev ## Run what is too slow for every run: bounds checks in kernels, a full disk, an hour of streaming
	$(BIN)/python -m pytest -m heavy $(ARGS)

.PHONY: coverage
coverage: java $(VENV)/.dev ## Run the tests with branch coverage, and show what is not covered: make coverage ARGS="tests/cli"
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest --all $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report
	$(BIN)/python -m coverage html --quiet

KERNELS := src/sawlog/kernels/*,src/sawlog/*/kernels.py,src/sawlog/*/kernels/*,src/sawlog/*/*/kernels.py,src/sawlog/*/*/kernels/*

.PHONY: coverage-kernels
coverage-kernels: $(VENV)/.dev ## Run the tests of kernels as plain Python, with branch coverage
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run --rcfile=/dev/null --data-file=.coverage-kernels --branch --include='$(KERNELS)' \
	  -m pytest $$($(BIN)/python -c "from tests.kernels.test_checked import SMALL; print(*('tests/' + one for one in SMALL))")
	$(BIN)/python -m coverage report --rcfile=/dev/null --data-file=.coverage-kernels --show-missing

.PHONY: wheels
wheels: release-check ## Build the wheel, and try it with every Python that the machine offers

.PHONY: jars
jars: java $(VENV)/.dev ## Make the jars that wheels carry, each twice; fetches each supported Spark first: make jars ARGS=4.2.0
	$(BIN)/python tools/jars.py $(ARGS)

.PHONY: release-check
release-check: $(VENV)/.dev ## Build sdist and wheel, and try the wheel in a clean environment
	$(BIN)/python tools/release_check.py $(ARGS)

FORMAT ?= $(FORMATS)
MINUTES ?= 1
SEED ?= 1
JOBS ?= 2

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Try the laws on changed files, MINUTES for each: an hour each of two: make fuzz FORMAT="leveldb_log leveldb_table" MINUTES=60 SEED=1 JOBS=2
	$(BIN)/python -m sawlog.testing.fuzz $(FORMAT:%=tests.%.test_laws:TestLaws) $(if $(filter leveldb_database,$(FORMAT)),tests.leveldb_database.engines:Engines) --minutes $(MINUTES) --seed $(SEED) --jobs $(JOBS) $(ARGS)

# What the tree is compared with: a commit or a tag, the last release.
RELEASE ?= dc04f0f
RELEASE_VENV := .venv-release-$(RELEASE)

.PHONY: same
same: $(VENV)/.dev $(RELEASE_VENV)/.ready ## Compare rows, damage, accounts, repairs and output with the last release: make same ARGS="--count 1000"
	$(BIN)/python -m tests.same --release $(RELEASE_VENV)/bin/python $(ARGS)

.PHONY: house
house: $(VENV)/.dev ## Measure the house: lines, small modules, late imports, circles, and how many modules a read enters
	$(BIN)/python tools/house.py $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## Check style and formatting with Ruff, words with codespell, and that the house does not grow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/words.py
	$(BIN)/python tools/house.py --limits

.PHONY: format
format: $(VENV)/.dev ## Fix style and formatting with Ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: types
types: $(VENV)/.dev ## Check types with mypy
	$(BIN)/mypy

.PHONY: docs
docs: $(VENV)/.dev ## Build the documentation into site/
	$(BIN)/python tools/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(VENV)/.dev ## Serve the documentation on 127.0.0.1:8000
	$(BIN)/mkdocs serve

.PHONY: test-spark
test-spark: java $(SPARK_VENV)/.ready ## Run all Spark tests with another PySpark, JAR=1 with the jar: make test-spark SPARK=4.0.1
	SAWLOG_TEST_JAR=$(JAR) $(SPARK_VENV)/bin/python -m pytest tests/spark --all $(ARGS)

.PHONY: interop
interop: java $(VENV)/.interop ## Run the tests against real systems; fetches them first, needs Maven, Go, Cargo, g++, Node.js, Chromium
	@command -v mvn >/dev/null || { echo "Maven is needed to fetch the servers and connectors: no mvn on PATH" >&2; exit 1; }
	@command -v go >/dev/null || { echo "Go is needed to build what drives Pebble and goleveldb: no go on PATH" >&2; exit 1; }
	@command -v npm >/dev/null || { echo "Node.js is needed to fetch classic-level: no npm on PATH" >&2; exit 1; }
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "Chromium is needed to look at pages: no chromium on PATH (Debian: apt install chromium)" >&2; exit 1; }
	$(BIN)/python -m pytest -m interop $(ARGS)

SEEDS ?= 0:24

.PHONY: interop-newest
interop-newest: java $(VENV)/.interop ## Replay drawn workloads in the newest release of each database engine: make interop-newest SEEDS=0:24
	$(BIN)/python -m tests.interop.engines --newest --seeds $(SEEDS)

KILLS ?= 200

.PHONY: exactly-once
exactly-once: java $(VENV)/.dev ## Kill commits in every step, then what streams at random, and count rows, JAR=1 with the jar: make exactly-once KILLS=200
	$(BIN)/python -m tests.exactly_once.commits --kills $(KILLS)
	SAWLOG_TEST_JAR=$(JAR) $(BIN)/python -m tests.exactly_once --kills $(KILLS) $(ARGS)

.PHONY: bench
bench: export PYTHONDONTWRITEBYTECODE :=
bench: java $(BENCH_VENV)/.ready ## Measure against peers; fetches them first: make bench ARGS="leveldb_log --size 50MB"
	$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

.PHONY: report
report: $(VENV)/.dev ## Write benchmarks/results into docs/performance.md and docs/measurements.md
	$(BIN)/python -m benchmarks.report

.PHONY: lock
lock: ## Pin what pip takes today, in a clean environment
	@$(find_python); \
	rm -rf .venv-lock && "$$python" -m venv .venv-lock && \
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check "pyspark==4.2.0" ".[dev,spark,remote]" && \
	{ sed '/^[^#]/,$$d' $(LOCK); .venv-lock/bin/python -m pip freeze --exclude sawlog; } > $(LOCK).new && mv $(LOCK).new $(LOCK)
	@rm -rf .venv-lock

.PHONY: clean
clean: ## Delete environments, caches and everything built
	rm -rf src/sawlog/_jars src/sawlog/_native src/sawlog/_objects .venv .venv-* .cache build dist site out htmlcov .coverage* spark-warehouse metastore_db derby.log
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: java
java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	found=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	if [ "$${found:-0}" -lt 17 ]; then \
	  echo "Java 17 or newer is needed for Spark ($$java); found $${found:-none}. Install a JDK, or point JAVA_HOME at one" >&2; exit 1; \
	fi

$(VENV)/.demo: pyproject.toml $(LOCK)
	$(call install,$(VENV),the demo,-c $(LOCK) -e ".[spark]")

$(VENV)/.dev: pyproject.toml $(LOCK)
	$(call install,$(VENV),development,-c $(LOCK) -e ".[dev$(,)spark$(,)remote]")
	@touch $(VENV)/.demo

# dfindexeddb pins a python-snappy and a zstd that no longer build.
$(VENV)/.interop: $(VENV)/.dev constraints/bench.txt
	$(call install,$(VENV),tests against real systems,-c $(LOCK) -e ".[interop]" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $$(grep dfindexeddb constraints/bench.txt))

$(SPARK_VENV)/.ready: pyproject.toml $(LOCK)
	@mkdir -p .cache && sed 's/^pyspark==.*/pyspark==$(SPARK)/' $(LOCK) > .cache/constraints-spark-$(SPARK).txt
	$(call install,$(SPARK_VENV),PySpark $(SPARK),-c .cache/constraints-spark-$(SPARK).txt -e ".[dev$(,)spark$(,)remote]")

$(RELEASE_VENV)/.ready:
	@rm -rf .cache/$(RELEASE) && mkdir -p .cache/$(RELEASE) && git archive $(RELEASE) | tar -x -C .cache/$(RELEASE)
	$(call install,$(RELEASE_VENV),release $(RELEASE),-c .cache/$(RELEASE)/$(LOCK) "./.cache/$(RELEASE)[datastore$(,)milvus]")

# dfindexeddb's log reader does not need what it pins.
$(BENCH_VENV)/.ready: pyproject.toml $(LOCK) constraints/bench.txt
	$(call install,$(BENCH_VENV),the benchmarks,-c $(LOCK) -e ".[dev$(,)datastore$(,)spark]" "plyvel>=1.5.1" rocksdict "appengine-python-standard>=3.1" google-crc32c && \
	  $(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r constraints/bench.txt)

, := ,
