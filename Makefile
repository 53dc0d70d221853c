# Every target does its own set-up: the stamp makes the second call install nothing.
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
GPU_STAMP := $(VENV)/installed-gpu
CLUSTER_STAMP := $(VENV)/installed-cluster
CROSSHAIR_STAMP := $(VENV)/installed-crosshair
WORKERS ?= 2
ARGS ?=

.PHONY: help run fuzz arithmetic test test-core test-gpu lint format bench bench-gpu setup clean

help:
	@echo "make run     two comparisons of four builds, with tables, and a page of each under runs/"
	@echo "make fuzz    half an hour of random programs on every correct build, kept in runs/fuzz-COMMIT; again: it goes on there"
	@echo "make arithmetic  the tests of page arithmetic by CrossHair, path by path"
	@echo "make test    lint, types, import layers and every test (installs torch and triton, as lint does)"
	@echo "make test-core  the tests that need no torch"
	@echo "make test-gpu   the tests of pools and kernels: on a GPU, else by torch and Triton's interpreter"
	@echo "make lint    ruff, pyright, import-linter"
	@echo "make format  ruff format and its import order"
	@echo "make bench   the benchmarks (one core)"
	@echo "make bench-gpu  the kernels against their floors on a GPU (GPU_PYTHON: one with torch and triton)"
	@echo "make clean   remove what the other targets made"

run: $(STAMP)
	@$(BIN)/kvtwin compare agentic agent_layers --out runs $(ARGS)

fuzz: $(STAMP)
	@$(BIN)/kvtwin fuzz --profile nightly --out runs/fuzz-$(shell git rev-parse --short HEAD) $(ARGS)

arithmetic: $(CROSSHAIR_STAMP)
	$(BIN)/pytest --hypothesis-profile=crosshair property_tests/fuzz/test_formulas.py $(ARGS)

# The types are read beside the tests, and told of where they are wrong.
test: $(GPU_STAMP) $(CLUSTER_STAMP)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright >$(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS); tested=$$?; \
	wait $$types || { typed=$$?; cat $(VENV)/types.log; exit $$typed; }; \
	exit $$tested

test-core: $(CLUSTER_STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore=property_tests/gpu_room $(ARGS)

test-gpu: $(GPU_STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal property_tests/gpu_room $(ARGS)

# pyright reads the types of torch, triton and Dask.
lint: $(GPU_STAMP) $(CLUSTER_STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -o python_files='bench_*.py' --benchmark-enable --benchmark-only --ignore=property_tests/gpu_room $(ARGS)

# A GPU's torch is often another than the pinned one: make bench-gpu GPU_PYTHON=/path/to/python installs nothing.
bench-gpu: $(if $(GPU_PYTHON),,$(GPU_STAMP))
	$(or $(GPU_PYTHON),$(BIN)/python) -m gpu_backend.bench --out runs/bench-gpu.json $(ARGS)

setup: $(STAMP)

# The build back end comes from the pinned set too, so nothing is fetched that constraints.txt does not name.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "kvtwin needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "installing the pinned packages into $(VENV) (about half a minute, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip setuptools
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $(STAMP)

# Only lint and the tests of gpu_backend want torch; who runs kvtwin never gets it.
$(GPU_STAMP): $(STAMP)
	@echo "installing torch and triton into $(VENV) (about half a minute, once)"
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable '.[gpu,train]'
	@touch $(GPU_STAMP)

# Campaigns on several machines, which the tests try on this one.
$(CLUSTER_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable '.[cluster]'
	@touch $(CLUSTER_STAMP)

$(CROSSHAIR_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable '.[crosshair]'
	@touch $(CROSSHAIR_STAMP)

clean:
	rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
