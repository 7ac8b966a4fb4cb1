// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz targets of models: the smallest ones of each family.
// `make_model_corpus tests/fuzz/corpus/model`

#include "tests/support/small_corpus.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_model_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < SMALL_CORPUS; i++) {
        char path[4096];
        size_t bytes;
        void *data = small_corpus_gguf(i, &bytes);
        snprintf(path, sizeof path, "%s/%s", argv[1], small_corpus_name(i));
        small_corpus_save(path, data, bytes);
    }
    return 0;
}
