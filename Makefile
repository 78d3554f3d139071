# Every target first makes what it needs. `make help` lists the targets.
GPU_PYTHON ?= python3
QUICK ?=
MINUTES ?= $(if $(QUICK),5,60)
ONLY ?=
TURNS ?=
NAME ?=
SEED ?= 0
WORKS ?= W1 W1b64 W2 W3 W4
VENV := .venv
TORCH := torch==2.13.0
LOWEST := build/lowest
LOWEST_ENGINES := build/lowest-engines
LOWEST_TORCH ?= $(TORCH)

# On Windows, the interpreter and the folder of an environment's programs have other names.
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
.PHONY: help demo test test-slow lint types complexity format docs docs-check site pictures hooks check test-lowest dist clean campaign results results-confirm results-check bench bench-cases bench-peers bench-ray bench-gpu

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.installed ## install into .venv, then compare three strategies on the embedded digits data set
	@$(BIN)/fedcohort compare experiments/quickstart.toml

test: $(VENV)/.dev ## install with the development tools, and run the tests
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.site ## run all tests, including the slow ones
	@$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev ## run ruff, check the format, the types and the cognitive complexity
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy benchmarks
	@$(BIN)/complexipy --failed --plain

types: $(VENV)/.dev ## check the types only
	@$(BIN)/mypy
	@$(BIN)/mypy benchmarks

complexity: $(VENV)/.dev ## list the functions whose cognitive complexity is above 15
	@$(BIN)/complexipy --failed --plain

format: $(VENV)/.dev ## format the code, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/.dev ## update the generated parts of the pages
	@$(BIN)/python docs/generate.py

docs-check: $(VENV)/.dev ## list the pages whose generated parts are out of date
	@$(BIN)/python docs/generate.py --check

site: $(VENV)/.site ## build the site of the documentation into build/site; a broken link or an undocumented public name is an error
	@$(BIN)/python docs/site/build.py

pictures: $(VENV)/.dev ## make the pictures of docs/report.md again; needs Chromium
	@$(BIN)/python docs/pictures.py

hooks: $(VENV)/.dev ## run the quick checks before every commit in this clone
	@$(BIN)/pre-commit install

campaign: $(VENV)/.dev ## attack the package for an hour on two cores (QUICK=1: five minutes; ONLY="kills cuts"; KEEP=1 keeps the figures)
	@$(BIN)/python -m tests.campaign --minutes $(MINUTES) --seed $(SEED) $(if $(ONLY),--only $(ONLY)) $(if $(KEEP),--write)

results: $(VENV)/.dev ## make measured results anew (NAME="quickstart x86"; without it, list all of them; NAME=atlas MINUTES=30 adds to it), and update the pages
	@$(BIN)/python -m results $(NAME) $(if $(filter command,$(origin MINUTES)),--minutes $(MINUTES))
	@$(if $(NAME),$(BIN)/python docs/generate.py)

results-confirm: $(VENV)/.dev ## repeat some runs of results that are older than the code, and note that they give the same (NAME="atlas quickstart")
	@$(BIN)/python -m results --confirm $(NAME)
	@$(BIN)/python docs/generate.py

results-check: $(VENV)/.dev ## list the results that are older than a change of what they depend on
	@$(BIN)/python -m results --check

bench: $(VENV)/.dev ## compare the plans with a bare loop, measure growth and overhead; needs an idle machine (QUICK=--quick for a trial; KEEP=1 keeps the figures)
	@$(BIN)/python benchmarks/bench.py $(QUICK)
	@$(BIN)/python benchmarks/overheads.py $(QUICK)

bench-cases: $(VENV)/.dev ## compare many networks, algorithms and cohorts with bare loops in half an hour (ONLY="w2 lstm" TURNS=3); needs an idle machine
	@$(BIN)/python -m benchmarks.cases $(if $(ONLY),--only $(ONLY)) $(if $(TURNS),--turns $(TURNS))
	@$(BIN)/python docs/generate.py

