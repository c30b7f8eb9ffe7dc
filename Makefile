# Everything sets itself up in .venv; a stamp written last makes an interrupted install start again.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := client aggregator decoder tests benchmarks examples deploy docs

# Tests start hundreds of processes: each would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := check
.PHONY: audit bench-attacks demo docs figures test test-spark test-typescript typescript check ci format lint types slow bench bench-accuracy bench-central bench-client bench-encode bench-explore bench-ingest bench-purge bench-scale bench-fit bench-pages bench-decode bench-decode-all bench-large bench-many bench-peers bench-random matrix lock newest oldest processors pythons python3.13 release-check seeds soak clean bench-report-likelihood mutants

.venv/.venv-made:
	@command -v $(PYTHON) >/dev/null || { echo "hubbub needs Python 3.11 or newer; there is no $(PYTHON): make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hubbub needs Python 3.11 or newer, this is $$($(PYTHON) --version): make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module: install it (Debian: apt-get install python3-venv), then run make again" >&2; exit 1; }
	rm -rf .venv
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.demo-installed: .venv/.venv-made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[aggregator,decoder]'
	@touch $@

.venv/.dev-installed: .venv/.venv-made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@ .venv/.demo-installed .venv/.docs-installed

.venv/.docs-installed: .venv/.venv-made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[aggregator,decoder,docs]'
	@touch $@ .venv/.demo-installed

.venv/.spark-installed: .venv/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark]'
	@touch $@

.venv/.release-installed: .venv/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	@touch $@

demo: .venv/.demo-installed        ## the whole pipeline on real data: true and estimated shares, and a page with plots
	$(BIN)/hubbub demo

test: .venv/.dev-installed         ## the tests that are not marked slow: about six minutes on two cores
	$(BIN)/pytest -q -n logical --dist loadfile -m "not slow"

TYPESCRIPT := clients/typescript
typescript: $(TYPESCRIPT)/dist/.built    ## build the TypeScript client

$(TYPESCRIPT)/node_modules/.installed: $(TYPESCRIPT)/package-lock.json
	@command -v npm >/dev/null || { echo "The TypeScript client needs Node 20 or newer and npm: install them (Debian: apt-get install nodejs npm), then run make again" >&2; exit 1; }
	cd $(TYPESCRIPT) && npm ci --silent --no-audit --no-fund
	@touch $@

