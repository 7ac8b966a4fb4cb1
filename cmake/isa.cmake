# SPDX-License-Identifier: MIT
# Instruction-set flags by file name. A file named *_avx2.c holds kernels only and is the only kind
# of file that is compiled for AVX2; nothing else leaves the architecture's baseline.

# Which sets are built. A set that is left out is never chosen, whatever the machine has.
set(KVERN_ISA all CACHE STRING
    "Instruction sets with kernels: all, native (what this machine can run), first (avx2 or neon), \
or some of avx2;avxvnni;avx512;avx512vnni;neon; none: plain C alone")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(KVERN_ISAS avx2 avxvnni avx512 avx512vnni)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(KVERN_ISAS neon)
else()
    set(KVERN_ISAS "")
endif()

# The library itself says what the machine has.
function(kvern_find_native_isas OUT)
    if(CMAKE_CROSSCOMPILING)
        message(FATAL_ERROR "KVERN_ISA=native: this build is for another machine")
    endif()
    try_run(ran compiled ${PROJECT_BINARY_DIR}/native_isa ${PROJECT_SOURCE_DIR}/cmake/native_isa.c
            CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}/include"
            COMPILE_OUTPUT_VARIABLE log RUN_OUTPUT_VARIABLE found)
    if(NOT compiled OR NOT ran EQUAL 0)
        message(FATAL_ERROR "KVERN_ISA=native: the machine could not be asked\n${log}${found}")
    endif()
    set(${OUT} ${found} PARENT_SCOPE)
endfunction()

if(KVERN_ISA STREQUAL "all")
    set(KVERN_BUILT_ISAS ${KVERN_ISAS})
elseif(KVERN_ISA STREQUAL "native")
    kvern_find_native_isas(KVERN_BUILT_ISAS)
elseif(KVERN_ISA STREQUAL "first" AND KVERN_ISAS)
    list(GET KVERN_ISAS 0 KVERN_BUILT_ISAS)
elseif(KVERN_ISA MATCHES "^(none|first)$")
    set(KVERN_BUILT_ISAS "")
else()
    set(KVERN_BUILT_ISAS ${KVERN_ISA})
endif()
foreach(set IN LISTS KVERN_BUILT_ISAS)
    if(NOT set IN_LIST KVERN_ISAS)
        message(FATAL_ERROR "KVERN_ISA: there is no set \"${set}\" here, but: ${KVERN_ISAS}")
    endif()
endforeach()
foreach(set IN LISTS KVERN_ISAS)
    if(NOT set IN_LIST KVERN_BUILT_ISAS)
        string(TOUPPER ${set} left_out)
        target_compile_definitions(kvern_flags INTERFACE KVERN_WITHOUT_${left_out})
    endif()
endforeach()
if(NOT KVERN_ISA STREQUAL "all")
    message(STATUS "Kernels for: plain ${KVERN_BUILT_ISAS}")
endif()

# Kernels are unrolled many times over, and sanitizers multiply that: minutes per file. They keep
# AddressSanitizer; functions with more than a few hundred loads and stores by calls, which are ten
# times slower than inline checks. What UBSan would find shows in the plain kernels, which they
# equal bit for bit.
set(KERNEL_SANITIZE_FLAGS "")
if(KVERN_SANITIZE MATCHES "undefined")
    list(APPEND KERNEL_SANITIZE_FLAGS -fno-sanitize=undefined)
endif()
if(KVERN_SANITIZE MATCHES "address")
    if(CMAKE_C_COMPILER_ID MATCHES "Clang")
        list(APPEND KERNEL_SANITIZE_FLAGS -mllvm -asan-instrumentation-with-call-threshold=400)
    else()
        list(APPEND KERNEL_SANITIZE_FLAGS --param asan-instrumentation-with-call-threshold=400)
    endif()
endif()

set(VECTORS_OF_512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
                   -mprefer-vector-width=512)
set(KVERN_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(KVERN_FLAGS_avxvnni -mavx2 -mfma -mf16c -mavxvnni)
set(KVERN_FLAGS_avx512 ${VECTORS_OF_512})
set(KVERN_FLAGS_avx512vnni ${VECTORS_OF_512} -mavx512vnni)
set(KVERN_FLAGS_neon "")

# Of kernels that unpack codes beside fma: in the order in which they are written the two share the
# processor's units; gcc's scheduler moves the unpacking together, which costs up to a tenth.
set(CODES_FLAGS_avx512 "")
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(CODES_FLAGS_avx512 -fno-schedule-insns2)
endif()

# The files of a list that are built, in OUT; those for an instruction set get its flags.
function(kvern_set_isa_flags OUT)
    set(kept "")
    foreach(file IN LISTS ARGN)
        if(file MATCHES "_(avx2|avxvnni|avx512|avx512vnni|neon)\\.c$")
            set(set ${CMAKE_MATCH_1})
            if(NOT set IN_LIST KVERN_BUILT_ISAS)
                continue()
            endif()
            set(flags ${KVERN_FLAGS_${set}} ${KERNEL_SANITIZE_FLAGS})
            if(file MATCHES "/codec/(affine|turbo)/")
                list(APPEND flags ${CODES_FLAGS_${set}})
            endif()
            set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
        endif()
        list(APPEND kept ${file})
    endforeach()
    set(${OUT} ${kept} PARENT_SCOPE)
endfunction()
