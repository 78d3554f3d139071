# Every target makes what it needs; `make help` lists them.
GPU_PYTHON ?= python3
QUICK ?=
WORKS ?= W1 W1b64 W2 W3 W4
VENV := .venv
TORCH := torch==2.13.0

# Windows names the interpreter and the folder of an environment's programs differently.
ifeq ($(OS),Windows_NT)
PYTHON ?= python
SCRIPTS := Scripts
else
PYTHON ?= python3
SCRIPTS := bin
endif
BIN := $(VENV)/$(SCRIPTS)
PIP := -m pip --disable-pip-version-check -q
TRIAL := build/dist-check/venv/$(SCRIPTS)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint types complexity format docs docs-check hooks check dist clean bench bench-peers bench-gpu

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

types: $(VENV)/.dev ## strict types alone
	@$(BIN)/mypy

complexity: $(VENV)/.dev ## list the functions whose cognitive complexity is above 15
	@$(BIN)/complexipy --failed --plain

format: $(VENV)/.dev ## format, and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/.installed ## write the generated parts of the pages anew
	@$(BIN)/python docs/generate.py

docs-check: $(VENV)/.installed ## name the pages whose generated parts are out of date
	@$(BIN)/python docs/generate.py --check

hooks: $(VENV)/.dev ## run the quick checks before every commit in this clone
	@$(BIN)/pre-commit install

bench: $(VENV)/.installed ## FedCohort's plans against a bare loop, growth and overhead; on a quiet machine (QUICK=--quick for a look)
	@$(BIN)/python benchmarks/bench.py $(QUICK)
	@$(BIN)/python benchmarks/overheads.py $(QUICK)

bench-peers: $(VENV)/.installed ## the same beside other simulators, in environments of their own under build/peers
	@$(PYTHON) benchmarks/peers/install.py build/peers
	@$(BIN)/python benchmarks/bench.py --peers build/peers $(QUICK)

bench-gpu: ## W1 to W4 on a GPU with the Python that is there: nothing is installed (GPU_PYTHON=python3.12 WORKS="W2 W4")
	@PYTHONPATH=src $(GPU_PYTHON) benchmarks/bench.py --device cuda --works $(WORKS) --seconds 200 --limit 120 --out build/bench-gpu.json $(QUICK)

check: lint test ## what to run before a commit that matters

dist: $(VENV)/.dev ## build the sdist and the wheel, check them, and try the wheel in an environment of its own
	rm -rf dist build/dist-check
	@$(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*
	@$(PYTHON) -m venv build/dist-check/venv
	@$(TRIAL)/python $(PIP) install $(TORCH)
	@$(TRIAL)/python $(PIP) install -c constraints.txt dist/*.whl
	@mkdir build/dist-check/empty
	@cp experiments/quickstart.toml build/dist-check/empty
	@cd build/dist-check/empty && PYTHONPATH= ../venv/$(SCRIPTS)/fedcohort --version
	@cd build/dist-check/empty && PYTHONPATH= ../venv/$(SCRIPTS)/fedcohort compare quickstart.toml --quiet

# torch first, on its own: a later range that it satisfies then installs nothing more
$(VENV)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FedCohort needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV); on Debian: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python $(PIP) install $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@$(BIN)/python $(PIP) install -c constraints.txt -e .
	@touch $@

# pip reads dependency groups since version 25.1
$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python $(PIP) install -c constraints.txt 'pip>=25.1'
	@$(BIN)/python $(PIP) install -c constraints.txt -e . --group dev
	@touch $@

clean: ## remove the environment and caches, not the runs
	rm -rf $(VENV) .complexipy_cache .mypy_cache .ruff_cache .pytest_cache build dist