$(TYPESCRIPT)/dist/.built: $(TYPESCRIPT)/node_modules/.installed $(TYPESCRIPT)/build.mjs $(TYPESCRIPT)/tsconfig.json $(wildcard $(TYPESCRIPT)/src/*.ts $(TYPESCRIPT)/conformance/*.ts)
	cd $(TYPESCRIPT) && npm run --silent types && npm run --silent build
	@touch $@

test-typescript: typescript .venv/.dev-installed    ## the tests of the TypeScript client
	HUBBUB_TEST_REQUIRE=node $(BIN)/pytest -q tests/typescript

check: format lint types test      ## every change must pass this

ci: .venv/.spark-installed typescript    ## check, other processors, Python 3.13, and every slow test: with Spark, and of the documentation site
	$(MAKE) --no-print-directory format lint
	$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) types processors
	$(MAKE) --no-print-directory test python3.13 slow

# Only tests of recorded numbers: the other tests compare numbers of one run, which all round alike.
RECORDED := $(BIN)/pytest -q tests/decoder/test_recorded_decodes.py
processors: .venv/.dev-installed   ## recorded decodes with the rounding of processors without AVX-512, and without AVX: about a minute
	OPENBLAS_CORETYPE=Haswell $(RECORDED)
	OPENBLAS_CORETYPE=Nehalem $(RECORDED)
	NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c 'import numpy; print(*numpy.show_config("dicts")["SIMD Extensions"].get("found", []))')" $(RECORDED)

docs: .venv/.docs-installed        ## the documentation site in build/docs; warnings and broken internal links are errors
	$(BIN)/sphinx-build -q -W --keep-going -E -a -b html docs build/docs

slow: .venv/.dev-installed         ## the tests marked slow, and the demo
	$(BIN)/pytest -q -n logical --dist loadfile -m slow --durations=40
	$(BIN)/hubbub demo --reports 20000 --out-dir build/demo

test-spark: .venv/.spark-installed     ## the tests of `hubbub fold --engine spark`
	@command -v java >/dev/null || { echo "Spark needs Java 17 or newer, and there is no java: install it (Debian: apt-get install openjdk-17-jre-headless), then run make test-spark again" >&2; exit 1; }
	HUBBUB_TEST_REQUIRE=java $(BIN)/pytest -q tests/aggregator/segments/test_spark.py tests/aggregator/segments/test_spark_errors.py

matrix: .venv/.dev-installed       ## kill the service (on each engine, one process and two) and clients at 200 points each, named moments and random ones
	$(BIN)/python -m tests.stress.crash_matrix sqlite 1 200
	$(BIN)/python -m tests.stress.crash_matrix sqlite 2 200
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 200
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 200 --proxy nginx
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 50 --proxy nginx --standby
	$(BIN)/python -m tests.stress.segment_matrix 200
	$(BIN)/python -m tests.stress.segment_matrix 100 --s3
	$(BIN)/python -m tests.stress.kill_matrix 200 $$(date +%s)
	$(BIN)/python -m tests.stress.damage_matrix 200
	$(BIN)/python -m tests.stress.served_damage_matrix 200

soak: typescript .venv/.dev-installed         ## the same at 1,000 points, 100,000 crafted requests, and 100,000 histories of a ledger
	$(BIN)/python -m tests.stress.crash_matrix sqlite 1 1000
	$(BIN)/python -m tests.stress.crash_matrix postgres 3 1000
	$(BIN)/python -m tests.stress.kill_matrix 1000 $$(date +%s)
	HUBBUB_TEST_KILLS=200 $(BIN)/pytest -q --timeout=0 tests/typescript/test_kills.py
	HUBBUB_TEST_HISTORIES=100000 $(BIN)/pytest -q --timeout=0 tests/client/privacy/test_allocation.py -k lowest
	HUBBUB_TEST_REQUESTS=100000 HUBBUB_TEST_CASES=500 $(BIN)/pytest -q tests/aggregator/api/test_fuzz_requests.py tests/aggregator/api/test_openapi.py

mutants: .venv/.dev-installed      ## change the code in 315 places, one at a time: which test finds it first? Two hours on one core
	$(BIN)/python -m tests.mutants run --jobs $$(nproc)

seeds: .venv/.dev-installed        ## run every statistical test with 20 unseen seeds
	$(BIN)/python -m tests.loop_seeds 20

OTHER_PYTHONS ?= python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[2-4].*/bin/python)
# Not the estimators and what is built of them: they compute with the same numpy and scipy under every Python, and each command runs here.
NUMERICAL := association audit comparison discovery estimators inference model planning test_recorded_decodes.py test_simulation.py
PYTHON_TESTS := tests/client tests/aggregator tests/decoder $(NUMERICAL:%=--ignore=tests/decoder/%)
pythons:                           ## the fast tests of what can differ between Pythons, with each other Python that is installed
	@tested=" "; for python in $(OTHER_PYTHONS); do \
	    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { echo "skipped: $$python does not run"; continue; }; \
	    case "$$tested" in *" $$version "*) continue;; esac; tested="$$tested$$version "; \
	    $$python -m venv build/python$$version && \
	    build/python$$version/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]' && \
	    build/python$$version/bin/pytest -q -n logical --dist loadfile -p no:cacheprovider -m "not slow" --ignore-glob='*/test_spark*' $(PYTHON_TESTS) || exit 1; \
	done

python3.13:                        ## the same with Python 3.13 alone, if it is installed; make ci runs it
	@$(MAKE) --no-print-directory pythons OTHER_PYTHONS="python3.13 $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python)"

RESOLVED_TESTS ?= tests/client tests/aggregator tests/decoder
oldest: RESOLUTION := lowest-direct
oldest: WARNINGS := -W default::DeprecationWarning # old libraries warn about each other
newest: RESOLUTION := highest
oldest newest: .venv/.release-installed       ## fast tests and each command with the oldest, or newest, dependencies that pyproject.toml admits
	rm -rf build/$@ build/$@-client build/$@.txt
	$(BIN)/uv pip compile --quiet --resolution $(RESOLUTION) --extra all --output-file build/$@.txt pyproject.toml
	$(BIN)/uv venv --quiet --python $(BIN)/python build/$@-client
	$(BIN)/uv pip install --quiet --python build/$@-client --resolution $(RESOLUTION) -e .
	build/$@-client/bin/hubbub encode tests/data/metrics.toml homepage x
	$(BIN)/uv venv --quiet --python $(BIN)/python build/$@
	$(BIN)/uv pip install --quiet --python build/$@ --constraints build/$@.txt -e '.[dev]'
	@for command in $$(build/$@/bin/hubbub --help | sed -n '/^Commands:/,$$s/^  \([a-z][a-z-]*\) .*/\1/p'); do \
	    build/$@/bin/hubbub $$command --help >/dev/null || exit 1; \
	done
	build/$@/bin/pytest -q -n logical --dist loadfile -p no:cacheprovider $(WARNINGS) -m "not slow" $(RESOLVED_TESTS)

