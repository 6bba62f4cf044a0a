# One verb per habit; CI runs the same ones. `make help` lists them.

SHELL := /bin/bash
ROUNDS ?= 50
SEEDS ?= 1000
HISTORIES ?= 16
SCALE ?= 1
SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
ARGS ?=
PRESET ?= oltp
TARGET := $(or $(CARGO_TARGET_DIR),target)
OUT ?= $(TARGET)/bench/$(PRESET)

# Variables that are parameters of a preset, as options: THREADS="1 16" is --threads 1,16.
BENCH_LISTS := ONLY WORKLOADS THREADS SIZE_GB WHEN CHANGE REPLICA_ENGINES APPLY_THREADS RECEIVERS VALUE_MIB ROW_BYTES
BENCH_VALUES := MINUTES REPETITIONS TABLES ROWS POOL_MIB LOG_MIB SETTLE WARMUP TPS_SECONDS PS_MODE
comma := ,
space := $(subst ,, )
option = --$(shell echo $1 | tr A-Z_ a-z-)
BENCH_FLAGS = $(foreach v,$(BENCH_LISTS),$(if $($v),$(call option,$v) '$(subst $(space),$(comma),$(strip $($v)))')) \
  $(foreach v,$(BENCH_VALUES),$(if $($v),$(call option,$v) '$($v)')) \
  $(if $(filter command line,$(origin SECONDS)),--seconds '$(SECONDS)') $(if $(COLD),--cold)

.DEFAULT_GOAL := build
.PHONY: isolation build test demo fuzz damage kill9 powercut powercut-proof check deny sim sim-planted diff diff-planted mtr types peer-suites bench myrocks clean distclean help bench-locks plans

build: ## private MariaDB, workspace, plugin
	@scripts/build

test: ## every test; the last line is "N passed, N failed"
	@scripts/test

demo: build ## a server, a table, a kill -9 and what survives it
	@scripts/demo

fuzz: ## every decoder with mutated inputs, SECONDS=60 for each
	@SLUICE_FUZZ_SECONDS=$(SECONDS) cargo test --workspace --release --locked --lib -- fuzz_ --nocapture --test-threads 2

damage: ## every kind of damage at every place of a small database
	@SLUICE_DAMAGE_STRIDE=1 cargo test -p sluice-engine --release --locked --lib -- damage_tests --nocapture

kill9: build ## kill -9 under load, ROUNDS=50 times; checks acknowledged commits
	@ROUNDS=$(ROUNDS) scripts/kill9 $(ARGS)

powercut: build ## cut the power under load, ROUNDS=50 times: what was not synced is lost
	@ROUNDS=$(ROUNDS) scripts/powercut $(ARGS)

powercut-proof: build ## leave out one kind of sync at a time; powercut must notice each
	@scripts/powercut-proof $(ARGS)

check: ## format, clippy and documentation without warnings, licences, shellcheck, rules of the house
	@scripts/check

deny: ## licences, advisories and sources of all dependencies
	@scripts/deny $(ARGS)

sim: ## the engine under a seeded scheduler, many sessions, power cuts: SEEDS=1000
	@cargo run --release --locked -p sluice-sim --features sim -- run --seeds $(SEEDS) $(ARGS)

sim-planted: ## every bug of engine/src/os/planted.rs must be found by one of 1000 seeds
	@cargo run --release --locked -p sluice-sim --features sim -- planted --seeds $(SEEDS) $(ARGS)

diff: build ## random statements on Sluice and InnoDB compared: STATEMENTS=10000 SEED=s SESSIONS=1
	@STATEMENTS='$(STATEMENTS)' SEED='$(SEED)' SESSIONS='$(SESSIONS)' scripts/diff $(ARGS)

diff-planted: build ## known defects, their mends taken out one by one: the test must find each
	@scripts/diff-planted $(ARGS)

mtr: build ## our suite under the server's test driver, or what ARGS says
	@scripts/mtr $(ARGS)

isolation: build ## isolation and locks beside InnoDB, four levels; HISTORIES=16 random ones, SECONDS=60 of load
	@HISTORIES=$(HISTORIES) LOAD_SECONDS=$(SECONDS) SEED='$(SEED)' scripts/isolation $(ARGS)

plans: build ## EXPLAIN beside InnoDB's: SCALE=1, about 100 MB; ARGS='--only trade'
	@SCALE='$(SCALE)' scripts/plans $(ARGS)

types: build ## every type and collation compared with InnoDB; ARGS=--quick for a share
	@scripts/types $(ARGS)

peer-suites: build ## the server's own suites engines/iuds and engines/funcs on Sluice
	@scripts/peer-suites $(ARGS)

bench: build ## measure: PRESET=oltp, its parameters as docs/bench.md lists them, OUT=dir
	@"$(TARGET)/release/sluice" bench run --preset '$(PRESET)' --out '$(OUT)' $(BENCH_FLAGS) $(ARGS)

myrocks: build ## MyRocks into the prefix, for `sluice bench`
	@scripts/fetch-myrocks

bench-locks: ## ns per lock, by kind, with 10^3 to 10^6 locks in one tree
	@cargo test -p sluice-engine --release --locked --lib txn::lock::bench -- --ignored --nocapture

clean: ## what cargo and the tests made; keeps the MariaDB prefix
	@cargo clean

distclean: clean ## the MariaDB prefix as well; downloads stay in the user's cache
	@rm -rf .prefix

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
