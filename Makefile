# Two commands do everything: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV   := .venv
READY  := $(VENV)/.ready
BIN    := $(VENV)/bin
# Idle OpenMP threads must sleep: two busy torch processes on the same cores otherwise slow each other a hundredfold.
export OMP_WAIT_POLICY ?= passive

.PHONY: setup demo test check clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/regard demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check --quiet src tests bench
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
