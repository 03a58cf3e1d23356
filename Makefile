# On a fresh machine with Python 3.11 or newer: `make demo` or `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test docs setup clean

demo: setup
	$(BIN)/alfa demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto --dist worksteal

docs: setup
	$(BIN)/mkdocs serve

setup: .venv/.installed

# pip and constraints.txt give every developer the same versions.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv runs
