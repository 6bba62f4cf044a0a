# One verb per habit, its kinds and sizes as parameters; CI runs the same verbs. `make help` lists them.

SHELL := /bin/bash
ROUNDS ?= 50
SEEDS ?= 1000
HISTORIES ?= 16
SCALE ?= 1
SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
ARGS ?=
KIND ?=
PRESET ?= oltp
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(TARGET)/release

# Another server than the default, a release or a series: a prefix of its own, the same target directory.
SERVER ?=
# Packages and tarballs have a build for each known release of a series. Their tests begin with the prefix of the newest.
ifneq ($(filter deb test-deb tarball,$(MAKECMDGOALS)),)
export PACK_RELEASES := $(shell scripts/known-releases $(SERVER))
override SERVER := $(lastword $(PACK_RELEASES))
endif
ifneq ($(SERVER),)
export SLUICE_MARIADB_VERSION := $(SERVER)
export SLUICE_PREFIX := $(CURDIR)/.prefix-$(SERVER)
endif

# Variables that are parameters of a preset, as options: THREADS="1 16" is --threads 1,16.
BENCH_LISTS := ONLY WORKLOADS THREADS SIZE_GB WHEN CHANGE REPLICA_ENGINES APPLY_THREADS RECEIVERS VALUE_MIB ROW_BYTES
BENCH_VALUES := MINUTES REPETITIONS TABLES ROWS POOL_MIB LOG_MIB SETTLE WARMUP TPS_SECONDS PS_MODE RAND_TYPE \
  WAREHOUSES SCALE_PERCENT
comma := ,
space := $(subst ,, )
listed = $(subst $(space),$(comma),$(strip $1))
PRESETS := $(call listed,$(PRESET))
# Several presets have a directory each below OUT.
OUT ?= $(TARGET)/bench$(if $(findstring $(comma),$(PRESETS)),,/$(PRESETS))
option = --$(shell echo $1 | tr A-Z_ a-z-)
# Those of the variables $1 that are set, as options.
given = $(foreach v,$1,$(if $($v),$(call option,$v) '$($v)'))
BENCH_FLAGS = $(foreach v,$(BENCH_LISTS),$(if $($v),$(call option,$v) '$(call listed,$($v))')) \
  $(call given,$(BENCH_VALUES)) \
  $(if $(filter command line,$(origin SECONDS)),--seconds '$(SECONDS)') $(if $(COLD),--cold)

# Stops at a KIND that the verb $1 does not have; $2 are all, the first one the default.
kind = $(if $(KIND),$(or $(filter $(KIND),$2),$(error make $1 has no KIND=$(KIND): $2)),$(firstword $2))

.DEFAULT_GOAL := build
.PHONY: build built test check demo bench sim diff isolation crash kill9 powercut mtr fuzz deb test-deb tarball clean help

build: ## private MariaDB, workspace, plugin; KIND=myrocks fetches MyRocks for `bench`
	@$(build-$(call kind,build,all myrocks))
build-all = scripts/build
build-myrocks = scripts/fetch-myrocks

# Before a verb that has kinds of its own.
built:
	@scripts/build

test: ## every test, its last line "N passed, N failed"; ONLY='STEP ...'; SERVER=11.8 as for each verb
	@ONLY='$(ONLY)' scripts/test

check: ## format, lints, docs, licences, shellcheck, rules of the house; KIND=deny: advisories, sources
	@$(check-$(call kind,check,all deny))
check-all = scripts/check
check-deny = scripts/deny $(ARGS)

demo: built ## a server, a table, a kill -9 and what survives it
	@scripts/demo

bench: built ## measure: PRESET=oltp OUT=dir, parameters as docs/bench.md lists them; KIND=locks: locks
	@$(bench-$(call kind,bench,presets locks))
bench-presets = "$(TARGET)/release/sluice" bench run --preset '$(PRESETS)' --out '$(OUT)' $(BENCH_FLAGS) $(ARGS)
bench-locks = cargo test -p sluice-engine --release --locked --lib txn::locks::manager::bench -- --ignored --nocapture && \
  $(MAKE) --no-print-directory bench KIND=presets PRESET=locks

SIM = cargo run --release --locked -p sluice-sim --features sim --
sim: ## the engine under a seeded scheduler: SEEDS=1000; KIND=planted: finds every planted bug; model: bytes
	@$(sim-$(call kind,sim,run planted model))
