# SPDX-License-Identifier: MIT
# libkvern: one set of objects, a static and a shared library. A project uses kvern::static,
# kvern::shared, or kvern::kvern, which is the one that BUILD_SHARED_LIBS asks for. The names are
# the same here and in the installed package (cmake/kvern-config.cmake.in).
include(GNUInstallDirs)

file(GLOB_RECURSE KVERN_GLOB CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)

# Files need two libraries: jansson, and of xxHash the header alone.
set(KVERN_PC_REQUIRES "")
if(KVERN_FILES)
    if(NOT PKG_CONFIG_FOUND)
        message(FATAL_ERROR "KVERN_FILES needs pkg-config (Debian: pkg-config) to find jansson and "
                            "xxHash; -DKVERN_FILES=OFF does without files")
    endif()
    pkg_check_modules(JANSSON QUIET IMPORTED_TARGET jansson)
    pkg_check_modules(XXHASH QUIET IMPORTED_TARGET libxxhash)
    if(NOT JANSSON_FOUND OR NOT XXHASH_FOUND)
        message(FATAL_ERROR "KVERN_FILES needs jansson (Debian: libjansson-dev) and xxHash "
                            "(Debian: libxxhash-dev); -DKVERN_FILES=OFF does without files")
    endif()
    set(KVERN_PC_REQUIRES jansson)
else()
    list(FILTER KVERN_GLOB EXCLUDE REGEX "/src/(file/(disk|safetensors|container|mlx)|store/disk)/")
endif()
# The store that machines share needs hiredis; without it that store is refused by name.
if(KVERN_REDIS)
    if(NOT KVERN_FILES OR NOT HIREDIS_FOUND)
        message(FATAL_ERROR "KVERN_REDIS needs KVERN_FILES and hiredis (Debian: libhiredis-dev); "
                            "-DKVERN_REDIS=OFF does without a store that machines share")
    endif()
    list(FILTER KVERN_GLOB EXCLUDE REGEX "/src/store/remote_absent\\.c$")
    set(KVERN_PC_REQUIRES "${KVERN_PC_REQUIRES} hiredis")
else()
    list(FILTER KVERN_GLOB EXCLUDE REGEX "/src/store/(remote/|remote_tls_absent\\.c$)")
endif()
# Its TLS is OpenSSL's: hiredis 0.14 has none.
if(KVERN_TLS)
    if(NOT KVERN_REDIS OR NOT OPENSSL_FOUND)
        message(FATAL_ERROR "KVERN_TLS needs KVERN_REDIS and OpenSSL (Debian: libssl-dev); "
                            "-DKVERN_TLS=OFF does without rediss://")
    endif()
    list(FILTER KVERN_GLOB EXCLUDE REGEX "/src/store/remote_tls_absent\\.c$")
    set(KVERN_PC_REQUIRES "${KVERN_PC_REQUIRES} openssl")
else()
    list(FILTER KVERN_GLOB EXCLUDE REGEX "/src/store/remote/tls\\.c$")
endif()
kvern_set_coverage(${KVERN_GLOB})
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
target_include_directories(kvern_objects PUBLIC ${PROJECT_SOURCE_DIR}/include
                                         PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(kvern_objects PRIVATE kvern_flags)
if(KVERN_FILES)
    target_include_directories(kvern_objects PRIVATE ${JANSSON_INCLUDE_DIRS} ${XXHASH_INCLUDE_DIRS})
endif()
if(KVERN_REDIS)
    target_include_directories(kvern_objects PRIVATE ${HIREDIS_INCLUDE_DIRS})
endif()
if(KVERN_TLS)
    target_include_directories(kvern_objects PRIVATE ${OPENSSL_INCLUDE_DIRS})
endif()

foreach(kind STATIC SHARED)
    string(TOLOWER ${kind} suffix)
    add_library(kvern_${suffix} ${kind} $<TARGET_OBJECTS:kvern_objects>)
    add_library(kvern::${suffix} ALIAS kvern_${suffix})
    set_target_properties(kvern_${suffix} PROPERTIES OUTPUT_NAME kvern EXPORT_NAME ${suffix}
                          VERSION ${PROJECT_VERSION} SOVERSION ${KVERN_SOVERSION})
    target_include_directories(kvern_${suffix} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(kvern_${suffix} PRIVATE Threads::Threads m)
    if(KVERN_FILES)
        target_link_libraries(kvern_${suffix} PRIVATE
            $<BUILD_INTERFACE:${JANSSON_LINK_LIBRARIES}> $<INSTALL_INTERFACE:jansson>)
    endif()
    if(KVERN_REDIS)
        target_link_libraries(kvern_${suffix} PRIVATE
            $<BUILD_INTERFACE:${HIREDIS_LINK_LIBRARIES}> $<INSTALL_INTERFACE:hiredis>)
    endif()
    if(KVERN_TLS)
        target_link_libraries(kvern_${suffix} PRIVATE
            $<BUILD_INTERFACE:${OPENSSL_LINK_LIBRARIES}> $<INSTALL_INTERFACE:ssl>
            $<INSTALL_INTERFACE:crypto>)
    endif()
endforeach()
if(BUILD_SHARED_LIBS)
    add_library(kvern::kvern ALIAS kvern_shared)
    set(KVERN_OTHER kvern_static)
else()
    add_library(kvern::kvern ALIAS kvern_static)
    set(KVERN_OTHER kvern_shared)
endif()
# A project that contains this one builds what it links.
if(NOT PROJECT_IS_TOP_LEVEL AND NOT KVERN_INSTALL)
    set_target_properties(${KVERN_OTHER} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

target_link_libraries(kvern_shared PRIVATE kvern_flags)
if(NOT APPLE)
    # Only the marked symbols leave the shared library; the ones it links statically stay inside.
    target_link_options(kvern_shared PRIVATE -Wl,--exclude-libs,ALL)
    if(NOT KVERN_SANITIZE) # a sanitizer's symbols are in the program
        target_link_options(kvern_shared PRIVATE -Wl,-z,defs)
    endif()
endif()
