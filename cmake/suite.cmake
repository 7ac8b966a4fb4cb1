# SPDX-License-Identifier: MIT
# Tests that are no cmocka programs: the check scripts, valgrind, and the oracles in Python. They
# belong to the main build only.
set(TOOLS ${PROJECT_SOURCE_DIR}/tools)

function(add_check name)
    add_test(NAME check/${name} COMMAND ${ARGN})
    # They come first: what they find needs no test.
    set_tests_properties(check/${name} PROPERTIES LABELS "check;quick" COST 1000)
endfunction()

add_check(layers ${TOOLS}/check-layers)
add_check(style ${TOOLS}/check-style)
add_check(docs ${TOOLS}/check-docs)
add_check(headers ${TOOLS}/check-headers)
if(CMAKE_BUILD_TYPE STREQUAL "Debug") # as in flags.cmake
    set(ASSERTS --asserts)
endif()
add_check(symbols ${TOOLS}/check-symbols ${PROJECT_BINARY_DIR} ${ASSERTS})
add_check(install ${TOOLS}/check-install ${PROJECT_BINARY_DIR})
add_check(vendoring ${TOOLS}/check-vendoring)
add_check(bare ${TOOLS}/check-bare)
add_check(abi ${TOOLS}/check-abi ${PROJECT_BINARY_DIR})
add_check(checks python3 ${PROJECT_SOURCE_DIR}/tests/tools/test_checks.py)
add_check(compilers python3 ${PROJECT_SOURCE_DIR}/tests/tools/test_compilers.py)
add_check(report python3 ${PROJECT_SOURCE_DIR}/tests/tools/test_report.py)

# Uninitialised memory that reaches a result is what the sanitizers do not see.
foreach(test IN ITEMS engine_generate engine_chat unit_arguments unit_fault_rows
                      unit_defined_values unit_export)
    if(TARGET test_${test})
        add_test(NAME valgrind/${test} COMMAND valgrind --quiet --error-exitcode=99
                 --leak-check=full --errors-for-leak-kinds=definite,indirect
                 $<TARGET_FILE:test_${test}>)
        set_tests_properties(valgrind/${test} PROPERTIES LABELS valgrind)
    endif()
endforeach()

# The Python environment and the model are made by tests of their own, once, when needed.
add_test(NAME oracle/setup COMMAND ${TOOLS}/oracle-python --version)
set_tests_properties(oracle/setup PROPERTIES LABELS oracle COST 500 FIXTURES_SETUP oracle)
file(GLOB ORACLES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/oracle/test_*.py)
foreach(file IN LISTS ORACLES)
    if(NOT TARGET kvern_program)
        continue()
    endif()
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    add_test(NAME oracle/${name}
             COMMAND ${TOOLS}/oracle-python ${file} $<TARGET_FILE:kvern_program>)
    set_tests_properties(oracle/${name} PROPERTIES LABELS oracle COST 500
                         FIXTURES_REQUIRED oracle)
endforeach()

# The page at / in a real browser (chromium, from tools/setup test); 77 says that there is none.
add_test(NAME page/mock COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/page/test_page_mock.py)
set_tests_properties(page/mock PROPERTIES LABELS page SKIP_RETURN_CODE 77 COST 60)
