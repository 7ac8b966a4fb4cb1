// SPDX-License-Identifier: MIT
#include "engine/safetensors/hf_names.h"

#include <stdio.h>

const hf_tensor_name hf_common_tensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {NULL, NULL},
};

// Whether `name` is `pattern` with digits in place of its star; *digits, *count are those.
static bool matches(const char *pattern, const char *name, const char **digits, int *count)
{
    const char *star = strchr(pattern, '*');
    if (!star) {
        *count = 0;
        return strcmp(pattern, name) == 0;
    }
    const size_t before = (size_t)(star - pattern);
    if (strncmp(pattern, name, before) != 0) {
        return false;
    }
    *digits = name + before;
    *count = (int)strspn(*digits, "0123456789");
    return *count > 0 && strcmp(*digits + *count, star + 1) == 0;
}

const hf_tensor_name *hf_translate(const hf_tensor_name *names, const char *name, char *text,
                                   size_t bytes)
{
    for (; names && names->name; names++) {
        const char *digits = "";
        int count;
        if (matches(names->name, name, &digits, &count)) {
            const int star = (int)strcspn(names->file, "*");
            const char *rest = names->file + star + (names->file[star] == '*');
            snprintf(text, bytes, "%.*s%.*s%s", star, names->file, count, digits, rest);
            return names;
        }
    }
    return NULL;
}
