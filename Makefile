# make demo   design, run and grade a real problem with the embedded default
# make test   the tests (offline, no GPU, no key)
# make check  lint and types
# make test-all  also what needs heavy optional packages
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The published program that the demo runs, where a copy of it lies beside the project; else the demo's own.
PUBLISHED := $(wildcard ../shared/papers/designer-scripts/case1_single_agent.py)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check test-all bench clean

# One stamp per set of packages, so that nothing is installed twice.
$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"metaagent needs Python 3.11 to 3.13, this is {v.major}.{v.minor}; set PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(INSTALL) --editable ".[dev]"
	touch $@

$(VENV)/local: $(VENV)/dev
	$(INSTALL) --editable ".[dev,local]"
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(INSTALL) --editable ".[dev,bench]"
	touch $@

demo: $(VENV)/base
	$(BIN)/metaagent demo $(if $(PUBLISHED),--program $(PUBLISHED))

test: $(VENV)/dev
	$(BIN)/python -m pytest

check: $(VENV)/dev $(VENV)/bench
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

test-all: $(VENV)/local
	$(BIN)/python -m pytest

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.overhead

clean:
	rm -rf $(VENV) build *.egg-info
