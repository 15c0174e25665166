# Everything here works from a fresh clone with cargo, Python >= 3.11 and make. All set-up is private to this folder:
# a virtual environment in .venv, builds in target/. Stamps inside .venv make second calls quick.

# The first interpreter that runs and is new enough; `make PYTHON=/path/to/python3.13 ...` overrides it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	if $$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
RUST_SOURCES := $(shell find rust -path rust/fuzz -prune -o -path '*/target' -prune -o \
	\( -name '*.rs' -o -name Cargo.toml \) -print 2>/dev/null) \
	$(wildcard Cargo.toml Cargo.lock rust-toolchain.toml)

# The demo: a week of a synthetic Philly-like load on a cluster that is a little too small for it, so that the order
# in which jobs are served matters (tests/unit/testing/test_demo.py).
DEMO_POLICIES := fifo,fifo-skip,sjf,srtf,las,tiresias
DEMO_TRACE := mini:philly
DEMO_CLUSTER := pollux-64
DEMO_OUT := demo

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Incremental artefacts cost disk and time in one-shot builds; set CARGO_INCREMENTAL=1 while editing.
ifdef CI
export CARGO_INCREMENTAL := 0
endif

.PHONY: help setup develop release demo test check soak lint browser bench wheel matrix audit docs fuzz goldens coverage clean
.DELETE_ON_ERROR:

help: ## what can be made (the default)
	@echo "gangline: make one of"
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

setup: $(VENV)/.tools ## virtual environment with every tool
develop: $(VENV)/.develop ## checked build (debug assertions on) into .venv: what tests use
release: $(VENV)/.release ## optimised build into .venv: what people use

$(VENV)/.tools: pyproject.toml scripts/requirements.py
	@test -n "$(PYTHON)" || { echo "gangline needs Python 3.11 or newer (found none); set PYTHON=..." >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "gangline needs Rust: cargo is not on PATH" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
		echo "could not make a virtual environment (on Debian: install python3-venv)" >&2; exit 1; }
	@echo "Installing tools and libraries into $(VENV): a minute or more, and quiet"
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"  # maturin hands it dependency groups
	$(PY) scripts/requirements.py dev gantt plot dask > $(VENV)/requirements.txt
	$(PY) -m pip install --quiet --requirement $(VENV)/requirements.txt
	@touch $@

# Both builds land in the same place, so each forgets the other's stamp.
$(VENV)/.develop: $(VENV)/.tools $(RUST_SOURCES)
	@echo "Compiling gangline: some minutes the first time"
	PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet
	@rm -f $(VENV)/.release
	@touch $@

$(VENV)/.release: $(VENV)/.tools $(RUST_SOURCES)
	@echo "Compiling gangline: some minutes the first time"
	PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --release
	@rm -f $(VENV)/.develop
	@touch $@

demo: release ## six schedulers under load: a table here, a report in demo/
	@mkdir -p $(DEMO_OUT)
	@echo "2,000 synthetic jobs in a week, 1.1 times the work that the 64 GPUs can do in that time:"
	$(BIN)/gangline compare --trace $(DEMO_TRACE) --cluster $(DEMO_CLUSTER) \
		--policies $(DEMO_POLICIES) --out $(DEMO_OUT)/results --html $(DEMO_OUT)/report.html
	@echo
	@echo "Look at mean JCT: under fifo a gang that does not fit blocks all jobs behind it; the others let short jobs pass."
	@echo
	@echo "Report: $(DEMO_OUT)/report.html   Tables (Parquet): $(DEMO_OUT)/results"
	@echo
	@echo "Now your own trace (a CSV or Parquet file with job_id, arrival_s, gpus, duration_s):"
	@echo "  $(BIN)/gangline compare --trace jobs.csv --cluster $(DEMO_CLUSTER) --policies fifo,srtf,tiresias --html mine.html"
	@echo "Clusters: $(BIN)/gangline cluster presets     Policies: $(BIN)/gangline policies"

# `make test ONLY=meta,rust` runs some steps. The gates need the checked build; an optimised build that was in .venv
# before is put back afterwards.
GATE = @$(PY) scripts/check.py $@ $(if $(ONLY),--only $(ONLY)) $(if $(wildcard $(VENV)/.release),--release)

test: setup ## the tests, Rust and Python: about a quarter of an hour on two cores
	$(GATE)

check: setup ## what takes longer: slow tests, more examples, large worlds, browser, wheel, fuzz, instruction counts
	$(GATE)

# KILLS is how often each kind of process is killed: sweeps, their workers, Dask workers and schedulers.
# `make test` does it a few times.
KILLS ?= 100
soak: $(VENV)/.develop ## what takes long and hits at random: sweeps killed KILLS=100 times and resumed
	GANGLINE_SWEEP_KILLS=$(KILLS) $(PY) -m pytest -q --timeout 7200 --durations 4 tests/unit/studies/test_sweep_killed.py

lint: setup ## formatters, clippy, ruff, mypy, spelling, docs
	$(GATE)

browser: $(VENV)/.develop ## reports in a real Chromium, which must be installed
	@GANGLINE_REQUIRE_BROWSER=1 $(PY) scripts/browser.py

bench: release ## every benchmark; prints tables of ratios
	$(PY) benches/run.py $(ARGS)

# Compiled twice, the second time with the counts of a training run (scripts/train.py). The counts are merged by
# a part of the compiler that rustup adds; without rustup it must be there already.
wheel: $(VENV)/.tools ## the wheel that is published, in target/wheels: takes some minutes
	@if command -v rustup >/dev/null; then rustup --quiet component add llvm-tools; fi
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --quiet --profile dist --pgo --out target/wheels

matrix: $(VENV)/.tools ## the wheels of target/wheels in fresh environments: Pythons, oldest and newest dependencies
	$(PY) -m pip install --quiet $$($(PY) scripts/requirements.py --bare matrix)
	@for wheel in target/wheels/*.whl; do $(PY) scripts/wheel_matrix.py $$wheel || exit 1; done

audit: $(VENV)/.tools ## known faults of dependencies, from the databases of their registries: needs the network and cargo-deny
	$(PY) -m pip install --quiet $$($(PY) scripts/requirements.py --bare audit)
	$(PY) scripts/requirements.py gantt plot testing dask > $(VENV)/audited.txt
	$(PY) -m pip_audit --requirement $(VENV)/audited.txt
	cargo deny --locked check

docs: $(VENV)/.develop ## the documentation site in target/docs
	$(PY) -m sphinx -W --keep-going --quiet -b html docs target/docs
	@echo "target/docs/index.html"

# FUZZ_SECONDS is per target; `make check` runs the same for 20 s each.
FUZZ_SECONDS ?= 600
fuzz: setup ## long fuzz runs (FUZZ_SECONDS=600 each)
	$(PY) scripts/fuzz.py --seconds $(FUZZ_SECONDS) --require $(if $(ONLY),--only $(ONLY))

goldens: develop ## rewrite the golden logs and show what changed
	GANGLINE_UPDATE_GOLDENS=1 $(PY) -m pytest -q tests/golden
	@git status --short -- tests/golden
	@echo "Read these logs by eye, and the differences of the old ones: git diff tests/golden"

coverage: develop ## line and branch coverage of the Python side
	$(PY) -m coverage run -m pytest -q -m "not slow" tests
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

clean: ## remove builds, environment and what runs left behind
	rm -rf target rust/fuzz/target $(VENV) $(DEMO_OUT)
	find python -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
