# Every target prepares the environment in .venv by itself; only python3 and make are needed.
# Another interpreter: make PYTHON=python3.13 setup (in a clone without .venv).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

TF_CPP_MIN_LOG_LEVEL ?= 3
export TF_CPP_MIN_LOG_LEVEL
CHECK_PYTHON := import sys; version = sys.version_info[:2]; \
	sys.exit(None if (3, 10) <= version <= (3, 13) else \
	"Got Python %d.%d, expected 3.10 to 3.13, for which TensorFlow has builds: call \
	make PYTHON=python3.13, for example." % version)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
TRY ?= full
# Of docs: more options of Sphinx, such as -D plot_gallery=0, which runs no tutorial.
DOCS ?=
# Of test-matrix: interpreters by name or path, versions, and which tests (see tests/tools/matrix.py).
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
ENDS ?= oldest newest
TESTS ?= fast
.PHONY: help setup test slow faults reliability test-matrix dist lint types docs demo bench \
	experiments-quick

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-20s %s\n' "$$target" "$$text"; done

# uv, since pip cannot replace what GPflow asks of NumPy (pyproject.toml) and takes twice as
# long. The bytecode is compiled here, because containers often let no later process write it,
# and TensorFlow then takes twice as long to load, each time. pip is for an index that only
# pip's settings name. __init__.py has the version, which an editable installation remembers.
$(STAMP): setup.cfg pyproject.toml constraints.txt gpflow_pep/__init__.py
	@test -x $(BIN)/pip || $(PYTHON) -c '$(CHECK_PYTHON)'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV): uv downloads some 800 MB (TensorFlow is 550 MB), unless its'
	@echo 'cache has them, and compiles the bytecode. The environment takes 3 GB.'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(BIN)/python -m uv pip install --python $(BIN)/python --compile-bytecode \
		--constraint constraints.txt --editable '.[dev,docs]' \
		|| $(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

setup: $(STAMP)  ## create .venv and install the package with all it needs (once)

test: $(STAMP)  ## run the tests, except the slow ones
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 $(BIN)/python -m pytest -n 2 \
		-m "not slow and not reliability"

slow: $(STAMP)  ## run the tests that take long or gigabytes
	$(BIN)/python -m pytest -m slow

faults: $(STAMP)  ## break the package in many places, one at a time, and see the tests notice
	$(BIN)/python tests/tools/faults.py

reliability: $(STAMP)  ## run the campaign of docs/performance.rst; TRY=quick or TRY=long for less or more
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OPENBLAS_NUM_THREADS=1 \
		$(BIN)/python -m pytest tests/reliability -n 2 --size $(TRY) \
		--table docs/figures/reliability.txt

test-matrix: $(STAMP)  ## test the wheel, with the oldest and the newest versions (PYTHONS=..., TESTS=rooms)
	$(BIN)/python tests/tools/matrix.py --pythons $(PYTHONS) --ends $(ENDS) --tests $(TESTS) \
		--table docs/figures/compatibility.txt

dist: $(STAMP)  ## build sdist and wheel in dist, check them, and try the wheel in an empty environment
	$(BIN)/python tests/tools/release.py

lint: $(STAMP)  ## check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## check the types with mypy
	$(BIN)/mypy

docs: $(STAMP)  ## build the documentation in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -b html $(DOCS) docs docs/_build/html

demo: $(STAMP)  ## compare models on data of scikit-learn; reports in demo-output
	$(BIN)/gpflow-pep compare --example diabetes --folds 3 --out demo-output/diabetes
	$(BIN)/gpflow-pep compare --example chirp --out demo-output/chirp
	$(BIN)/gpflow-pep compare --example wine --folds 2 --out demo-output/wine

bench: $(STAMP)  ## run the benchmarks beside GPflow (minutes, gigabytes)
	set -e; for script in examples/benchmarks/[a-z]*.py; do \
		$(BIN)/python -m examples "$$(basename "$$script" .py)"; done

experiments-quick: $(STAMP)  ## redo every figure of the papers' experiments from few cells (minutes)
	$(BIN)/python -m examples byt17 --quick --jobs 2 --out experiments-output/byt17
	$(BIN)/python -m examples vh20 --quick --jobs 2 --out experiments-output/vh20
