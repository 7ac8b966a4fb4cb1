// SPDX-License-Identifier: MIT
// server_models FOLDER: writes the model files that tests of the server serve.

#include "tests/support/small_model.h"

#include <stdio.h>

static void save(const small_model *options, const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    small_model_save(options, path);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: server_models FOLDER\n", stderr);
        return 2;
    }
    save(&(small_model){.answer = "caf\xc3\xa9!"}, argv[1], "chain.gguf");
    save(&(small_model){.answer = "01234567", .endless = true, .context = 4096}, argv[1],
         "endless.gguf");
    save(&(small_model){.answer = "01234567", .endless = true, .context = 65536}, argv[1],
         "long.gguf");
    save(&(small_model){.context = 512}, argv[1], "random.gguf");
    save(&(small_model){.chat = ""}, argv[1], "plain.gguf");
    return 0;
}
