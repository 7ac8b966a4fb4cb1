# SPDX-License-Identifier: MIT
# libkvern: one set of objects, a static and a shared library.
file(GLOB KVERN_GLOB CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/*.c
                                       ${CMAKE_SOURCE_DIR}/src/*/*/*.c)
kvern_set_isa_flags(KVERN_SOURCES ${KVERN_GLOB})

find_package(Threads REQUIRED)

# What a program that was linked to one version may be run with: while the major version is 0, the
# same minor version, from then on the same major version (CONTRIBUTING.md, "Releases").
set(KVERN_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(KVERN_SOVERSION 0.${PROJECT_VERSION_MINOR})
endif()

add_library(kvern_objects OBJECT ${KVERN_SOURCES})
set_target_properties(kvern_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(kvern_objects PUBLIC ${CMAKE_SOURCE_DIR}/include
                                         PRIVATE ${CMAKE_SOURCE_DIR})

foreach(kind STATIC SHARED)
    string(TOLOWER ${kind} suffix)
    add_library(kvern_${suffix} ${kind} $<TARGET_OBJECTS:kvern_objects>)
    set_target_properties(kvern_${suffix} PROPERTIES OUTPUT_NAME kvern EXPORT_NAME ${suffix}
                          VERSION ${PROJECT_VERSION} SOVERSION ${KVERN_SOVERSION})
    target_include_directories(kvern_${suffix} PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
    target_link_libraries(kvern_${suffix} PRIVATE Threads::Threads m)
endforeach()
# Only the marked symbols leave the shared library; the ones it links statically stay inside.
target_link_options(kvern_shared PRIVATE -Wl,--exclude-libs,ALL)
if(NOT KVERN_SANITIZE) # a sanitizer's symbols are in the program
    target_link_options(kvern_shared PRIVATE -Wl,-z,defs)
endif()
