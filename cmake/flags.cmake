# SPDX-License-Identifier: MIT
# What everything here is compiled with. Targets link kvern_flags; nothing leaves this project.
add_library(kvern_flags INTERFACE)

# No contraction and no reassociation anywhere, whatever a surrounding project or CFLAGS ask for:
# docs/arithmetic.md defines each rounding.
target_compile_options(kvern_flags INTERFACE -Wall -Wextra $<$<BOOL:${KVERN_WERROR}>:-Werror>
                       -fno-fast-math -ffp-contract=off -fno-math-errno -fvisibility=hidden)
target_compile_definitions(kvern_flags INTERFACE _GNU_SOURCE)

if(KVERN_FUZZ)
    # Coverage leads the fuzzer (kvern_set_coverage); its findings need the sanitizers.
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "KVERN_FUZZ needs clang (CC=clang)")
    endif()
    if(NOT KVERN_SANITIZE)
        set(KVERN_SANITIZE "address;undefined")
    endif()
endif()

# kvern_set_coverage(<files>): those that decide about foreign bytes report their branches and
# comparisons. What computes does not: it would take twice its time, and leads nowhere.
function(kvern_set_coverage)
    if(KVERN_FUZZ)
        list(FILTER ARGN EXCLUDE REGEX "/src/(attend|codec|math|recurrent)/|/engine/kernels/")
        set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
    endif()
endfunction()
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
