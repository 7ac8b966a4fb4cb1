// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_FAMILY_CASE_H
#define KVERN_TESTS_FAMILY_CASE_H

// Small random models of every family, with the logits that mlx-lm computes of them. A description
// in tests/golden/families says what a model is; its weights follow from the names of its tensors:
// tests/oracle/families/family_case.py, which writes descriptions, has the rule.

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct family_case {
    json_t *description; // owned
    const char *name;
    int32_t *tokens; // owned
    size_t count;
    size_t vocabulary;
} family_case;

// Reads a description. What is wrong with it fails the test.
family_case family_case_open(const char *path);
void family_case_close(family_case *c);

// The model as the contents of a Hugging Face directory: config.json, and one file of tensors.
// free() both.
char *family_case_config(const family_case *c);
void *family_case_safetensors(const family_case *c, size_t *bytes);

// The same model as a GGUF file; free(). NULL when the case has none.
void *family_case_gguf(const family_case *c, size_t *bytes);

// Whether the GGUF file has results of functions where the directory has what they are made from,
// or the other way round: then both files are equal but for roundings.
bool family_case_is_rounded(const family_case *c);

// Fails the test when `logits`, [tokens, vocabulary], are not those of the description.
void family_case_expect(const family_case *c, const float *logits);

#endif
