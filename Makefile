# masktax: what constrained decoding costs, stage by stage, and whether the masks are right.
# `make help` lists the targets. Every target sets up .venv by itself.

PYTHON ?= python3
VENV   ?= .venv
# The torch requirement that xgrammar's install is given. The default is the version the published numbers were taken
# with; on Linux its default build brings CUDA (gigabytes). Choose another, e.g.
#   make bench TORCH="torch --index-url <an index with CPU builds>"     or     make bench TORCH="torch==2.14.1"
TORCH  ?= torch==2.13.0
# What `make bench` runs, and extra arguments for it, e.g. ARGS="--set backend=xgrammar,llguidance"
SCENARIO ?= quick
ARGS   ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.set-up-by-make

.DEFAULT_GOAL := help
.PHONY: help setup bench verify conformance test test-all lint format report doctor clean clean-all

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+%?:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  variables: PYTHON=$(PYTHON)  VENV=$(VENV)  TORCH='$(TORCH)'  SCENARIO=$(SCENARIO)  ARGS='$(ARGS)'"

setup: $(STAMP) ## make .venv with the grammar libraries, vocabularies, report and test tools

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "masktax: $(PYTHON) is Python " + sys.version.split()[0] + "; 3.11 or newer is needed: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (torch requirement: $(TORCH)) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all]'
	@touch $@

# 1 means that an outcome was not the expected one: the report shows which, so it is made all the same.
define bench
@$(BIN)/masktax run $(1) $(ARGS); status=$$?; \
  if [ $$status -le 1 ]; then $(BIN)/masktax report || exit $$?; fi; exit $$status
endef

bench: $(STAMP) ## run the quick scenario over four grammar libraries, then write its report
	$(call bench,$(SCENARIO))

bench-%: $(STAMP) ## the same for any other scenario: bench-threshold, bench-tax … (scenarios/NAME.toml)
	$(call bench,$*)

verify: $(STAMP) ## run every built-in cell untimed: are the masks right, and are the outcomes the expected ones?
	$(BIN)/masktax verify scenarios/*.toml

conformance: $(STAMP) ## the official JSON Schema test suite through the reference engine, byte by byte
	$(BIN)/masktax conformance --optional --format

test: $(STAMP) ## the quick tests
	$(BIN)/pytest -m "not heavy"

test-all: lint ## lint, and all tests, the heavy ones too
	$(BIN)/pytest -m ""

lint: $(STAMP) ## formatting, lint, types, and the wall between worker and manager side
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

report: $(STAMP) ## the report of the newest run (or RUN=results/NAME)
	$(BIN)/masktax report $(RUN)

doctor: $(STAMP) ## what is installed here, and what will be skipped and why
	$(BIN)/masktax doctor

clean: ## remove caches and build leftovers; results, reports and .venv stay
	rm -rf .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find harness tests -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## also remove the environment that make set up
	rm -rf $(VENV)
