# One command before every commit: `make check`. CI and pre-commit run the same steps.
PYTHON ?= python

.PHONY: check lint format types test slow gpu dist constraints

check: lint types test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

slow:
	$(PYTHON) -m pytest -m slow --timeout 1800

gpu:
	$(PYTHON) -m pytest -m gpu --timeout 1800

dist:
	$(PYTHON) -m build

# The comment lines stay; the pins are what this environment holds.
constraints:
	{ grep '^#' constraints.txt; $(PYTHON) -m pip freeze --exclude-editable | sed 's/+cpu$$//; s/+cu[0-9]*$$//' | grep '==' | sort -fu; } > constraints.new
	mv constraints.new constraints.txt
