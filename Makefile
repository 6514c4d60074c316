# What a developer and CI run. `make serve` and `make test` set up all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLIENTS := .clients
COGGED := README.md docs/diagrams.md

.PHONY: serve test check clients format diagrams snapshots bench clean
.DEFAULT_GOAL := serve

serve: $(READY)
	@exec $(BIN)/python -m handlers.cli serve $(ARGS)

test: check
	@$(MAKE) --no-print-directory clients || echo "The clients could not be installed, so the tests that run them are skipped."
	$(BIN)/python -m pytest --cov=machines --cov-branch --cov-report= --cov-fail-under=100

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m diagrams.draw --check
	$(BIN)/cog --check $(COGGED)

clients: $(CLIENTS)/.ready

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/cog -r $(COGGED)

diagrams: $(READY)
	$(BIN)/python -m diagrams.draw
	$(BIN)/cog -r $(COGGED)

snapshots: $(READY)
	$(BIN)/python -m pytest tests/sequences --snapshot-update

bench: $(READY)
	@$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) $(CLIENTS) build *.egg-info

# pip from outside installs into the environment, so that Debian's python3 without ensurepip will do
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "interlock needs Python 3.11 or newer; try make serve PYTHON=python3.12")'
	@echo "Setting up $(VENV); this takes a minute or two, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@test -x $(BIN)/pip || $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	@touch $@

# other people's clients of the API, for tests/clients only; Node.js comes from a Python package, so all test the same one
$(CLIENTS)/.ready: $(READY) constraints-clients.txt tests/clients/package.json tests/clients/package-lock.json
	@echo "Installing the clients that are tested into $(CLIENTS) (1.2 GB); this takes a minute or two, once."
	@test -x $(CLIENTS)/python/bin/python || $(PYTHON) -m venv --without-pip $(CLIENTS)/python
	$(BIN)/python -m pip --python $(CLIENTS)/python/bin/python install --disable-pip-version-check --quiet --progress-bar on --constraint constraints-clients.txt --group clients
	@mkdir -p $(CLIENTS)/node && cp tests/clients/package.json tests/clients/package-lock.json $(CLIENTS)/node
	@if test -x $(CLIENTS)/python/bin/npm; then \
		$(CLIENTS)/python/bin/npm ci --prefix $(CLIENTS)/node --ignore-scripts --no-audit --no-fund; \
	else echo "There is no Node.js package for this platform; the clients that need it are not tested."; fi
	@touch $@
