# SPDX-License-Identifier: MIT
# The engine (static, internal to this project) and the kvern program. Both see public headers only.
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)

file(GLOB_RECURSE ENGINE_GLOB CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/*.c)
kvern_set_coverage(${ENGINE_GLOB})
kvern_set_isa_flags(ENGINE_SOURCES ${ENGINE_GLOB})
add_library(kvern_engine STATIC ${ENGINE_SOURCES})
target_include_directories(kvern_engine PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(kvern_engine PUBLIC kvern_flags kvern_static
                                          PkgConfig::JANSSON PkgConfig::PCRE2
                                          PkgConfig::UTF8PROC PkgConfig::XXHASH)

# The server behind `kvern serve`, with the page that browsers get.
# (Its pkg-config file asks for those of the TLS library, which nothing here uses.)
find_path(MICROHTTPD_INCLUDE microhttpd.h)
find_library(MICROHTTPD_LIBRARY microhttpd)
if(NOT MICROHTTPD_INCLUDE OR NOT MICROHTTPD_LIBRARY)
    message(FATAL_ERROR "The program needs libmicrohttpd (Debian: libmicrohttpd-dev)")
endif()
include(cmake/page.cmake)
file(GLOB_RECURSE SERVER_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/server/*.c)
kvern_set_coverage(${SERVER_SOURCES})
add_library(kvern_server STATIC ${SERVER_SOURCES})
kvern_embed_page(kvern_server)
target_include_directories(kvern_server SYSTEM PRIVATE ${MICROHTTPD_INCLUDE})
target_link_libraries(kvern_server PUBLIC kvern_engine PRIVATE ${MICROHTTPD_LIBRARY})

# The program's parts are a library, so that tests can call them.
file(GLOB_RECURSE CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
if(CLI_SOURCES)
    list(REMOVE_ITEM CLI_SOURCES ${PROJECT_SOURCE_DIR}/cli/main.c)
    add_library(kvern_cli STATIC ${CLI_SOURCES})
    target_link_libraries(kvern_cli PUBLIC kvern_engine kvern_server PkgConfig::LIBEDIT)
    add_executable(kvern_program ${PROJECT_SOURCE_DIR}/cli/main.c)
    set_target_properties(kvern_program PROPERTIES OUTPUT_NAME kvern)
    target_link_libraries(kvern_program PRIVATE kvern_cli)
endif()

# kvern-bench measures speed: timing, the machine's limits, peers. `kvern bench` starts it.
file(GLOB MEASURE_GLOB CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/measure/*.c)
file(GLOB BENCH_PROGRAM_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/program/*.c)
kvern_set_isa_flags(MEASURE_SOURCES ${MEASURE_GLOB})
if(BENCH_PROGRAM_SOURCES)
    add_executable(kvern_bench ${BENCH_PROGRAM_SOURCES} ${MEASURE_SOURCES})
    set_target_properties(kvern_bench PROPERTIES OUTPUT_NAME kvern-bench)
    target_link_libraries(kvern_bench PRIVATE kvern_cli m)
    if(KVERN_REDIS) # to compare with
        target_compile_definitions(kvern_bench PRIVATE KVERN_BENCH_HIREDIS)
        target_include_directories(kvern_bench PRIVATE ${HIREDIS_INCLUDE_DIRS})
        target_link_libraries(kvern_bench PRIVATE ${HIREDIS_LINK_LIBRARIES})
    endif()
endif()
