# SPDX-License-Identifier: MIT
# tests/<area>/test_<name>.c -> one cmocka program, one test <area>/<name> (docs/TESTING.md).
# tests/fuzz/fuzz_<name>.c -> a replay over tests/fuzz/corpus/<name>, a libFuzzer target on demand.
# tests/fuzz/make_<name>_corpus.c -> a program that writes that corpus, built when asked for.
if(NOT KVERN_HAS_CMOCKA)
    message(FATAL_ERROR "The tests need cmocka and pkg-config; -DKVERN_TESTS=OFF does without")
endif()
if(NOT KVERN_FILES)
    message(FATAL_ERROR "The tests need KVERN_FILES; -DKVERN_TESTS=OFF does without")
endif()
find_library(MPFR_LIBRARY mpfr)
# Hundreds of programs are linked: lld takes half the time.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=lld KVERN_HAS_LLD)

# Tests that run again with narrower instruction sets, by KVERN_CPU: those that compute with
# whatever a context chose. The library's own tests choose among all variants themselves.
set(REPEATED "^digest/|^engine/(same_bits|llama)$")
# The slowest dozen: make check leaves them to make test.
string(CONCAT NOT_QUICK
    "^engine/(schedule|schedule_draft|schedule_model|speculate|speculate_model|same_bits"
    "|same_bits_model)$|^property/cache_model$|^samebits/library$|^fault/refused_programs$"
    "|^samebits/sharing$|^unit/rotated_quality$|^cli/(batch|bench)$")
# The rest takes minutes under qemu, and is left to make test-long there.
set(QUICK_EMULATED
    "^(base|digest)/|^kernels/softmax|^math/(arrays|fpenv|half|lanes)"
    "|^unit/(arguments|export|facts|fault_numbers|fault_rows|float_environment|storage)$"
    "|^engine/(linear|ops|utf8|tokenizer)$")
string(CONCAT QUICK_EMULATED ${QUICK_EMULATED})

# Programs of tests that are left to make test-long, which builds this target.
add_custom_target(long_tests)
function(leave_to_long target)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(long_tests ${target})
endfunction()

# Timeouts are CTest's (tools/run-tests chooses one by the tier). Sanitizers stop at a finding.
function(set_common_properties name labels)
    string(CONCAT leaks "LSAN_OPTIONS=print_suppressions=0:suppressions="
           ${PROJECT_SOURCE_DIR}/tests/support/leaks.supp)
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" ENVIRONMENT
        "UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=halt_on_error=1;${leaks};${ARGN}")
endfunction()

# kvern_add_test(<area> <name> <target> <command>...): the test <prefix><area>/<name>, which needs a
# target, and the same for each narrower instruction set where that can make a difference.
function(kvern_add_test area name target)
    set(full_name ${KVERN_TEST_PREFIX}${area}/${name})
    if(CMAKE_CROSSCOMPILING AND area STREQUAL "cli")
        leave_to_long(${target})
        return() # these run the program themselves, without the emulator
    endif()
    set(labels ${area})
    if(full_name MATCHES "thread")
        list(APPEND labels threads)
    endif()
    # With checks on every access, a whole model takes long, and typing at a program that lags is
    # no steady test.
    if((CMAKE_CROSSCOMPILING AND NOT "${area}/${name}" MATCHES "${QUICK_EMULATED}") OR
       (KVERN_SANITIZE AND "${area}/${name}" MATCHES
        "^(engine/(same_bits|speculate|schedule)_model|cli/conversation)$"))
        list(APPEND labels long)
        leave_to_long(${target})
    endif()
    set(quick quick)
    if("${area}/${name}" MATCHES "${NOT_QUICK}")
        set(quick "")
    endif()
    add_test(NAME ${full_name} COMMAND ${ARGN})
    set_common_properties(${full_name} "${labels};${quick}")
    # Until CTest has measured them, the slowest begin first, so that none is left alone at the end.
    if("${area}/${name}" MATCHES "${NOT_QUICK}")
        set(cost 50)
        if(KVERN_SANITIZE)
            set(cost 100)
        endif()
        set_property(TEST ${full_name} PROPERTY COST ${cost})
    endif()
    if(KVERN_TEST_PREFIX OR NOT full_name MATCHES "${REPEATED}")
        return()
    endif()
    foreach(cpu plain avx2)
        add_test(NAME ${cpu}/${area}/${name} COMMAND ${ARGN})
        set_common_properties(${cpu}/${area}/${name} "${labels};${cpu}" KVERN_CPU=${cpu})
    endforeach()
