// SPDX-License-Identifier: MIT
#include "tests/support/schedule_bed.h"

#include "tests/support/check.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <math.h>

void *schedule_bed_file(bool gemma, uint64_t seed, size_t layers, size_t *bytes)
{
    if (gemma) {
        tiny_gemma3 options = tiny_gemma3_default(GGUF_TYPE_F32);
        options.head_dim = 64;
        options.seed += seed;
        return tiny_gemma3_build(&options, bytes);
    }
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    options.vocabulary = SCHEDULE_BED_VOCABULARY;
    options.byte_tokenizer = options.separate_output = true;
    options.head_dim = 64;
    options.layers = layers;
    options.seed += seed;
    return tiny_llama_build(&options, bytes);
}

void schedule_bed_poison(void *data, size_t bytes)
{
    gguf_file *file;
    assert_ok(gguf_open_memory(data, bytes, &file, NULL));
    const gguf_tensor *embedding = gguf_find_tensor(file, "token_embd.weight");
    assert_non_null(embedding);
    const size_t width = (size_t)embedding->shape[0];
    float *row = (float *)(uintptr_t)embedding->data + SCHEDULE_BED_POISON * width;
    for (size_t i = 0; i < width; i++) {
        row[i] = NAN;
    }
    gguf_close(file);
}

kvern_storage schedule_bed_wishes(const storage *s)
{
    kvern_storage wishes = kvern_storage_default();
    if (s) {
        wishes.k = s->k_codec;
        wishes.v = s->v_codec;
        wishes.start = s->start;
        wishes.residual = s->residual;
        wishes.precise_sinks = s->precise_sinks;
    }
    return wishes;
}

void schedule_bed_store(engine_fixture *f, const kvern_storage *wishes)
{
    kvern_composition_release(f->composition);
    assert_ok(model_composition(f->facts, f->context, wishes, &f->composition, NULL));
}

kvern_memory schedule_bed_memory(const engine_fixture *f)
{
    kvern_memory memory = kvern_memory_default();
    assert_ok(kvern_context_memory(f->context, &memory));
    return memory;
}
