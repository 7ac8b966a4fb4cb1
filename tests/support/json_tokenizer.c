// SPDX-License-Identifier: MIT
#include "tests/support/json_tokenizer.h"

#include "tests/support/check.h"

#include <stdlib.h>

kvern_status json_tokenizer_try(const tokenizer_texts *texts, const char *pre, tokenizer **out,
                                engine_error *error)
{
    tokenizer_files *files;
    *out = NULL;
    kvern_status status = tokenizer_files_read(texts, &files, error);
    if (status == KVERN_OK)
        status = tokenizer_create_from_files(files, pre, out, error);
    tokenizer_files_close(files);
    return status;
}

tokenizer *json_tokenizer_make(const char *name, const json_t *root, const char *config)
{
    tokenizer *t;
    engine_error error = {KVERN_OK, ""};
    char *text = json_dumps(root, JSON_COMPACT);
    tokenizer_texts texts = {.tokenizer = text_view_of(text)};
    if (config)
        texts.config = text_view_of(config);
    if (json_tokenizer_try(&texts, NULL, &t, &error) != KVERN_OK)
        fail_msg("%s: %s", name, error.text);
    free(text);
    return t;
}
