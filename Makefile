# One command before every commit: `make check`. CI and pre-commit run the same steps.
PYTHON ?= python

.PHONY: check lint format types test thorough slow gpu vllm docs dist constraints

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

# Kills, damage, fuzzed input, hostile folders, every block of the docs.
thorough:
	$(PYTHON) -m pytest -m "smoke or thorough"

slow:
	$(PYTHON) -m pytest -n 0 -m slow --timeout 1800

gpu:
	PYTHONPATH="plugins/searchrl-vllm:$$PYTHONPATH" $(PYTHON) -m pytest -n 0 -m gpu --timeout 1800 \
		tests plugins/searchrl-vllm/tests/test_vllm.py

vllm:
	$(PYTHON) -m pytest -n 0 -m vllm plugins/searchrl-vllm

docs:
	$(PYTHON) -m mkdocs serve

dist:
	$(PYTHON) -m build

# The comment lines stay; the pins are what this environment holds.
constraints:
	{ grep '^#' constraints.txt; $(PYTHON) -m pip freeze --exclude-editable | sed 's/+cpu$$//; s/+cu[0-9]*$$//' | grep '==' | sort -fu; } > constraints.new
	mv constraints.new constraints.txt
