# SPDX-License-Identifier: MIT
# bench/<name>.c -> program bench_<name>: measurements, no tests.
file(GLOB BENCH_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
foreach(file IN LISTS BENCH_SOURCES)
    get_filename_component(name ${file} NAME_WE)
    add_executable(bench_${name} ${file})
    target_link_libraries(bench_${name} PRIVATE kvern_engine m)
endforeach()
