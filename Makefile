# One verb per habit; CI runs the same ones. `make help` lists them.

SHELL := /bin/bash
ROUNDS ?= 50
MINUTES ?= 60
SEEDS ?= 1000
SIZE_GB ?= 1
HISTORIES ?= 16
SCALE ?= 1
SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
ARGS ?=

.DEFAULT_GOAL := build
.PHONY: isolation large-rows build test demo fuzz damage kill9 powercut powercut-proof check deny sim sim-planted diff diff-planted mtr types peer-suites bench presets myrocks bench-commit test-binlog replicas restart rollback soak old-snapshot clean distclean help bench-locks plans

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

large-rows: build ## rows of 256 MiB and 1 GiB, 900 columns, kill -9; ARGS='MiB...'
	@scripts/large-rows $(ARGS)

peer-suites: build ## the server's own suites engines/iuds and engines/funcs on Sluice
	@scripts/peer-suites $(ARGS)

bench: build ## every oltp_* workload of sysbench on Sluice and InnoDB in turn
	@scripts/sysbench-suite $(ARGS)

presets: build ## the published evaluations, scaled: OUT=dir PRESETS='...' ARGS='...'
	@OUT='$(OUT)' PRESETS='$(PRESETS)' ARGS='$(ARGS)' scripts/presets

myrocks: build ## MyRocks into the prefix, for `sluice bench`
	@scripts/fetch-myrocks

soak: build ## a mixed load for MINUTES=60, Sluice and InnoDB in turn; stalls, memory, sizes
	@MINUTES=$(MINUTES) scripts/soak $(ARGS)

old-snapshot: build ## sizes and TPS under a snapshot held MINUTES=60, with and without
	@MINUTES=$(MINUTES) scripts/old-snapshot $(ARGS)

bench-commit: build ## commits per second and flushes per commit, binlog in the log or not, InnoDB
	@scripts/bench-commit $(ARGS)

bench-locks: ## ns per lock, by kind, with 10^3 to 10^6 locks in one tree
	@cargo test -p sluice-engine --release --locked --lib txn::lock::bench -- --ignored --nocapture

test-binlog: build ## the binlog in the log on real servers: lost tails, rotation, a replica
	@scripts/test-binlog $(ARGS)

replicas: build ## replicas on Sluice and InnoDB: semi-sync, kills, parallel apply; lag, ARGS=check|lag|receive
	@scripts/replicas $(ARGS)

restart: build ## time to restart after one transaction of SIZE_GB=1
	@SIZE_GB=$(SIZE_GB) scripts/restart $(ARGS)

rollback: build ## ROLLBACK of a million rows, and scans and updates while it is reverted
	@scripts/rollback $(ARGS)

clean: ## what cargo and the tests made; keeps the MariaDB prefix
	@cargo clean

distclean: clean ## the MariaDB prefix as well; downloads stay in the user's cache
	@rm -rf .prefix

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
