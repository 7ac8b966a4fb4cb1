# SPDX-License-Identifier: MIT
# The everyday commands ("make help"); docs/TESTING.md says more about the tests. CMake does the
# work: every build below is a preset of CMakePresets.json, and "cmake --preset default" works
# without make.

PROMPT ?= Explain in two sentences why the sky is blue.
# The shell expands it, so that it may contain quotes.
export PROMPT
PREFIX ?= /usr/local
BUILD ?= build

# An aarch64 machine tests itself; any other one tests it by emulation too.
ifeq ($(shell uname -m),aarch64)
TEST_BUILDS = default asan tsan
else
TEST_BUILDS = default asan tsan aarch64
endif
# The build folder of a preset: build for default, build-asan for asan, ...
TEST_FOLDERS = $(subst build-default,build,$(addprefix build-,$(TEST_BUILDS)))

.PHONY: build help run check test test-long test-builds models bench-peers install uninstall \
	format check-format tidy clean

# The library and the program, without the tests unless these are configured already.
build: build/build.ninja
	tools/setup run
	cmake --build build

build/build.ninja:
	tools/setup run
	cmake --preset default -DKVERN_TESTS=OFF

help:
	@echo "make                the library and the program, in build/"
	@echo "make run            a small model answers PROMPT='...'; the first run downloads it"
	@echo "make check          quick tests: two minutes from a clean tree"
	@echo "make test           every test, with sanitizers and on aarch64: what CI runs"
	@echo "make test-long      the same with more work each: hours"
	@echo "make format         clang-format over the sources"
	@echo "make tidy           clang-tidy"
	@echo "make models         fetches every model that tests and tables use"
	@echo "make bench-peers    measures beside peers and writes docs/PERF.md: hours"
	@echo "make install        into PREFIX=$(PREFIX), below DESTDIR"
	@echo "make uninstall      takes that back"
	@echo "make clean          removes the build folders"

# A small real model answers PROMPT; the first run downloads it.
run: build
	build/kvern run "$$(tools/fetch-model smollm2)" -p "$$PROMPT"

# One build with the kernels of one instruction set; it fetches nothing and stops at a failure.
check:
	tools/setup check
	tools/check-layers
	tools/check-style
	cmake --preset check
	cmake --build build-check
	tools/run-tests --quick build-check

test: test-builds
	tools/run-tests $(TEST_FOLDERS)

# Hours instead of minutes: longer random sequences, fuzzing, and the whole model under emulation.
test-long: test-builds models
	for folder in $(TEST_FOLDERS); do cmake --build $$folder --target long_tests || exit 1; done
	KVERN_TEST_LONG=1 KVERN_FUZZ_SECONDS=3600 tools/run-tests $(TEST_FOLDERS)

test-builds:
	tools/setup test
	tools/check-layers
	tools/check-style
	case " $(TEST_BUILDS) " in *" aarch64 "*) tools/aarch64-sysroot;; esac
	for preset in $(TEST_BUILDS); do \
	    cmake --preset $$preset -DKVERN_TESTS=ON && \
	    cmake --build $$(echo build-$$preset | sed 's/-default//') || exit 1; \
	done

# Every model that tests and tables use.
models:
	tools/fetch-model smollm2
	tools/fetch-model gemma3-270m

# Measures everything beside its peers and writes docs/PERF.md and what is below docs/perf: hours, on a
# machine that does nothing else. BENCH holds options, such as --quick or --help (bench/peers/run.py).
bench-peers: build
	tools/setup bench
	bench/peers/python --version
	python3 bench/peers/run.py $(BENCH)

# DESTDIR works as usual. What is missing here is named by CMake and not installed.
install:
	[ -f $(BUILD)/build.ninja ] || cmake --preset default -DKVERN_TESTS=OFF
	cmake --build $(BUILD)
	cmake --install $(BUILD) --prefix "$(PREFIX)"

# Removes what the last make install put there, and folders that are empty then.
uninstall:
	while IFS= read -r file || [ -n "$$file" ]; do \
	    rm -f "$(DESTDIR)$$file" && echo "$(DESTDIR)$$file" || exit 1; \
	    case "$$file" in */kvern/*) \
	        rmdir -p --ignore-fail-on-non-empty "$(DESTDIR)$$(dirname "$$file")" 2>/dev/null || true;; \
	    esac; \
	done < $(BUILD)/install_manifest.txt

format:
	git ls-files -co --exclude-standard '*.[ch]' | xargs clang-format -i

check-format:
	tools/check-style

tidy: test-builds
	tools/tidy build

clean:
	rm -rf build build-check build-asan build-tsan build-aarch64