format: .venv/.dev-installed
	$(BIN)/ruff format $(if $(CI),--check) $(SOURCES)

lint: .venv/.dev-installed
	$(BIN)/ruff check $(SOURCES)

types: .venv/.dev-installed
	$(BIN)/mypy

audit: .venv/.dev-installed          ## measure the privacy of the client for every definition in examples/ and the demo, against the printed epsilons
	$(BIN)/python -m benchmarks.audit

bench: bench-client bench-encode bench-explore bench-ingest                ## print figures; nothing is asserted

bench-client: .venv/.dev-installed
	$(BIN)/python benchmarks/client.py
	$(BIN)/python -m benchmarks.footprint

bench-encode: .venv/.dev-installed
	$(BIN)/python benchmarks/encode.py

bench-ingest: .venv/.dev-installed
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.overload
	$(BIN)/python -m benchmarks.attacks
	$(BIN)/python -m benchmarks.fold

bench-pages: .venv/.dev-installed               ## the page, a metric's page and /metrics at 500 metrics x 90 periods
	$(BIN)/python -m benchmarks.dashboard

bench-explore: .venv/.dev-installed             ## times of ingestion without and with 20 people who explore results on the same machine
	$(BIN)/python -m benchmarks.exploring

bench-scale: .venv/.spark-installed             ## `hubbub fold` with each engine at four sizes: time, memory, ratios to the kernel and to DuckDB
	$(BIN)/python -m benchmarks.scale --out docs/explanation/data --plot docs/images/scale.svg

bench-purge: .venv/.dev-installed               ## how long appends wait while 10 million reports and a million ids are dropped
	$(BIN)/python -m benchmarks.purge

figures: .venv/.dev-installed                     ## tables and pictures of docs/explanation, from the figures in docs/explanation/data
	$(BIN)/python -m benchmarks.pages

bench-accuracy: .venv/.dev-installed            ## google/rappor's own grid, with its decoder's figures; writes docs/explanation/data
	$(BIN)/python -m benchmarks.accuracy --out docs/explanation/data
	$(BIN)/python -m benchmarks.accuracy --simulate --out docs/explanation/data
	$(BIN)/python -m benchmarks.literature --out docs/explanation/data

bench-fit: .venv/.dev-installed                 ## false alarms and power of the goodness-of-fit tests
	$(BIN)/python -m benchmarks.goodness_of_fit --out docs/explanation/data

bench-random: .venv/.dev-installed             ## calibration on 320 random tasks: error, coverage, false discoveries of each stratum
	$(BIN)/python -m benchmarks.random_tasks --out docs/explanation/data
	$(BIN)/python -m benchmarks.warning_rates

bench-many: .venv/.dev-installed                ## bit counts with more candidates than bits
	$(BIN)/python -m benchmarks.many_candidates --out docs/explanation/data

bench-peers: .venv/.dev-installed               ## other frequency oracles at equal epsilon: exact laws, pure-LDP, multi-freq-ldpy
	$(BIN)/python -m benchmarks.peers --results build/peers.json --out docs/explanation/data
	$(BIN)/python -m benchmarks.peers --values 2 3 5 10 30 --reports 10000 --runs 100 --package-runs 100 --results build/peers.json --out docs/explanation/data --table few-values

bench-attacks: .venv/.dev-installed             ## what forged reports gain on 200 random tasks, against the bound of each decoding
	$(BIN)/python -m benchmarks.forged_reports --out docs/explanation/data

bench-central: .venv/.dev-installed             ## the price of no trusted curator: randomized response, Laplace and Gaussian noise at equal epsilon
	$(BIN)/python -m benchmarks.central_comparison --out docs/explanation/data

bench-decode: .venv/.dev-installed              ## time of decode by number of candidates
	$(BIN)/python -m benchmarks.decode_time --out docs/explanation/data

bench-decode-all: .venv/.dev-installed          ## decodings per second of decode-all, a run without changes, a run after a kill
	$(BIN)/python -m benchmarks.decode_all

bench-large: .venv/.dev-installed               ## 110,000 candidates
	$(BIN)/python benchmarks/large_dictionary.py

bench-report-likelihood: .venv/.dev-installed   ## full likelihood of 1e6 retained reports
	$(BIN)/python benchmarks/report_likelihood.py

lock: .venv/.release-installed         ## write requirements.txt: the versions of constraints.txt for the extra `all`, with hashes
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --constraints constraints.txt --custom-compile-command "make lock" --extra all --output-file requirements.txt pyproject.toml

release-check: .venv/.release-installed ## build wheel, sdist and SBOM into build/release, install them by hashes without an index, run the tutorial
	$(BIN)/python -m tests.release_check

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
