// SPDX-License-Identifier: MIT
#include "tests/support/small_corpus.h"

#include "tests/support/hf_model.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *small_corpus_name(size_t index)
{
    static const char *const names[SMALL_CORPUS] = {"llama", "llama_lists", "gemma3"};
    return names[index];
}

static tiny_llama small_llama(bool lists)
{
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    model.layers = 1 + lists;
    model.width = 8;
    model.heads = 2;
    model.kv_heads = 1;
    model.head_dim = 4;
    model.feed_forward = 8;
    model.vocabulary = 6;
    model.biases = lists;
    model.separate_output = lists;
    return model;
}

void *small_corpus_gguf(size_t index, size_t *bytes)
{
    if (index < 2) {
        tiny_llama model = small_llama(index == 1);
        model.last_kv_heads = index == 1 ? 2 : 0;
        return tiny_llama_build(&model, bytes);
    }
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_BF16);
    model.layers = 2;
    model.full_every = 2;
    model.width = 4;
    model.heads = 1;
    model.kv_heads = 1;
    model.head_dim = 2;
    model.feed_forward = 4;
    model.window = 2;
    return tiny_gemma3_build(&model, bytes);
}

static hf_model translate(const void *data, size_t bytes)
{
    gguf_file *file;
    model_source *source;
    static model_facts facts;
    if (gguf_open_memory(data, bytes, &file, NULL) != KVERN_OK ||
        model_source_of_gguf(file, &source, NULL) != KVERN_OK ||
        model_read_facts(source, &facts, NULL) != KVERN_OK) {
        abort();
    }
    hf_model model = hf_model_of(file, &facts);
    model_source_close(source);
    return model;
}

// A config.json has no lists of heads: these models have the same in all layers.
static void *uniform_gguf(size_t index, size_t *bytes)
{
    tiny_llama model = small_llama(index == 1);
    return index < 2 ? tiny_llama_build(&model, bytes) : small_corpus_gguf(index, bytes);
}

void *small_corpus_directory(size_t index, size_t *bytes)
{
    void *gguf = uniform_gguf(index, bytes);
    hf_model model = translate(gguf, *bytes);
    free(gguf);
    size_t config = strlen(model.config);
    *bytes = 2 + config + model.tensor_bytes;
    unsigned char *data = malloc(*bytes);
    if (!data) {
        abort();
    }
    data[0] = (unsigned char)config;
    data[1] = (unsigned char)(config >> 8);
    memcpy(data + 2, model.config, config);
    memcpy(data + 2 + config, model.tensors, model.tensor_bytes);
    hf_model_free(&model);
    return data;
}

void small_corpus_save(const char *path, void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    free(data);
}
