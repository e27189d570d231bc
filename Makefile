# What CI runs, by name. `make demo` and `make test` do everything on a fresh machine; no target
# needs another to have been called before it.

PYTHON ?= python3
VENV ?= .venv
# Twice as many as the usual two cores: the tests of sessions mostly wait for servers and leases.
JOBS ?= 4

python := $(VENV)/bin/python
# The stamp lies inside, so that a removed environment is made again.
ready := $(VENV)/.made-by-pyproject.toml

.PHONY: venv demo test chaos sweep test-releases test-sglang check format bench clean

venv: $(ready)

$(ready): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(python) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# The main job on an embedded cluster of two hosts: no root, no network, nothing to set up.
demo: $(ready)
	$(VENV)/bin/sgldbg demo

test: $(ready)
	$(python) -m pytest -n $(JOBS) --dist worksteal -m 'not sglang and not releases and not torch and not chaos'

# Whole sweeps of which `make test` runs a rotating slice (its seed is printed, SGLDBG_SEED repeats
# it), such as a controller that is killed at every stage.
chaos: $(ready)
	$(python) -m tests.chaos --jobs $(JOBS)

# The source of real SGLang releases; downloads their wheels once.
test-releases: $(ready)
	$(python) -m tests.releases.fetch
	$(python) -m pytest -n $(JOBS) -m releases

# A probe at a random statement of every file of SGLang and of SymPy, taken out again; `make
# test-releases` takes a slice by the day, `SGLDBG_SEED` repeats it.
sweep: $(ready)
	$(python) -m tests.sweep --jobs $(JOBS)

# A real SGLang server on this machine's CPU; builds its environment once (2 min, 2.7 GB).
test-sglang: $(ready)
	$(python) -m tests.real_sglang.environment
	$(python) -m pytest -m sglang tests/real_sglang

check: $(ready)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(ready)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# Figures, measured side by side; tests/bench/README.md says how to read them.
bench: $(ready)
	$(python) -m tests.bench

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis runs dist
	find orchestrator tests -name __pycache__ -type d -prune -exec rm -rf {} +
