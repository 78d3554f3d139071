# Every target makes what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format docs check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.installed ## install into .venv, then compare three strategies on the embedded digits
	@$(BIN)/fedcohort compare experiments/quickstart.toml

test: $(VENV)/.dev ## install with the dev tools and run the tests
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev ## the slow tests too
	@$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev ## ruff, format check, strict types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev ## format, and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/.installed ## write the generated parts of the pages anew
	@$(BIN)/python docs/generate.py

check: lint test ## what to run before a commit that matters

# torch first, on its own: a later range that it satisfies then installs nothing more
$(VENV)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FedCohort needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV); on Debian: apt-get install python3-venv"; exit 2; }
	@$(PIP) install $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

clean: ## remove the environment and caches, not the runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
