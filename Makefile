# Two commands for a newcomer: `make demo` and `make test`. Both set up what they need, once.
# Needed: Python 3.11 or later with venv, and a network or a package mirror for the first run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# A process for each core; one that is done takes over tests of another, in runs that keep a module's fixtures together.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

# The suite starts a thousand processes, each of which would compile the modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pages studies fmt lint types docs site wheel clean

# The mark is written last, so an installation that was interrupted is picked up again. A new pyproject.toml makes the
# mark stale. An environment without a working pip (cut off while it was made, or its Python is gone) is made anew.
$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: expected Python 3.11 or later as '$(PYTHON)', found none; \
	install it, or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: expected Python 3.11 or later, \
	got $$($(PYTHON) -V 2>&1) as '$(PYTHON)'; name another: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing into $(VENV); the first time this takes minutes (torch is large)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)  ## score, deduplicate and filter the photographs in examples/, draw contact sheets
	$(BIN)/python examples/demo.py

test: lint types  ## lint, type-check and run the suite
	$(PYTEST)

studies: $(READY)  ## run the tests of benchmarks, examples and published numbers
	$(PYTEST) -m 'study and not slow'

pages: $(READY)  ## run every command line of README, get-started and how-to pages on real images
	$(PYTEST) -m slow tests/docs/test_page_commands.py

fmt: $(READY)  ## bring the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)  ## write the tables of the README anew
	$(BIN)/python docs/generate.py

site: $(READY)  ## build the documents as a static site, with one page a command
	$(BIN)/python docs/build_site.py

wheel: $(READY)  ## build dist/*.tar.gz and dist/*.whl
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
