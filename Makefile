# Needs make, git and a Python with venv; everything else is installed into .venv.
PYTHON ?= python3
ARGS ?=
CASES ?= 5000
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: help demo test fuzz lint types docs readme browser bench tables clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    the paper's experiment on the digits, in short: a table and a picture"
	@echo "make test    run the tests with branch coverage (ARGS=... goes to pytest)"
	@echo "make fuzz    hold all routes to a model against each other on 5000 random problems (CASES=...)"
	@echo "make lint    ruff: rules and format"
	@echo "make types   mypy, strict on the core"
	@echo "make docs    the site in docs/_build/html; a warning fails it, and no network is needed"
	@echo "make readme  the tables of the README and of docs/reproduction.md from kept rows, and the picture"
	@echo "make browser test the report in Chromium, which must be installed"
	@echo "make bench   measure speed against the limit and against peers (ARGS=--quick for a look)"
	@echo "make tables  the paper's tables from the rows at hand (ARGS=... as for benchmarks.paper)"
	@echo "make clean   remove .venv and all caches"
	@echo "Another Python: make test PYTHON=python3.12"

# Every worker has one BLAS thread.
demo: $(STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m benchmarks.paper.demo

# One BLAS thread per worker: two workers already fill two cores.
test: $(STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 \
		--cov=pcsda --cov-branch --cov-report=term-missing:skip-covered $(ARGS)

# Half an hour for 5000; each is named by its seed. ARGS goes to pytest.
fuzz: $(STAMP)
	PCSDA_FUZZ=$(CASES) OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 \
		tests/test_fuzz_routes.py $(ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(STAMP)
	$(PY) -m mypy

# The tests skip without a browser; here its absence is a failure.
browser: $(STAMP)
	PCSDA_BROWSER=required $(PY) -m pytest tests/report/test_browser.py $(ARGS)

docs: $(STAMP)
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html

readme: $(STAMP)
	$(PY) -m benchmarks.pages
	$(PY) docs/overview.py

bench: $(STAMP)
	$(PY) -m benchmarks.speed $(ARGS)

# To fill the rows: python -m benchmarks.paper, some hours for the whole study.
tables: $(STAMP)
	$(PY) -m benchmarks.paper --tables-only $(ARGS)

clean:
	rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist \
		docs/_build docs/generated docs/examples
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is touched last, so a failed install is tried again. A .venv that already works is
# kept; one with an old or missing Python, or without pip, is built anew. The build backend is
# installed first and used without isolation, so that its version is pinned as well.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		command -v "$(PYTHON)" >/dev/null || { \
			echo "pcsda needs Python 3.11 or newer, and '$(PYTHON)' was not found." >&2; \
			echo "Install it, or name another one: make test PYTHON=python3.12" >&2; exit 1; }; \
		"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
			echo "pcsda needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1)." >&2; \
			echo "Name a newer one: make test PYTHON=python3.12" >&2; exit 1; }; \
		"$(PYTHON)" -c 'import venv, ensurepip' >/dev/null 2>&1 || { \
			echo "'$(PYTHON)' cannot make virtual environments: its venv module is missing." >&2; \
			echo "On Debian and Ubuntu: sudo apt install python3-venv. Or name another Python:" >&2; \
			echo "make test PYTHON=python3.12" >&2; exit 1; }; \
		"$(PYTHON)" -m venv --clear .venv; \
	fi
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation -e '.[dev]'
	@touch $@
