// SPDX-License-Identifier: MIT
#include "tests/support/hf_directory.h"

#include "tests/support/hf_model.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void save(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    must(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, path);
}

static void save_json(const char *folder, const char *name, json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(1));
    must(text != NULL, name);
    save(folder, name, text, strlen(text));
    free(text);
    json_decref(json);
}

static json_t *string_at(const gguf_entry *list, size_t index)
{
    gguf_string text = {"", 0};
    must(gguf_array_string(list, index, &text), "a list of texts");
    return json_stringn(text.data, text.size);
}

static json_t *added_token(size_t id, json_t *text, bool special)
{
    return json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", text,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
                     (int)special);
}

// Control tokens and user-defined ones were added; all others are in the vocabulary.
static void add_tokens(const gguf_file *file, json_t *vocab, json_t *added)
{
    const gguf_entry *tokens = gguf_find(file, "tokenizer.ggml.tokens");
    const gguf_entry *types = gguf_find(file, "tokenizer.ggml.token_type");
    for (size_t i = 0; i < gguf_array_count(tokens); i++) {
        int64_t type = 1;
        json_t *text = string_at(tokens, i);
        must(gguf_array_i64(types, i, &type), "a list of types");
        if (type == 1) {
            json_object_set_new(vocab, json_string_value(text), json_integer((json_int_t)i));
            json_decref(text);
        } else {
            json_array_append_new(added, added_token(i, text, type == 3));
        }
    }
}

// Digits apart and GPT-2's words: what GGUF calls "smollm".
static json_t *words(void)
{
    return json_pack("{s:s, s:[{s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type", "Sequence",
                     "pretokenizers", "type", "Digits", "individual_digits", 1, "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
}

static json_t *tokenizer_json(const gguf_file *file)
{
    json_t *vocab = json_object(), *added = json_array(), *merges = json_array();
    const gguf_entry *list = gguf_find(file, "tokenizer.ggml.merges");
    add_tokens(file, vocab, added);
    for (size_t i = 0; i < gguf_array_count(list); i++) {
        json_array_append_new(merges, string_at(list, i));
    }
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:{s:s}, s:{s:s, s:o, s:o}}", "version",
                     "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     "pre_tokenizer", words(), "post_processor", "decoder", "type", "ByteLevel",
                     "model", "type", "BPE", "vocab", vocab, "merges", merges);
}

static json_t *text_of(const gguf_file *file, const char *key)
{
    gguf_string text;
    return gguf_get_string(gguf_find(file, key), &text) ? json_stringn(text.data, text.size)
                                                        : json_null();
}

static json_t *token_of(const gguf_file *file, const char *key)
{
    uint64_t id;
    const gguf_entry *entry = gguf_find(file, key);
    return entry && gguf_get_u64(entry, &id)
               ? string_at(gguf_find(file, "tokenizer.ggml.tokens"), (size_t)id)
               : json_null();
}

static void save_texts(const gguf_file *file, const char *folder)
{
    uint64_t end = 0;
    save_json(folder, "tokenizer.json", tokenizer_json(file));
    save_json(folder, "tokenizer_config.json",
              json_pack("{s:o, s:o, s:o, s:b, s:s}", "bos_token",
                        token_of(file, "tokenizer.ggml.bos_token_id"), "eos_token",
                        token_of(file, "tokenizer.ggml.eos_token_id"), "chat_template",
                        text_of(file, "tokenizer.chat_template"), "add_bos_token", 0,
                        "tokenizer_class", "PreTrainedTokenizerFast"));
    must(gguf_get_u64(gguf_find(file, "tokenizer.ggml.eos_token_id"), &end), "an end token");
    save_json(folder, "generation_config.json",
              json_pack("{s:[I], s:f}", "eos_token_id", (json_int_t)end, "temperature", 0.5));
}

void hf_directory_save(const char *gguf_path, const char *folder, int tokenizer)
{
    model_source *source;
    model_facts facts;
    engine_error error = {KVERN_OK, ""};
    if (model_source_open(gguf_path, &source, &error) != KVERN_OK ||
        model_read_facts(source, &facts, &error) != KVERN_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    hf_model hf = hf_model_of(model_source_gguf(source), &facts);
    must(mkdir(folder, 0700) == 0, folder);
    save(folder, "config.json", hf.config, strlen(hf.config));
    save(folder, "model.safetensors", hf.tensors, hf.tensor_bytes);
    if (tokenizer) {
        save_texts(model_source_gguf(source), folder);
    }
    hf_model_free(&hf);
    model_source_close(source);
}

void hf_directory_remove(const char *folder)
{
    DIR *list = opendir(folder);
    must(list != NULL, folder);
    for (const struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] != '.') {
            must(unlinkat(dirfd(list), entry->d_name, 0) == 0, entry->d_name);
        }
    }
    closedir(list);
    must(rmdir(folder) == 0, folder);
}
