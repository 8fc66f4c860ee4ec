# `make help` lists what there is; every target installs the Debian packages it lacks, builds, and runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

export MESON ?= meson
export PYTHON ?= python3
DEPS := tools/deps.sh
PHOTOS ?= build/photos
FUZZ_RUNS ?= 1000000

# Debian 12 and 13, Ubuntu 22.04 and 24.04
RELEASES ?= bookworm trixie jammy noble

SOAK_RUNS ?= 1000
SOAK_SEED ?= 1
SOAK_JOBS ?= 10000
SOAK_KILLS ?= 500

.PHONY: help deps build demo demo-dashboard test test-all lint bench fuzz soak coverage wheel try-wheel \
    site install clean

help:
	@echo 'make demo       ./demo: decode, crop and batch 3,000 photographs for two epochs'
	@echo 'make demo-dashboard'
	@echo '                a service with a dashboard, a job on it, a worker that is killed: what a person sees'
	@echo 'make test       ./test: the tests, a sample of them: what every change must pass'
	@echo 'make test-all   ./test --all: all tests, also by clang with ASan+UBSan and TSan'
	@echo 'make deps       the Debian packages that pip install . needs'
	@echo 'make build      the command, at build/cachew'
	@echo 'make bench      compare with tf.data, DataLoader, Grain (PEERS=none|tfdata|all)'
	@echo 'make lint       layers, words, Python, man page, scripts'
	@echo 'make fuzz       every parser under libFuzzer (FUZZ_RUNS=$(FUZZ_RUNS) executions each)'
	@echo 'make soak       random schedules of faults against the service, judged by the delivery oracle'
	@echo '                (SOAK_RUNS=$(SOAK_RUNS) SOAK_SEED=$(SOAK_SEED));'
	@echo '                SOAK_KILLS=$(SOAK_KILLS) kills while caches are written;'
	@echo '                SOAK_JOBS=$(SOAK_JOBS) short jobs in a row, and what they leave behind'
	@echo 'make coverage   which lines the tests reach: build-coverage/report/index.html'
	@echo 'make wheel      the Python package as one file, dist/cachew-*.whl, built in a root of Debian 11'
	@echo 'make try-wheel  install it in fresh roots of other releases and try it there (RELEASES="$(RELEASES)")'
	@echo 'make site       the documentation as a site: build/site/index.html (needs Python 3.11)'
	@echo 'make install    into /usr/local (DESTDIR and PREFIX are honoured)'
	@echo 'make clean      remove what was built; packages, photographs and Python environments stay'

deps:
	@$(DEPS) build python

build:
	@$(DEPS) build
	@tools/setup.sh build
	@$(MESON) compile -C build

demo:
	@./demo --photos $(PHOTOS)

demo-dashboard: build
	@$(PYTHON) tools/dashboard_demo.py --build build --stay

test:
	@./test

test-all:
	@./test --all

lint:
	@$(DEPS) build lint
	@tools/lint.sh

bench: build
	@$(DEPS) demo test
	@test -d $(PHOTOS) || build/cachew photos $(PHOTOS) --format tfrecord --count 3000 \
	    --source /usr/share/backgrounds
	@$(PYTHON) bench/run.py --photos $(PHOTOS) --json build/bench.json
	@$(PYTHON) bench/heavy.py
	@build/bench-venv/bin/python bench/text.py

fuzz:
	@$(DEPS) build test test-all
	@FUZZ_RUNS=$(FUZZ_RUNS) tools/fuzz.sh

soak:
	@$(DEPS) build test
	@tools/setup.sh build-soak -Dcrash_points=true
	@$(MESON) compile -C build-soak && $(MESON) compile -C build-soak jobs_tool
	@CACHEW=$(CURDIR)/build-soak/cachew "$$(tools/venv.sh)/bin/python" tests/service/soak.py \
	    --n $(SOAK_RUNS) --seed $(SOAK_SEED) --keep build-soak/failed
	@CACHEW=$(CURDIR)/build-soak/cachew "$$(tools/venv.sh)/bin/python" tests/cache_kills.py \
	    --n $(SOAK_KILLS) --seed $(SOAK_SEED)
	@CACHEW=$(CURDIR)/build-soak/cachew "$$(tools/venv.sh)/bin/python" tests/service/short_jobs.py \
	    --jobs $(SOAK_JOBS)

coverage:
	@$(DEPS) build test coverage
	@tools/coverage.sh

wheel:
	@tools/in_root.sh bullseye tools/wheel.sh

try-wheel:
	@for release in $(RELEASES); do tools/in_root.sh $$release tools/try_wheel.sh; done

site:
	@NO_MKDOCS_2_WARNING=1 "$$(tools/venv.sh site tests/requirements-site.txt)/bin/mkdocs" build
	@echo 'site: build/site/index.html; with its search: python3 -m http.server -d build/site'

PREFIX ?= /usr/local
install: build
	@$(MESON) configure build --prefix=$(PREFIX) >/dev/null
	@$(MESON) install -C build

clean:
	@for b in build build-sample build-gcc build-asan build-tsan build-fuzz build-soak build-coverage \
	    build-python; do \
	    test ! -f $$b/build.ninja || ninja -C $$b -t clean; \
	done
