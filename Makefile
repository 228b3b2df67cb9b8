# paimon-cli: everything a newcomer or a CI needs. `make` alone lists the targets.
SUPPORTED := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$python" -c '$(SUPPORTED)' 2> /dev/null && echo "$$python" && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := requirements.lock
# `make test LOCKED=1` installs the releases of the lock file, each checked against its hash, and no others.
STAMP  := $(VENV)/.installed$(if $(LOCKED),-locked)
# Python 3.12 and later have a release of numpy whose types mypy does not understand as Python 3.10, for which it checks otherwise.
TYPES_OF = $(shell $(BIN)/python -c 'import sys; sys.version_info < (3, 12) or print("--python-version 3.12")')

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test check can-check lint types layers licences sbom release docs man nightly proof bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install paimon-cli with its development tools (once); LOCKED=1: exactly the releases of the lock file

$(STAMP): pyproject.toml $(if $(LOCKED),$(LOCK))
	@test -x $(BIN)/python || $(PYTHON) -c '$(SUPPORTED)' 2> /dev/null \
	  || { echo "paimon-cli needs Python 3.10 or newer with ensurepip and venv: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --editable .
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
endif
	@rm -f $(VENV)/.installed $(VENV)/.installed-locked
	@touch $@

lock: $(STAMP) ## Write requirements.lock: the newest releases for all supported Pythons, with hashes and without addresses
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --extra dev --custom-compile-command 'make lock' pyproject.toml --output-file $(LOCK)

demo: $(STAMP) ## Run the tour on real data: 336,776 flights, upserts, deletes, compaction, time travel
	@$(BIN)/python scripts/demo.py

test: $(STAMP) ## Run all tests
	@$(BIN)/python -m pytest -q -n auto --dist loadgroup --no-loadscope-reorder --durations 10

check: can-check lint types layers licences ## Lint, type check, check the layers and the licences

can-check: $(STAMP)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make check needs Python 3.11 or newer, whose numpy has types")'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/python -m mypy $(TYPES_OF)

layers: $(STAMP)
	$(BIN)/lint-imports

licences: $(STAMP) ## Check the licence of each package that is installed against the allow-list
	@$(BIN)/python -m scripts.licences

sbom: $(STAMP) ## List all packages that are installed, with licences, as CycloneDX in build/sbom.json
	@mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-format JSON \
	  --output-file build/sbom.json $(BIN)/python

release: $(STAMP) ## Build wheel, sdist and SBOM in dist/, and try them in new environments of the Pythons at hand; uploads nothing
	@$(BIN)/python -m scripts.release

docs: $(STAMP) ## Build the documentation into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

man: $(STAMP) ## Write a manual page for each command into man/: `man -M man paimon-cli-compact`
	@$(BIN)/python -m scripts.build_man

nightly: $(STAMP) ## Run every proof for a night (up to 3 hours; best with LOCKED=1), each night another one; figures into build/reliability.json
	@$(BIN)/python -m scripts.nightly.run_all

proof: $(STAMP) ## Run every proof at full size, without a limit of time; goes on where it was interrupted, as long as the commit is the same
	@$(BIN)/python -m scripts.nightly.run_all --proof

bench: $(STAMP) ## Measure against floors, side by side; figures into build/bench.json
	@$(BIN)/python -m scripts.bench.run_all

clean: ## Remove caches and build results, keep .venv
	rm -rf build dist spark-warehouse .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis man
	find paimon_cli tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
