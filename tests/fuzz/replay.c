// SPDX-License-Identifier: MIT
// Runs a fuzz target once on every file of the given folders, or on the given files: the corpus as
// a test, and a finding of the fuzzer under a debugger. Fails when there was nothing to run.

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
}

// Exactly as many bytes as the file has, so that AddressSanitizer sees a read past the end.
static void run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    if (!file || !data || fread(data, 1, size, file) != size) {
        die(path);
    }
    fclose(file);
    // A target that dies says nothing about its input otherwise.
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static size_t run_path(const char *path);

static size_t run_folder(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort);
    if (count < 0) {
        die(path);
    }
    size_t runs = 0;
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            size_t size = strlen(path) + strlen(names[i]->d_name) + 2;
            char *inner = malloc(size);
            if (!inner) {
                die(path);
            }
            snprintf(inner, size, "%s/%s", path, names[i]->d_name);
            runs += run_path(inner);
            free(inner);
        }
        free(names[i]);
    }
    free(names);
    return runs;
}

static size_t run_path(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0) {
        die(path);
    }
    if (S_ISDIR(facts.st_mode)) {
        return run_folder(path);
    }
    run_file(path, (size_t)facts.st_size);
    return 1;
}

int main(int argc, char **argv)
{
    size_t runs = 0;
    for (int i = 1; i < argc; i++) {
        runs += run_path(argv[i]);
    }
    printf("%zu inputs\n", runs);
    return runs ? 0 : 1;
}
