# One verb per habit; CI runs the same ones. `make help` lists them.

SHELL := /bin/bash
ROUNDS ?= 50
SEEDS ?= 1000
ARGS ?=

.DEFAULT_GOAL := build
.PHONY: build test demo kill9 check deny sim sim-planted mtr bench clean distclean help

build: ## private MariaDB, workspace, plugin
	@scripts/build

test: ## every test; the last line is "N passed, N failed"
	@scripts/test

demo: build ## a server, a table, a kill -9 and what survives it
	@scripts/demo

kill9: build ## kill -9 under load, ROUNDS=50 times; checks acknowledged commits
	@ROUNDS=$(ROUNDS) scripts/kill9 $(ARGS)

check: ## format, clippy without warnings, licences, rules of the house
	@scripts/check

deny: ## licences, advisories and sources of all dependencies
	@scripts/deny $(ARGS)

sim: ## the engine under a seeded scheduler, many sessions, power cuts: SEEDS=1000
	@cargo run --release --locked -p sluice-sim --features sim -- run --seeds $(SEEDS) $(ARGS)

sim-planted: ## every bug of engine/src/os/planted.rs must be found by one of 1000 seeds
	@cargo run --release --locked -p sluice-sim --features sim -- planted --seeds $(SEEDS) $(ARGS)

mtr: build ## our suite under the server's test driver, or what ARGS says
	@scripts/mtr $(ARGS)

bench: build ## every oltp_* workload of sysbench on Sluice and InnoDB in turn
	@scripts/sysbench-suite $(ARGS)

clean: ## what cargo and the tests made; keeps the MariaDB prefix
	@cargo clean

distclean: clean ## the MariaDB prefix as well; downloads stay in the user's cache
	@rm -rf .prefix

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
