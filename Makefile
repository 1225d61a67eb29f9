# The commands of this project; CI runs the same ones. Everything is built in one profile, so that dependencies are compiled once.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
KILLS ?= 2
RECORDS ?= 1000000
# Kafka over TLS and SASL where OpenSSL's development files are at hand.
TLS := $(shell pkg-config --exists openssl 2>/dev/null && echo waterwheel/kafka-tls)
comma := ,
FEATURES := $(if $(TLS),--features $(TLS))
TEST_FEATURES := --features waterwheel/testing,waterwheel/failpoints$(if $(TLS),$(comma)$(TLS))
# Seeds and counts of the long forms, for `make soak`.
SOAK_KILLS ?= 500
SOAK_HISTORIES ?= 100000

.PHONY: build plugins python demo kafka-demo experiment experiment-original test soak lint bench docs

# Always the whole workspace: cargo unites the features of what is built together, and other sets of packages would build wasmtime again.
build: ## The release binary, at target/release/waterwheel.
	$(CARGO) build --release --workspace $(FEATURES)

plugins: ## The sample plugins, at target/plugins.
	plugins/build.sh

# WATERWHEEL_BUILT=1 says that the program and the plugins are there already.
demo: $(if $(WATERWHEEL_BUILT),,build plugins) ## A stateful job that survives being killed in the middle: `make demo KILLS=0` runs it undisturbed.
	$(TARGET)/release/quickstart --waterwheel $(TARGET)/release/waterwheel --kills $(KILLS) --records $(RECORDS)

kafka-demo: $(if $(WATERWHEEL_BUILT),,build plugins) ## A broker, and the reference experiment with both guarantees: from topic to topic through a SIGKILL.
	examples/kafka/demo.sh

# GUARANTEE, FAST, INTERVAL, EVERY, RECORDS, KILL_AFTER, BOOTSTRAP: see tests/experiment.sh.
experiment: $(if $(WATERWHEEL_BUILT),,build) ## The reference experiment: `make experiment GUARANTEE=exactly-once FAST=1`.
	@tests/experiment.sh

experiment-original: $(if $(WATERWHEEL_BUILT),,build) ## The reference experiment with its original figures, three times with each guarantee: half an hour.
	@for guarantee in exactly-once at-least-once timeout-refused timed-out; do \
		for run in 1 2 3; do GUARANTEE=$$guarantee tests/experiment.sh || exit 1; done; \
	done

# The tests compare windows and joins with what a program in Python computes.
python:
	@command -v python3 >/dev/null || { [ "$$(id -u)" = 0 ] && { apt-get install -y python3 || { apt-get update && apt-get install -y python3; }; } >/dev/null; } || \
		{ echo "the tests need Python 3: install it (apt-get install python3)" >&2; exit 1; }

test: plugins python ## All tests, and the commands of the README as they stand.
	WATERWHEEL_PLUGINS=$(abspath $(TARGET)/plugins) $(CARGO) test --release --workspace $(TEST_FEATURES)
	$(CARGO) build --release --workspace $(TEST_FEATURES)
	FAST=1 GUARANTEE=timeout-refused tests/experiment.sh
	FAST=1 GUARANTEE=timed-out tests/experiment.sh
	WATERWHEEL_BUILT=1 tests/readme.sh

soak: plugins python ## The long forms of the tests.
	WATERWHEEL_PLUGINS=$(abspath $(TARGET)/plugins) WATERWHEEL_KILLS=$(SOAK_KILLS) WATERWHEEL_HISTORIES=$(SOAK_HISTORIES) \
		$(CARGO) test --release --workspace $(TEST_FEATURES)

lint: ## Formatting, lints, documentation.
	tests/wit-golden.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets $(TEST_FEATURES) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --document-private-items --lib $(FEATURES)

bench: plugins ## Figures, and ratios of figures of one run; a table, and JSON in target/bench.
	WATERWHEEL_PLUGINS=$(abspath $(TARGET)/plugins) $(CARGO) bench --workspace --bench suite $(FEATURES)

docs: ## The documentation of the library and the SDK, at target/doc.
	$(CARGO) doc --release --workspace --no-deps --lib $(FEATURES)
