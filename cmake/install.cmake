# SPDX-License-Identifier: MIT
# make install: headers, both libraries, the program, a pkg-config file and a CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/kvern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS kvern_static kvern_shared EXPORT kvern_targets)
if(TARGET kvern_program)
    install(TARGETS kvern_program)
endif()
install(EXPORT kvern_targets FILE kvern-targets.cmake NAMESPACE kvern::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvern)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/kvern-config.cmake.in
    ${CMAKE_BINARY_DIR}/kvern-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvern)
set(KVERN_COMPATIBILITY SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(KVERN_COMPATIBILITY SameMinorVersion)
endif()
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvern-config-version.cmake
    COMPATIBILITY ${KVERN_COMPATIBILITY})
install(FILES ${CMAKE_BINARY_DIR}/kvern-config.cmake ${CMAKE_BINARY_DIR}/kvern-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvern)
file(RELATIVE_PATH KVERN_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_SOURCE_DIR}/cmake/kvern.pc.in ${CMAKE_BINARY_DIR}/kvern.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/kvern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
