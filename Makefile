# Every target makes the virtual environment it needs first. PYTHON chooses the interpreter: make PYTHON=python3.12 test
PYTHON ?= python3
BIN := .venv/bin
# Tests of one file stay in one process: they share what is compiled for it.
SPREAD := -n auto --maxprocesses 4 --dist loadscope --timeout-method thread
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint bench sbi-python reproduce reproduce-full clean

help:  ## show this list
	@echo "make <target>, where target is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-15s %s\n", $$1, $$2 }'

demo: .venv/demo-ready  ## infer the two-moons posterior, with a picture and a report in demo/
	$(BIN)/python -m aptinfer.demo --out demo

test: .venv/test-ready  ## the quick tests
	$(BIN)/python -m pytest $(SPREAD) --timeout 300

test-slow: .venv/test-ready  ## the long statistical tests
	$(BIN)/python -m pytest -m slow $(SPREAD) --timeout 5400

lint: .venv/test-ready  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: sbi-python .venv/bench-ready  ## speed against sbi; SBI_PYTHON names its interpreter (benchmarks/README.md)
	$(BIN)/python benchmarks/vs_sbi.py --peer-python "$(SBI_PYTHON)"

reproduce: .venv/bench-ready  ## every figure of the paper, small: a report in build/reproduce/
	$(BIN)/python -m experiments.run --quick
	$(BIN)/python -m experiments.report --quick

reproduce-full: .venv/bench-ready  ## the paper's rounds and seeds, on a GPU; goes on where it was stopped
	$(BIN)/python -m experiments.run
	$(BIN)/python -m experiments.report

sbi-python:
	@if [ -z "$(SBI_PYTHON)" ]; then \
		echo "make bench compares with sbi, which needs an environment of its own (benchmarks/README.md):"; \
		echo "  make bench SBI_PYTHON=sbi-env/bin/python"; \
		exit 2; \
	fi

clean:  ## remove the virtual environment, caches and the demo's output
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "aptinfer needs Python 3.11 or newer, and $(PYTHON) is not: make PYTHON=/path/to/python3.11 ..." >&2; \
		exit 1; \
	}
	@echo "Making the virtual environment .venv ..."
	@$(PYTHON) -m venv .venv

.venv/demo-ready: pyproject.toml | .venv/bin/python
	@echo "Installing aptinfer and matplotlib into .venv ..."
	@$(PIP) -e ".[plot]"
	@touch $@

.venv/test-ready: pyproject.toml | .venv/bin/python
	@echo "Installing aptinfer and the test tools into .venv ..."
	@$(PIP) -e ".[test]"
	@touch $@

.venv/bench-ready: pyproject.toml | .venv/bin/python
	@echo "Installing aptinfer and the benchmark tools into .venv ..."
	@$(PIP) -e ".[bench]"
	@touch $@
