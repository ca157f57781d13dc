# make demo      the main job on a real Slurm of four nodes, on this machine (root)
# make test      lint and all tests; without root those that start no Slurm daemon
# make quick     for the loop of writing: lint without spelling, and the tests that start no daemon and take no ten seconds
# make lint      ruff, mypy, deptry and codespell
# make coverage  which lines the tests without daemons run
# make mutants   changes a sample of constants, one at a time, and says which no test notices (MUTANTS="hpslurm/node")
# make bench     figures of speed and memory against their goals, put into benchmarks/RESULTS.md (quiet machine; QUICK=1: a look)
# make soak      10,000 job starts on a real Slurm with faults at random (root; SOAK="--jobs 500 --seed 2"); goes on where it ended
# make fuzz      every reader on 100,000 random inputs, every expression on strings made to hold it up (FUZZ="--only scan")
# make dist      sdist and wheel, tried from the sdist (docs/release.md)
# make pyz       hpslurm-check.pyz: the check in one file, for containers
# make facts     compares the tables with their sources (SOURCES="nccl=FOLDER@TAG ...", docs/maintaining.md)
# make man       man pages, in build/man
# make venv      only the set-up: .venv, and Slurm from apt where we are root
#
# Each does its own set-up. Apart from apt packages nothing is written outside this checkout and
# /tmp/hpslurm-<uid>. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
BIN = .venv/bin
# Tests wait a lot: three at a time take less than half as long, even on two cores. A file stays together: what it sets up is set up once.
WORKERS ?= 3
# The order of tests/lab/fixtures.py, not xdist's.
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
export TMPDIR := /tmp/hpslurm-$(shell id -u)

.PHONY: demo test quick lint mutants soak fuzz coverage dist bench pyz facts man venv clean

demo:
	@$(PYTHON) tests/lab/prepare.py --daemons
	@$(BIN)/python tests/lab/contain.py $(BIN)/python tests/lab/demo.py

test: lint
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/python tests/lab/contain.py $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS) \
	  || $(BIN)/python tests/lab/contain.py $(BIN)/python tests/again.py

# Each of these takes about ten seconds or more by itself.
LONG = tests/test_wheel.py tests/test_mutants.py tests/test_typed.py tests/test_scripts.py tests/cli/test_layout.py tests/cli/test_explain.py \
 tests/cli/test_diagnose_aws.py tests/cli/test_bundle.py tests/cluster/aws tests/scan/test_corpus.py tests/scan/test_many_ranks.py \
 tests/scan/test_many.py tests/sources/test_aws.py tests/sources/test_gpu.py tests/sources/test_sessions.py

quick: venv
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy --no-error-summary
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m 'not lab and not slow' $(addprefix --ignore=,$(LONG)) $(PYTEST_ARGS)

lint: venv
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@told=$$($(BIN)/deptry . 2>&1) || { echo "$$told"; exit 1; }
	@$(BIN)/codespell

coverage: venv
	@rm -f .coverage .coverage.*
	@$(BIN)/python tests/lab/contain.py $(BIN)/coverage run -m pytest $(SIDE_BY_SIDE) -m 'not lab' $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

dist: venv
	@rm -rf dist && $(BIN)/python -m build --no-isolation
	@rm -rf build/sdist && mkdir -p build/sdist && tar -xzf dist/hpslurm-*.tar.gz -C build/sdist --strip-components=1
	@$(MAKE) -C build/sdist test PYTEST_ARGS="$(or $(PYTEST_ARGS),tests/test_wheel.py tests/test_docs.py tests/test_hosts.py)"

mutants: venv
	@$(BIN)/python tests/mutants.py --sample 40 $(MUTANTS)

soak:
	@$(PYTHON) tests/lab/prepare.py --daemons
	@$(BIN)/python tests/lab/contain.py $(BIN)/python tests/lab/soak.py $(SOAK)

fuzz: venv
	@HPSLURM_FUZZ=1 $(BIN)/python -m pytest -q tests/test_linear.py
	@$(BIN)/python tests/fuzz.py $(FUZZ)

bench: venv
	@$(BIN)/python tests/lab/contain.py $(BIN)/python benchmarks/all.py $(if $(QUICK),--quick)

pyz: venv
	@$(BIN)/python -m hpslurm.pyz hpslurm-check.pyz

facts: venv
	@$(BIN)/python docs/facts.py $(SOURCES)

man: venv
	@$(BIN)/python docs/man.py build/man && echo "man -l build/man/hpslurm.1"

venv:
	@$(PYTHON) tests/lab/prepare.py

clean:
	rm -rf .venv build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
