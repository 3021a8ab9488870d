# The executable edition of "Attention Is All You Need".
# `make` alone explains itself.

PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV ?= .venv
BIN = $(VENV)/bin
FOR_BOOK = $(VENV)/.installed-book
FOR_ALL = $(VENV)/.installed-book,test
PAPER ?= yes

ifeq ($(filter yes no,$(PAPER)),)
$(error PAPER has to be yes or no, not "$(PAPER)")
endif

.DEFAULT_GOAL := help
.PHONY: help install extract format check book pdf class serve quick test all-tests rehearsal clean

help:  ## show this help
	@echo "The executable edition of \"Attention Is All You Need\""
	@echo
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-9s %s\n", $$1, $$2}'
	@echo
	@echo "  PAPER=no                  leaves the paper's own words out of the book, to publish it"
	@echo "  ANNOTATED_PAPER_PDF=FILE  shows the paper's own words in the book"
	@echo "  ANNOTATED_DATA=FOLDER     reads corpora there instead of downloading them"

# The pip that comes with Python resolves slowly. A newer one would also compile slowly, on one core,
# and compile tests and models that nobody imports. That a few templates among the files are no Python
# is no matter.
$(VENV)/.installed-%: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$*]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|models)/' $(VENV)/lib || true
	touch $(FOR_BOOK) $@

install: $(FOR_ALL)  ## install everything into .venv

extract: $(FOR_BOOK)  ## write the package annotated/ from the chapters
	$(BIN)/python book/extract.py

format: $(FOR_ALL)  ## format everything, cells of chapters too, and correct what ruff can correct
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python book/lint.py --write
	$(BIN)/python book/extract.py

check: $(FOR_ALL)  ## lint, format, types, and that the package is what the chapters say
	$(BIN)/python book/extract.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python book/lint.py
	$(BIN)/mypy
	$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(BIN)/biome check)
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/python book/contents.py | tail -n 1

ifeq ($(PAPER),no)
book: export ANNOTATED_PAPER_PDF = no
endif
book: extract  ## execute every chapter; the site is then at _build/html/index.html
	@test "$$ANNOTATED_PAPER_PDF" = no || said=$$($(BIN)/annotated paper get 2>&1 >/dev/null) || { \
	  test -z "$$ANNOTATED_PAPER_PDF" || { echo "$$said" >&2; exit 2; }; \
	  echo "(built without the paper's own sentences: no PDF at hand)"; }
	$(BIN)/jupyter-book build . --warningiserror --keep-going
	@echo "open $(CURDIR)/_build/html/index.html"

pdf: $(FOR_ALL) book  ## the book as one PDF (needs Chromium): _build/pdf/attention-is-all-you-need.pdf
	$(BIN)/python book/pdf.py

# Only a few libraries, and no torch, if nothing has been installed yet.
$(BIN)/pybtex:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt jupytext lazy_loader pybtex sphinx

class: $(BIN)/pybtex  ## notebooks for a class, without solutions and with checks: _build/class
	PYTHONPATH=. $(BIN)/python book/class_notebooks.py

serve: book  ## build, and serve the site at http://localhost:8000
	$(BIN)/python -m http.server 8000 --directory _build/html

quick: $(FOR_ALL)  ## the tests that take seconds: what to run while you work
	$(BIN)/python book/extract.py --check
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -n auto --dist worksteal -m "not (slow or processes or colab or gpu or site or browser or corpora or paper)"

# mypy, the longest of the checks, needs one core; the tests go on beside it.
test: $(FOR_ALL)  ## check, and run the tests (those of the site need `make book` before)
	@$(MAKE) --no-print-directory -j2 check all-tests

all-tests:
	$(BIN)/pytest -n auto --dist worksteal

rehearsal: $(FOR_ALL)  ## the paper's run from nothing to a score, on a made corpus, in a minute
	$(BIN)/pytest -s tests/test_rehearsal.py

clean:  ## remove everything that was built
	rm -rf _build $(VENV) dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
