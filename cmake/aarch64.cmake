# SPDX-License-Identifier: MIT
# Cross-compiling for aarch64 on another Linux machine; tests run through qemu-aarch64.
# tools/aarch64-sysroot puts the libraries that the project links into build-aarch64/sysroot.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build-aarch64/sysroot ABSOLUTE)
set(libraries ${sysroot}/usr/lib/aarch64-linux-gnu)

# The C library comes with the cross compiler; the sysroot only adds to it.
set(include ${sysroot}/usr/include)
set(CMAKE_C_FLAGS_INIT "-isystem ${include} -isystem ${include}/aarch64-linux-gnu")
set(run_path ${libraries}:${sysroot}/lib/aarch64-linux-gnu)
foreach(kind EXE SHARED)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L${libraries} -Wl,-rpath-link,${run_path}")
endforeach()

set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})

set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=${run_path})
