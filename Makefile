# The two commands to start with are `make run` and `make test`; both set everything up themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help run quick test lint slow results bench clean

help:
	@echo "make run    train six methods on embedded data, show table and figure"
	@echo "make quick  lint, types, and for a minute the tests that a change touches"
	@echo "make test   lint, types and tests"
	@echo "make slow   checks that take minutes"
	@echo "make results  write the pages of docs/ that say what reproduces, from results/"
	@echo "make bench  measure the hot paths against their twins"
	@echo "make clean  remove the environment and caches"

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

run: $(READY)
	@$(BIN)/widemargin demo

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: lint
	@$(BIN)/pytest -n 2

quick: lint
	@$(BIN)/python tests/touched.py

slow: $(READY)
	@$(BIN)/pytest -m slow

results: $(READY)
	@$(BIN)/python -m widemargin_studies.pages results docs

bench: $(READY)
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
