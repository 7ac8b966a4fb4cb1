// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_DTYPE_H
#define KVERN_FILE_DTYPE_H

// The types that tensors of a safetensors file may have here: those of whole bytes.

#include <stddef.h>

// X(name, bytes)
#define KVERN_DTYPES(X)                                                                            \
    X(BOOL, 1)                                                                                     \
    X(U8, 1)                                                                                       \
    X(I8, 1)                                                                                       \
    X(F8_E4M3, 1)                                                                                  \
    X(F8_E5M2, 1)                                                                                  \
    X(U16, 2)                                                                                      \
    X(I16, 2)                                                                                      \
    X(F16, 2)                                                                                      \
    X(BF16, 2)                                                                                     \
    X(U32, 4)                                                                                      \
    X(I32, 4)                                                                                      \
    X(F32, 4)                                                                                      \
    X(U64, 8)                                                                                      \
    X(I64, 8)                                                                                      \
    X(F64, 8)

typedef enum kvern_dtype {
#define KVERN_DTYPE_ENUM(name, bytes) KVERN_DTYPE_##name,
    KVERN_DTYPES(KVERN_DTYPE_ENUM)
#undef KVERN_DTYPE_ENUM
        KVERN_DTYPE_COUNT
} kvern_dtype;

typedef struct kvern_dtype_facts {
    const char *name; // in files: "BF16"
    size_t bytes;     // of an element
} kvern_dtype_facts;

extern const kvern_dtype_facts kvern_dtypes[KVERN_DTYPE_COUNT];

#endif
