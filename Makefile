# Two commands do everything: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
# Idle OpenMP threads must sleep: two busy torch processes on the same cores otherwise slow each other a hundredfold.
export OMP_WAIT_POLICY ?= passive

.PHONY: setup demo test check mutants fuzz faults kills soak sbom lock docs clean

setup: $(VENV)/.tests-ready
	@echo "Ready: run . $(BIN)/activate to put regard on the path, then regard --help."

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP) torch
	$(PIP) --editable .
	@touch $@

# The oracles are other people's programs; kenlm is compiled, so a machine without a compiler goes on without it.
$(VENV)/.tests-ready: $(VENV)/.ready
	$(PIP) --editable '.[test]'
	$(PIP) kenlm || echo "kenlm could not be built here: the tests that compare with it will be skipped"
	@command -v chromium >/dev/null || $(AS_ROOT) apt-get install --yes --quiet chromium >/dev/null 2>&1 || \
	  echo "Chromium could not be installed here: the tests of the lab in a browser will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/npm axe-core >/dev/null 2>&1 || \
	  echo "axe-core could not be taken from npm: the tests of the lab's accessibility will be skipped"
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/regard demo

# One process per core, one thread each; the tests of a file stay together, since they share what they train. The longest
# files come first (tests/conftest.py). What is compiled is kept for the hundreds of processes that tests start.
test: $(VENV)/.tests-ready
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.tests-ready
	$(BIN)/ruff check src tests tools studies
	$(BIN)/ruff format --check --quiet src tests tools studies
	$(BIN)/mypy
	$(BIN)/python tools/typed_docs.py
	$(BIN)/python tools/plain_english.py

# Would the tests notice? Small faults in copies of the source: which of them are killed, package by package.
mutants: $(VENV)/.tests-ready
	OMP_NUM_THREADS=1 $(BIN)/python tools/mutants.py $(ARGUMENTS)

# New damaged files, runs, settings and command lines, SECONDS of each kind; a defect is shown with the input that causes it.
fuzz: $(VENV)/.tests-ready
	REGARD_FUZZ_SECONDS=$(or $(SECONDS),120) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s tests/fuzz

# Every write of a save fails, or the process dies there: is anything lost?
faults: $(VENV)/.tests-ready
	OMP_NUM_THREADS=1 $(BIN)/python tools/fault_injection.py $(ARGUMENTS)

# Every verb that writes is killed TIMES times at random moments, and goes on: is anything lost?
kills: $(VENV)/.tests-ready
	OMP_NUM_THREADS=1 $(BIN)/python tools/fault_injection.py --kills $(or $(TIMES),30) $(ARGUMENTS)

# Train, resume, generate, translate and serve for MINUTES: do memory, files, threads and the cache stay as they are?
soak: $(VENV)/.tests-ready
	OMP_NUM_THREADS=1 $(BIN)/python tools/soak.py --minutes $(or $(MINUTES),60)

# What Regard is made of, as CycloneDX JSON in sbom.json; the licences as a table.
sbom: $(VENV)/.tests-ready
	$(BIN)/python tools/sbom.py > sbom.json
	$(BIN)/python tools/sbom.py --licences

# requirements.lock: the versions of constraints.txt that the server needs, with the SHA-256 of every file that PyPI has of
# them. uv checks those of a constraint; pip would then ask for the hash of everything, also of a torch from elsewhere.
lock: $(VENV)/.ready
	$(PIP) uv==0.13.7
	printf 'hatchling\nuv==0.13.7\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate \
	  --constraint constraints.txt --no-emit-package torch --custom-compile-command "make lock" \
	  --output-file requirements.lock pyproject.toml -

# The documentation as one site in build/site, which needs no network and no server: open build/site/index.html.
docs: $(VENV)/.ready
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . build/site
	@echo "Open build/site/index.html in a browser."

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
