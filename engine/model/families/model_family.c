// SPDX-License-Identifier: MIT
#include "engine/model/families/model_family.h"

#include "engine/model/families/deepseek.h"
#include "engine/model/families/gemma2.h"
#include "engine/model/families/gemma3.h"
#include "engine/model/families/gemma4.h"
#include "engine/model/families/glm4moe.h"
#include "engine/model/families/gptoss.h"
#include "engine/model/families/kimi.h"
#include "engine/model/families/llama.h"
#include "engine/model/families/llama4.h"
#include "engine/model/families/mistral.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/families/olmo2.h"
#include "engine/model/families/phi3.h"
#include "engine/model/families/qwen2.h"
#include "engine/model/families/qwen2moe.h"
#include "engine/model/families/qwen3.h"
#include "engine/model/families/qwen35.h"
#include "engine/model/families/qwen3moe.h"
#include "engine/model/families/qwen3next.h"
#include "engine/model/families/smollm3.h"

#include <stdio.h>

static const model_family *const families[] = {
    &llama_family,       &qwen2_family,     &qwen3_family,       &qwen3moe_family,
    &gemma2_family,      &gemma3_family,    &phi3_family,        &mistral_family,
    &smollm3_family,     &qwen3next_family, &qwen35_family,      &qwen35moe_family,
    &gptoss_family,      &deepseek2_family, &deepseek_v2_family, &deepseek_v32_family,
    &glm_moe_dsa_family, &qwen2moe_family,  &olmo2_family,       &kimi_linear_family,
    &gemma4_family,      &llama4_family,    &glm4_moe_family,
};

#define FAMILIES (sizeof families / sizeof families[0])

const model_family *model_family_find(text_view architecture)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if (text_view_is(architecture, families[i]->architecture)) {
            return families[i];
        }
    }
    return NULL;
}

const hf_names *model_family_hf_names(text_view model_type)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if (families[i]->hf && text_view_is(model_type, families[i]->hf->model_type)) {
            return families[i]->hf;
        }
    }
    return NULL;
}

size_t model_family_key_tables(const model_family *family, const weights_format *format,
                               const key_table *tables[MODEL_KEY_TABLES])
{
    size_t count = 0;
    if (format->hf_names) {
        while (count < HF_KEY_TABLES && family->hf->keys[count]) {
            tables[count] = family->hf->keys[count];
            count++;
        }
        return count;
    }
    if (family->keys) {
        tables[count++] = family->keys;
    }
    tables[count++] = &model_common_keys;
    tables[count++] = &model_general_keys;
    tables[count++] = &tokenizer_keys;
    tables[count++] = &model_other_keys;
    return count;
}

void model_family_list(const weights_format *format, char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < FAMILIES && at < bytes; i++) {
        const hf_names *hf = families[i]->hf;
        if (format->hf_names && !hf) {
            continue;
        }
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "",
                               format->hf_names ? hf->model_type : families[i]->architecture);
    }
}
