# SPDX-License-Identifier: MIT
# make install: headers, both libraries, the program, a pkg-config file and a CMake package. The
# directories of GNUInstallDirs may be absolute; where they are not, the tree may be moved.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS kvern_static kvern_shared EXPORT kvern_targets)
if(TARGET kvern_program)
    install(TARGETS kvern_program)
    # `kvern pull` starts it.
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/fetch-model
            DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kvern)
endif()
if(TARGET kvern_bench)
    install(TARGETS kvern_bench)
endif()
set(KVERN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kvern)
install(EXPORT kvern_targets FILE kvern-targets.cmake NAMESPACE kvern::
        DESTINATION ${KVERN_PACKAGE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kvern-config.cmake.in
    ${PROJECT_BINARY_DIR}/kvern-config.cmake INSTALL_DESTINATION ${KVERN_PACKAGE_DIR})
set(KVERN_COMPATIBILITY SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(KVERN_COMPATIBILITY SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvern-config-version.cmake
    COMPATIBILITY ${KVERN_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/kvern-config.cmake
              ${PROJECT_BINARY_DIR}/kvern-config-version.cmake
        DESTINATION ${KVERN_PACKAGE_DIR})

# In the pkg-config file an absolute directory stands for itself, and others hang on the prefix,
# which is found from the file's own place if that hangs on it, too.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(KVERN_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
    file(RELATIVE_PATH KVERN_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
    set(KVERN_PC_PREFIX "\${pcfiledir}/${KVERN_PC_PREFIX}")
endif()
foreach(directory LIBDIR INCLUDEDIR)
    set(KVERN_PC_${directory} ${CMAKE_INSTALL_${directory}})
    if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${directory}}")
        set(KVERN_PC_${directory} "\${prefix}/${CMAKE_INSTALL_${directory}}")
    endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/kvern.pc.in ${PROJECT_BINARY_DIR}/kvern.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