sim-run = $(SIM) run --seeds $(SEEDS) $(ARGS)
sim-planted = $(SIM) planted --seeds $(SEEDS) $(ARGS)
# Runs no engine: predicts bytes written by workload and policy of the page store.
sim-model = cargo run --release --locked -p sluice-model -- $(ARGS)

diff: built ## beside InnoDB, STATEMENTS=10000 SEED=s SESSIONS=1; KIND=planted, types, plans (SCALE=1), costs
	@$(diff-$(call kind,diff,statements planted types plans costs))
diff-statements = "$(TOOLS)/sluice-diff" run $(call given,STATEMENTS SEED SESSIONS) $(ARGS)
diff-planted = "$(TOOLS)/sluice-diff" planted $(ARGS)
diff-types = "$(TOOLS)/sluice-diff" types $(ARGS)
diff-plans = "$(TOOLS)/sluice-plans" --scale '$(SCALE)' $(ARGS)
diff-costs = "$(TOOLS)/sluice-plans" --costs $(ARGS)

isolation: built ## isolation and locks beside InnoDB, four levels; HISTORIES=16 random ones, SECONDS=60 of load
	@"$(TOOLS)/sluice-isolation" all --histories $(HISTORIES) --seconds $(SECONDS) $(call given,SEED) $(ARGS)

crash: built ## under load, ROUNDS=50: KIND=kill9, powercut (unsynced bytes are lost), backup; powercut-proof, backup-proof
	@$(crash-$(call kind,crash,kill9 powercut powercut-proof backup backup-proof))
crash-kill9 = "$(TOOLS)/sluice-crash" kill9 --rounds $(ROUNDS) $(call given,SEED ENGINE) $(ARGS)
crash-powercut = "$(TOOLS)/sluice-crash" powercut --rounds $(ROUNDS) $(call given,SEED ENGINE) $(ARGS)
# Leaves out one kind of sync at a time; the power cuts must notice each. Each has rounds of its own.
crash-powercut-proof = "$(TOOLS)/sluice-crash" powercut-proof $(PROOF_FLAGS)
PROOF_FLAGS = $(call given,SEED) $(if $(filter file,$(origin ROUNDS)),,$(call given,ROUNDS)) $(ARGS)

# Backups and increments, many ended on the way; what was finished is restored and compared.
crash-backup = "$(TOOLS)/sluice-crash" backup --rounds $(ROUNDS) $(call given,SEED) $(ARGS)
# Plants a bug at a time; the backups must notice each.
crash-backup-proof = "$(TOOLS)/sluice-crash" backup-proof $(PROOF_FLAGS)

# Short for crash KIND=...
kill9 powercut:
	@$(MAKE) --no-print-directory crash KIND=$@

mtr: built ## our suite under the server's test driver, or what ARGS says; KIND=peers: the server's own suites
	@$(mtr-$(call kind,mtr,ours peers))
mtr-ours = scripts/mtr $(ARGS)
mtr-peers = scripts/peer-suites $(ARGS)

FUZZ = cargo test --release --locked
fuzz: ## every decoder with mutated inputs, SECONDS=60 each; KIND=damage: every damage at every place
	@$(fuzz-$(call kind,fuzz,decoders damage))
fuzz-decoders = SLUICE_FUZZ_SECONDS=$(SECONDS) $(FUZZ) --workspace --lib -- fuzz_ --nocapture --test-threads 2
fuzz-damage = SLUICE_DAMAGE_STRIDE=1 $(FUZZ) -p sluice-engine --lib -- db::tests::damage --nocapture

deb: ## Debian packages below target/deb, for SERVER; KIND=test: in a clean root of the distribution
	@$(deb-$(call kind,deb,build test))
deb-build = scripts/deb
deb-test = scripts/deb && ONLY=deb scripts/test

tarball: ## for other distributions: target/sluice-*.tar.xz, for SERVER; KIND=test: unpacked beside a server
	@$(tarball-$(call kind,tarball,build test))
tarball-build = scripts/tarball
tarball-test = scripts/tarball && PACK_COMPILED="$(abspath $(TARGET))/deb/cargo" ONLY=tarball scripts/test

# Short for deb KIND=test
test-deb:
	@$(MAKE) --no-print-directory deb KIND=test

clean: ## what cargo and the tests made; KIND=all: the MariaDB prefixes as well, not the user's cache
	@$(clean-$(call kind,clean,built all))
clean-built = cargo clean
clean-all = cargo clean && rm -rf .prefix .prefix-*

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
