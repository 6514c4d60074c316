# What a developer and CI run. `make serve` and `make test` set up all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: serve test check format diagrams snapshots bench clean
.DEFAULT_GOAL := serve

serve: $(READY)
	@exec $(BIN)/python -m handlers.cli serve $(ARGS)

test: check
	$(BIN)/python -m pytest --cov=machines --cov-branch --cov-report= --cov-fail-under=100

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m diagrams.draw --check
	$(BIN)/cog --check README.md

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/cog -r README.md

diagrams: $(READY)
	$(BIN)/python -m diagrams.draw

snapshots: $(READY)
	$(BIN)/python -m pytest tests/sequences --snapshot-update

bench: $(READY)
	@$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info

# pip from outside installs into the environment, so that Debian's python3 without ensurepip will do
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "interlock needs Python 3.11 or newer; try make serve PYTHON=python3.12")'
	@echo "Setting up $(VENV); this takes a minute or two, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@test -x $(BIN)/pip || $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	@touch $@