endfunction()

file(GLOB SUPPORT_GLOB CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.c)
if(NOT KVERN_REDIS)
    list(FILTER SUPPORT_GLOB EXCLUDE REGEX "/remote_[a-z]*\\.c$")
endif()
add_library(kvern_test_support STATIC ${SUPPORT_GLOB})
target_include_directories(kvern_test_support PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(kvern_test_support PUBLIC
                           KVERN_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(kvern_test_support PUBLIC kvern_flags kvern_static PkgConfig::CMOCKA m)
if(KVERN_HAS_LLD)
    target_link_options(kvern_test_support PUBLIC -fuse-ld=lld)
endif()
if(TARGET kvern_engine)
    target_link_libraries(kvern_test_support PUBLIC kvern_engine)
endif()
if(KVERN_REDIS)
    # Not its flags: with -D_FILE_OFFSET_BITS=64 tests that answer mmap would answer mmap64.
    target_include_directories(kvern_test_support PUBLIC ${HIREDIS_INCLUDE_DIRS})
    target_link_libraries(kvern_test_support PUBLIC ${HIREDIS_LINK_LIBRARIES})
endif()

file(GLOB TEST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/test_*.c)
foreach(file IN LISTS TEST_SOURCES)
    get_filename_component(directory ${file} DIRECTORY)
    get_filename_component(area ${directory} NAME)
    get_filename_component(program ${file} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${program})
    set(target test_${area}_${name})
    if(area STREQUAL "engine" OR area STREQUAL "cli")
        if(NOT TARGET kvern_engine)
            continue()
        endif()
    endif()
    if(KVERN_SANITIZE STREQUAL "thread" AND NOT "${area}/${name}" MATCHES "thread")
        continue() # only these have something to find
    endif()
    if(name MATCHES "remote" AND NOT KVERN_REDIS)
        message(STATUS "Without KVERN_REDIS: ${area}/${name} is left out")
        continue()
    endif()
    if(name MATCHES "mpfr" AND NOT MPFR_LIBRARY)
        message(STATUS "MPFR is missing: ${area}/${name} is left out")
        continue()
    endif()
    # Files tests/<area>/<name>_*.c belong to it: kernels for one instruction set, by name.
    file(GLOB companions CONFIGURE_DEPENDS ${directory}/${name}_*.c)
    kvern_set_isa_flags(companions ${companions})
    add_executable(${target} ${file} ${companions})
    target_link_libraries(${target} PRIVATE kvern_test_support)
    if(name MATCHES "mpfr")
        target_link_libraries(${target} PRIVATE ${MPFR_LIBRARY})
    endif()
    if(area STREQUAL "cli")
        target_link_libraries(${target} PRIVATE kvern_cli)
    endif()
    kvern_add_test(${area} ${name} ${target} ${target})
    if(area STREQUAL "cli" AND TEST ${KVERN_TEST_PREFIX}${area}/${name})
        add_dependencies(${target} kvern_program kvern_bench) # which these tests run
        set_property(TEST ${KVERN_TEST_PREFIX}${area}/${name} APPEND PROPERTY ENVIRONMENT
                     KVERN_PROGRAM=$<TARGET_FILE:kvern_program>)
    endif()
endforeach()

# tests/server/test_<name>.py: clients of `kvern serve`.
if(TARGET kvern_program AND NOT CMAKE_CROSSCOMPILING)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    add_executable(server_models ${PROJECT_SOURCE_DIR}/tests/server/make_models.c)
    target_link_libraries(server_models PRIVATE kvern_test_support)
    file(GLOB SERVER_TESTS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/server/test_*.py)
    foreach(file IN LISTS SERVER_TESTS)
        get_filename_component(name ${file} NAME_WE)
        string(REGEX REPLACE "^test_" "" name ${name})
        # AddressSanitizer keeps what was freed, so that memory grows.
        if((KVERN_SANITIZE STREQUAL "thread" AND NOT name MATCHES "thread") OR
           (KVERN_SANITIZE AND name STREQUAL "memory") OR
           (name MATCHES "remote" AND NOT KVERN_REDIS))
            continue()
        endif()
        kvern_add_test(server ${name} server_models ${Python3_EXECUTABLE} -B ${file})
        # 77: what it needs besides is not there, and it says what.
        set_property(TEST ${KVERN_TEST_PREFIX}server/${name} PROPERTY SKIP_RETURN_CODE 77)
        set_property(TEST ${KVERN_TEST_PREFIX}server/${name} APPEND PROPERTY ENVIRONMENT
                     KVERN_PROGRAM=$<TARGET_FILE:kvern_program>
                     KVERN_SERVER_MODELS=$<TARGET_FILE:server_models>)
    endforeach()
endif()

if(TARGET kvern_engine AND NOT KVERN_SANITIZE STREQUAL "thread")
    file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
    list(LENGTH FUZZ_SOURCES FUZZ_COUNT)
    foreach(file IN LISTS FUZZ_SOURCES)
        get_filename_component(program ${file} NAME_WE)
        string(REGEX REPLACE "^fuzz_" "" name ${program})
        if(name MATCHES "remote" AND NOT KVERN_REDIS)
            continue()
        endif()
        add_executable(replay_${name} ${file} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
        target_link_libraries(replay_${name} PRIVATE kvern_test_support kvern_server)
        kvern_add_test(fuzz replay_${name} replay_${name}
                       replay_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
        if(KVERN_FUZZ)
            add_executable(${program} ${file})
            target_link_options(${program} PRIVATE -fsanitize=fuzzer)
            target_link_libraries(${program} PRIVATE kvern_test_support kvern_server)
            add_test(NAME fuzz/${name} COMMAND ${PROJECT_SOURCE_DIR}/tools/fuzz ${name}
                     ${PROJECT_BINARY_DIR} ${FUZZ_COUNT})
            set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz)
        endif()
    endforeach()
    file(GLOB CORPUS_MAKERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/make_*_corpus.c)
    foreach(file IN LISTS CORPUS_MAKERS)
        get_filename_component(program ${file} NAME_WE)
        if(program MATCHES "remote" AND NOT KVERN_REDIS)
            continue()
        endif()
        add_executable(${program} EXCLUDE_FROM_ALL ${file})
        target_link_libraries(${program} PRIVATE kvern_test_support)
    endforeach()
endif()

# Files of rows with what is in them, for the reader in Python (tests/oracle/test_container.py).
if(NOT KVERN_SANITIZE STREQUAL "thread")
    add_executable(kvern_container_samples
                   ${PROJECT_SOURCE_DIR}/tests/oracle/container_samples.c)
    target_link_libraries(kvern_container_samples PRIVATE kvern_test_support)
endif()

# The same numbers everywhere, also where nobody compares two builds: tests/digest/digest.c.
if(NOT KVERN_SANITIZE STREQUAL "thread")
    add_executable(kvern_digest ${PROJECT_SOURCE_DIR}/tests/digest/digest.c)
    target_include_directories(kvern_digest PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(kvern_digest PRIVATE kvern_flags kvern_static)
    kvern_add_test(digest library kvern_digest
                   kvern_digest ${PROJECT_SOURCE_DIR}/tests/golden/digest.txt)
endif()

if(CMAKE_CROSSCOMPILING AND TARGET kvern_program)
    add_test(NAME ${KVERN_TEST_PREFIX}samebits/whole_model
             COMMAND ${PROJECT_SOURCE_DIR}/tests/samebits/whole_model.sh
             ${PROJECT_SOURCE_DIR}/build/kvern ${CMAKE_CROSSCOMPILING_EMULATOR}
             $<TARGET_FILE:kvern_program>)
    set_common_properties(${KVERN_TEST_PREFIX}samebits/whole_model "samebits;long")
endif()
if(NOT KVERN_TEST_PREFIX)
    include(cmake/suite.cmake)
endif()
