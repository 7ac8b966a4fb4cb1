// SPDX-License-Identifier: MIT
#include "engine/model/families/model_family.h"

#include "engine/model/families/gemma3.h"
#include "engine/model/families/llama.h"

#include <stdio.h>
#include <string.h>

static const model_family *const families[] = {&llama_family, &gemma3_family};

#define FAMILIES (sizeof families / sizeof families[0])

const model_family *model_family_find(gguf_string architecture)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        const char *name = families[i]->architecture;
        if (strlen(name) == architecture.size &&
            memcmp(name, architecture.data, architecture.size) == 0) {
            return families[i];
        }
    }
    return NULL;
}

void model_family_list(char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < FAMILIES && at < bytes; i++) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i ? ", " : "",
                               families[i]->architecture);
    }
}
