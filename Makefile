PYTHON ?= python3
BIN := .venv/bin
# both: old and new pip obey one each; the build backend is pinned too
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Another OpenBLAS kernel rounds differently: what decides something is tested with two
KERNEL ?= Prescott
DECIDING := tests/solvers tests/contracts/test_solvers.py tests/test_ranks.py tests/test_verdicts.py \
  tests/test_borderline.py tests/test_completion.py tests/test_fitting.py tests/integration/test_recover.py
# What calls other packages is also tested with their oldest versions: arrays, linear algebra with its
# fallbacks in every solver, files, tables, scikit-learn's checks, Dask, the server, commands, plots, reports
USING := tests/tensor tests/operators tests/interop tests/io tests/cluster tests/test_arrays.py tests/test_pictures.py \
  tests/contracts/test_array_kinds.py tests/contracts/test_formats.py tests/contracts/test_operators.py \
  tests/robustness/test_numerical_failure.py tests/robustness/test_sparse_matrices.py \
  tests/estimators/test_checks.py tests/app/test_server.py tests/integration/test_cli.py \
  tests/integration/test_complete_command.py tests/integration/test_video_command.py
TOOLS := array-api-strict hypothesis ipykernel nbclient psutil pylops pyproximal pytest pytest-xdist
# scikit-learn 1.6 gives pytest 9 a generator of checks
GENERATOR := "ignore:Passing a non-Collection iterable:pytest.PytestRemovedIn10Warning"

.PHONY: help setup demo test slow kernel minimum lint types bench docs dist format clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: .venv/.ready ## make .venv with all that tests and benchmarks need

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lowtucker needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: setup      ## the main job on an embedded default
	$(BIN)/lowtucker demo

# Hundreds of processes would compile the package anew where bytecode is not written
unexport PYTHONDONTWRITEBYTECODE
# A file's fixtures (clusters, servers, reports) are made by one of the workers
PARALLEL := -m pytest --numprocesses auto --dist loadfile
PYTEST := $(BIN)/python $(PARALLEL)

test: setup      ## all tests but the slow ones, on all cores: six minutes on two
	$(PYTEST) -m "not slow"

slow: setup      ## the slow tests: browser, gallery, kills, clusters, statistics
	$(PYTEST) -m slow

kernel: setup    ## what decides something (solvers, ranks, verdicts), with the rounding of another CPU
	OPENBLAS_CORETYPE=$(KERNEL) $(PYTEST) -m "not slow" $(DECIDING)

minimum: .venv-minimum/.ready ## what uses other packages, with the oldest versions that pyproject.toml allows
	.venv-minimum/bin/python $(PARALLEL) -m "not slow" -W $(GENERATOR) $(USING)

# Pins of constraints.txt complete those of constraints-minimum.txt; without wheels (Python 3.13) pip says so
.venv-minimum/.ready: pyproject.toml constraints.txt constraints-minimum.txt
	rm -rf .venv-minimum
	$(PYTHON) -m venv .venv-minimum
	awk -F== '{ name = tolower($$1); gsub("_", "-", name) } !seen[name]++' \
	  constraints-minimum.txt constraints.txt > .venv-minimum/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/.venv-minimum/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/.venv-minimum/constraints.txt \
	  .venv-minimum/bin/python -m pip install --quiet --only-binary :all: --editable ".[all]" $(TOOLS)
	@touch $@

lint: setup      ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup     ## strict type check
	$(BIN)/mypy

bench: setup     ## the numbers that BENCHMARKS asks for
	$(BIN)/lowtucker bench iteration
	$(BIN)/lowtucker bench recover
	$(BIN)/lowtucker bench structured
	$(BIN)/lowtucker bench realdata
	$(BIN)/lowtucker bench dask

docs: setup      ## the documentation, into docs/_build/html; runs all examples: two minutes
	$(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html -d docs/_build/doctrees
	@echo "open docs/_build/html/index.html"

dist: setup      ## wheel and sdist, used in an empty environment: a minute
	$(BIN)/python tools/check_distribution.py

format: setup    ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove what was made
	rm -rf .venv .venv-minimum .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build out
	rm -rf docs/_build docs/gallery docs/api/generated docs/api/examples
