# SPDX-License-Identifier: MIT
# Instruction-set flags by file name. A file named *_avx2.c holds kernels only and is the only kind
# of file that is compiled for AVX2; nothing else leaves the architecture's baseline.

# Kernels are unrolled many times over, and sanitizers multiply that: minutes per file. They keep
# AddressSanitizer; functions with more than a few hundred loads and stores by calls, which are ten
# times slower than inline checks. What UBSan would find shows in the plain kernels, which they
# equal bit for bit.
set(KERNEL_SANITIZE_FLAGS "")
if(KVERN_SANITIZE MATCHES "undefined")
    list(APPEND KERNEL_SANITIZE_FLAGS -fno-sanitize=undefined)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND KVERN_SANITIZE MATCHES "address")
    list(APPEND KERNEL_SANITIZE_FLAGS -mllvm -asan-instrumentation-with-call-threshold=400)
endif()
if(KVERN_FUZZ)
    list(APPEND KERNEL_SANITIZE_FLAGS -fno-sanitize=fuzzer-no-link)
endif()

function(kvern_set_isa_flags OUT)
    set(kept "")
    foreach(file IN LISTS ARGN)
        set(flags "")
        if(file MATCHES "_avx512vnni\\.c$")
            set(flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
                      -mprefer-vector-width=512)
        elseif(file MATCHES "_avx512\\.c$")
            set(flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
                      -mprefer-vector-width=512)
        elseif(file MATCHES "_avxvnni\\.c$")
            set(flags -mavx2 -mfma -mf16c -mavxvnni)
        elseif(file MATCHES "_avx2\\.c$")
            set(flags -mavx2 -mfma -mf16c)
        endif()
        if(flags AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
            continue()
        endif()
        if(file MATCHES "_neon\\.c$" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
            continue()
        endif()
        if(flags)
            list(APPEND flags ${KERNEL_SANITIZE_FLAGS})
            set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
        endif()
        list(APPEND kept ${file})
    endforeach()
    set(${OUT} ${kept} PARENT_SCOPE)
endfunction()