bench-peers: $(VENV)/.installed ## compare with other simulators, each in its own environment under build/peers
	@$(PYTHON) benchmarks/peers/install.py build/peers
	@$(BIN)/python benchmarks/bench.py --peers build/peers $(QUICK)

bench-ray: $(VENV)/.dev ## compare rounds on a private Ray cluster with local rounds; needs an idle machine (QUICK=--quick for a trial; KEEP=1 keeps the figures)
	@$(BIN)/python benchmarks/cluster.py $(QUICK) $(if $(KEEP),--keep)

bench-gpu: ## benchmark W1 to W4 on a GPU, without installing anything (GPU_PYTHON=python3.12 WORKS="W2 W4")
	@PYTHONPATH=src $(GPU_PYTHON) benchmarks/bench.py --device cuda --works $(WORKS) --seconds 200 --limit 120 --out build/bench-gpu.json $(QUICK)

test-lowest: $(LOWEST)/.installed $(LOWEST_ENGINES)/.installed ## run the fast tests with the lowest versions of the direct dependencies, those of Ray and Flower in an environment of their own
	@$(LOWEST)/$(SCRIPTS)/python -m pytest -n auto --dist worksteal -m "not slow" -p no:cacheprovider
	@$(LOWEST_ENGINES)/$(SCRIPTS)/python -m pytest -m "not slow" -p no:cacheprovider tests/engines/cluster tests/flower

check: lint test ## run everything that must pass: lint and test

dist: $(VENV)/.dev ## build and check the sdist and the wheel, and try the wheel in a new environment
	rm -rf dist build/dist-check
	@$(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*
	@$(PYTHON) -m venv build/dist-check/venv
	@$(TRIAL)/python $(PIP) install $(TORCH)
	@$(TRIAL)/python $(PIP) install -c constraints.txt dist/*.whl
	@mkdir build/dist-check/empty
	@cd build/dist-check/empty && PYTHONPATH= ../venv/$(SCRIPTS)/fedcohort --version
	@cd build/dist-check/empty && PYTHONPATH= ../venv/$(SCRIPTS)/fedcohort doctor
	@cd build/dist-check/empty && PYTHONPATH= ../venv/$(SCRIPTS)/fedcohort compare --quiet

# torch is installed first and alone, so that the packages installed later do not install another version
$(VENV)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FedCohort needs Python 3.11 or later: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV); on Debian: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python $(PIP) install $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@$(BIN)/python $(PIP) install -c constraints.txt -e '.[hub]'
	@touch $@

# the versions that pyproject.toml names as the lowest ones, of everything but torch: LOWEST_TORCH=torch==2.6.0 takes that as well
# In LOWEST_ENGINES, the lowest Ray and Flower are installed afterwards, and raise those of the lowest versions that are too old for them.
$(LOWEST)/.installed $(LOWEST_ENGINES)/.installed: pyproject.toml tests/lowest_versions.py
	@$(PYTHON) -m venv --clear $(@D)
	@$(PYTHON) tests/lowest_versions.py > $(@D)/lowest.txt
	@$(@D)/$(SCRIPTS)/python $(PIP) install 'pip>=25.1' $(LOWEST_TORCH)
	@$(@D)/$(SCRIPTS)/python $(PIP) install -c $(@D)/lowest.txt -e '.[hub]' --group test
	@$(if $(filter $(LOWEST_ENGINES)%,$@),$(@D)/$(SCRIPTS)/python $(PIP) install $$($(PYTHON) tests/lowest_versions.py flower ray))
	@touch $@

# pip supports dependency groups since version 25.1
$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python $(PIP) install -c constraints.txt 'pip>=25.1'
	@$(BIN)/python $(PIP) install -c constraints.txt -e . --group dev
	@touch $@

$(VENV)/.site: $(VENV)/.dev
	@$(BIN)/python $(PIP) install -c constraints.txt -e . --group site
	@touch $@

clean: ## remove the environment, caches and builds, but not the runs
	rm -rf $(VENV) .complexipy_cache .mypy_cache .ruff_cache .pytest_cache build dist
