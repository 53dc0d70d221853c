# Every target does its own set-up: the stamp makes the second call install nothing.
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
WORKERS ?= 2
ARGS ?=

.PHONY: help run test test-gpu lint format bench bench-gpu setup clean

help:
	@echo "make run     two comparisons of four builds, with tables and plots under runs/"
	@echo "make test    lint, types, import layers and every test"
	@echo "make test-gpu  the kernels' tests on the CPU (installs torch and triton into .venv-gpu)"
	@echo "make lint    ruff, pyright, import-linter"
	@echo "make format  ruff format and its import order"
	@echo "make bench   the benchmarks (one core)"
	@echo "make bench-gpu  the kernels against their floors on a GPU (PYTHON with torch and triton)"
	@echo "make clean   remove what the other targets made"

run: $(STAMP)
	@$(BIN)/kvtwin compare agentic agent_layers --out runs $(ARGS)

test: lint
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -o python_files='bench_*.py' --benchmark-enable --benchmark-only $(ARGS)

# The kernels' tests on the CPU: torch reference and Triton interpreter, in a venv of their own.
test-gpu:
	@test -d .venv-gpu || $(PYTHON) -m venv .venv-gpu
	@.venv-gpu/bin/python -m pip install -qq torch==2.13.0 'triton>=3.7.1' numpy hypothesis pytest
	.venv-gpu/bin/python -m pytest property_tests/gpu_room -o addopts='' --ignore property_tests/gpu_room/on_device $(ARGS)

# Needs a Python with torch and Triton and a GPU: make bench-gpu PYTHON=/path/to/python
bench-gpu:
	@mkdir -p runs
	$(PYTHON) -m gpu_backend.bench --out runs/bench-gpu.json $(ARGS)

setup: $(STAMP)

# The build back end comes from the pinned set too, so nothing is fetched that constraints.txt does not name.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "kvtwin needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "installing the pinned packages into $(VENV) (about half a minute, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip setuptools
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .venv-gpu runs build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
