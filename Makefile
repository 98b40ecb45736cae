# Needs make, git and a Python with venv; everything else is installed into .venv.
PYTHON ?= python3
ARGS ?=
CASES ?= 5000
FUZZ_MINUTES ?= 30
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: help demo study test test-floors coverage every fuzz lint types docs readme browser bench tables \
	release-check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    find, verify and reject strangers on digits, compared with other methods: one HTML page"
	@echo "make test    run the tests, about three minutes on two cores (ARGS=... goes to pytest)"
	@echo "make test-floors  the same with the lowest supported versions, in an environment of their own"
	@echo "make coverage  every case with branch coverage, which has a floor; some twelve minutes"
	@echo "make every   every case of every test, and 5000 random problems (CASES=...)"
	@echo "make fuzz    scikit-learn's checks on further settings, then 30 minutes of attacks (FUZZ_MINUTES=...)"
	@echo "make lint    ruff, rules and format; numpydoc on all public docstrings"
	@echo "make types   mypy, strict"
	@echo "make docs    the site in docs/_build/html; a warning fails it, and no network is needed"
	@echo "make readme  the tables of the README and of docs/reproduction.md from kept rows, and the picture"
	@echo "make browser test report, search page and site (make docs first) in Chromium, which must be installed"
	@echo "make bench   measure speed against the limit and against peers (ARGS=--quick for a look)"
	@echo "make tables  the paper's tables from the rows at hand (ARGS=... as for benchmarks.paper)"
	@echo "make release-check  build the package, check it, install it elsewhere and try it"
	@echo "make study   the paper's experiment on the digits, in short: a table and a picture"
	@echo "make clean   remove .venv and all caches"
	@echo "Another Python: make test PYTHON=python3.12"

demo: $(STAMP)
	$(PY) -m benchmarks.demo

# Every worker has one BLAS thread.
study: $(STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m benchmarks.paper.demo

# One BLAS thread per worker: two workers already fill two cores. Each worker begins with half of
# the files and steals later, so what a file sets up for all its tests is rarely set up twice.
# Compiled files, also where a shell turns them off, spare the commands under test a second each.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal

test: $(STAMP)
	$(PYTEST) $(ARGS)

# Old packages warn of their newer companions; what warns of us is tested by `make test`. The pages
# are built by the pinned versions alone.
test-floors: .venv-floors/.installed
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 .venv-floors/bin/python -m pytest \
		-n 2 --dist worksteal -W ignore::DeprecationWarning -W ignore::FutureWarning \
		--ignore tests/test_docs.py $(ARGS)

.venv-floors/.installed: pyproject.toml constraints-floors.txt
	"$(PYTHON)" -m venv --clear .venv-floors
	.venv-floors/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-floors.txt \
		-e '.[test]'
	@touch $@

# All cases, so that what `make test` leaves out is still part of `.ci/run`. Pages and browser have
# stages of their own there.
coverage: $(STAMP)
	$(PYTEST) -m "" --ignore tests/test_docs.py --ignore-glob '*/test_browser.py' \
		--cov=pcsda --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=97 $(ARGS)

# Half an hour for the 5000 problems, each named by its seed, and what `make test` leaves out:
# cases marked `more`, and most of the examples that hypothesis makes.
every: $(STAMP)
	PCSDA_FUZZ=$(CASES) $(PYTEST) -m "" $(ARGS)

# Random problems, altered files, killed processes: tests/fuzz, each attack by its seed.
fuzz: $(STAMP)
	$(PYTEST) -m more -k scikit_learn_checks
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONPATH=tests $(PY) -m fuzz \
		--minutes $(FUZZ_MINUTES) --rows build/fuzz.jsonl $(ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) docs/check_docstrings.py

types: $(STAMP)
	$(PY) -m mypy

# `make test` leaves the browser out. Without Chromium, or before `make docs`, this fails.
browser: $(STAMP)
	PCSDA_BROWSER=required $(PY) -m pytest -m "" tests/report/test_browser.py \
		tests/retrieval/test_browser.py tests/site/test_browser.py $(ARGS)

# `make test` runs the Python of the README; everything else that pages show runs here.
docs: $(STAMP)
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	$(PYTEST) -m more tests/test_docs.py

readme: $(STAMP)
	$(PY) -m benchmarks.pages
	$(PY) docs/overview.py

bench: $(STAMP)
	$(PY) -m benchmarks.speed $(ARGS)

# To fill the rows: python -m benchmarks.paper, some hours for the whole study.
tables: $(STAMP)
	$(PY) -m benchmarks.paper --tables-only $(ARGS)

release-check: $(STAMP)
	rm -rf build/release
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt twine
	$(PY) -m hatchling build -d build/release
	$(PY) -m twine check --strict build/release/*
	$(PY) .ci/check_release.py build/release

clean:
	rm -rf .venv .venv-floors .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist \
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
