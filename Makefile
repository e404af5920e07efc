# `make demo` and `make test` do all set-up themselves on Debian 12 and Ubuntu 24.04.
.DEFAULT_GOAL := help
.PHONY: help deps build demo package gpu test recall soak bench format lint clean

BUILD := build/release
SANITIZED := build/dev
FUZZ := build/fuzz

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1\t/p' Makefile

deps: ## install missing packages (apt, as root or through sudo)
	@deploy/local/install-deps.sh

.PHONY: test-deps testable
test-deps:
	@deploy/local/install-deps.sh --tests

# Python packages that tests use as oracles and clients, in a folder of their own.
.venv/installed: tests/requirements.txt | test-deps
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

$(BUILD)/build.ninja: | deps
	cmake --preset release

# Tests and benches are part of it only where their packages are.
testable: test-deps
	cmake --preset release

build: $(BUILD)/build.ninja ## optimised binaries in build/release/bin
	cmake --build $(BUILD) --target baton baton-router baton-prefill baton-decode baton-recall

demo: build ## a cluster on this machine answers needle questions
	python3 deploy/local/demo.py --binaries $(BUILD)/bin

package: build ## build/baton.tar.gz: binaries, their libraries, configurations, the small model
	deploy/package.sh $(BUILD)/bin build/baton.tar.gz

gpu: testable ## what can only be tested on a machine with an NVIDIA GPU
	cmake --build $(BUILD) --target cuda_kernels_test cuda_engine_test cuda_selection_gate_test recall_fp32_index \
	  baton baton-recall baton-golden baton-router baton-prefill baton-decode
	ctest --test-dir $(BUILD) -L gpu --output-on-failure
	$(BUILD)/bin/baton-golden --model models/needle-17m tests/golden/needle-17m.safetensors --device cuda
	BATON_BINARIES=$(BUILD)/bin BATON_WORKER_FLAGS="--device=cuda --pages=512" python3 tests/e2e/golden_through_cluster_test.py

test: .venv/installed ## the whole suite; unit tests under AddressSanitizer and UBSan
	cmake --preset dev
	cmake --build $(SANITIZED) --target unit_tests
	ctest --test-dir $(SANITIZED) -L unit -E '^layering' --output-on-failure --progress -j 2
	cmake --preset release -DPython3_EXECUTABLE=$(CURDIR)/.venv/bin/python
	cmake --build $(BUILD) --target system_tests
	ctest --test-dir $(BUILD) -LE 'unit|gpu' -E NOT_BUILT --output-on-failure --progress
	ctest --test-dir $(BUILD) -R '^layering' --output-on-failure --progress

soak: testable ## long randomised runs, ten minutes of each fuzz target among them
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) -C soak -L soak --output-on-failure
	deploy/local/install-deps.sh clang-16 libclang-rt-16-dev
	cmake --preset fuzz
	cmake --build $(FUZZ) --target fuzz_targets
	ctest --test-dir $(FUZZ) -C soak -L soak --output-on-failure -j 2

# Builds with a fault in the index or the hand-off stand beside the real one; that they lose needles is no failure.
recall: testable build ## the report on recall in cli/needle/report: needles through clusters and through faulty builds
	cmake --build $(BUILD) --target recall_mutants
	tests/engine/recall/report.sh $(BUILD)/bin cli/needle/report

bench: testable ## benchmarks; prints, and writes nothing
	cmake --build $(BUILD)
	for bench in $(BUILD)/bin/*_bench; do $$bench || exit 1; done

format: ## clang-format every source
	git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-14 -i

lint: $(BUILD)/build.ninja ## clang-format and clang-tidy, as errors
	deploy/local/install-deps.sh --tests clang-tidy-16
	git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror
	git ls-files '*.cc' ':!tests' | xargs -P 2 -n 4 clang-tidy-16 -p $(BUILD) --quiet

clean: ## remove build folders
	rm -rf build
