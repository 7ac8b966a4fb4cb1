# SPDX-License-Identifier: MIT
# What everything here is compiled with. Targets link kvern_flags; nothing leaves this project.
add_library(kvern_flags INTERFACE)

# No contraction and no reassociation anywhere, whatever a surrounding project or CFLAGS ask for:
# docs/arithmetic.md defines each rounding.
target_compile_options(kvern_flags INTERFACE -Wall -Wextra $<$<BOOL:${KVERN_WERROR}>:-Werror>
                       -fno-fast-math -ffp-contract=off -fno-math-errno -fvisibility=hidden)
target_compile_definitions(kvern_flags INTERFACE _GNU_SOURCE)

if(KVERN_FUZZ)
    # Coverage in the library and the engine is what leads the fuzzer; its findings need the
    # sanitizers.
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "KVERN_FUZZ needs clang (CC=clang)")
    endif()
    if(NOT KVERN_SANITIZE)
        set(KVERN_SANITIZE "address;undefined")
    endif()
    target_compile_options(kvern_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(KVERN_SANITIZE)
    string(REPLACE ";" "," KVERN_SANITIZE_FLAG "${KVERN_SANITIZE}")
    target_compile_options(kvern_flags INTERFACE -fsanitize=${KVERN_SANITIZE_FLAG}
                           -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(kvern_flags INTERFACE -fsanitize=${KVERN_SANITIZE_FLAG})
endif()

# Invariants are checked where somebody looks for faults (src/base/assert.h).
if(KVERN_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(kvern_flags INTERFACE KVERN_ASSERTS)
endif()
