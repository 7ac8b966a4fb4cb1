// SPDX-License-Identifier: MIT
#include "cli/session/model_fingerprint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Of a model file that is sampled, its size and so many bytes of its beginning, its middle and its
// end count. Two models that are alike there differ nowhere in practice.
#define SAMPLE_BYTES ((size_t)256 << 10)

typedef struct file_hash {
    XXH3_state_t *state;
    bool whole; // every byte counts
} file_hash;

static bool add_sample(const file_hash *hash, FILE *file, long at)
{
    static char sample[SAMPLE_BYTES];
    if (fseek(file, at, SEEK_SET) != 0) {
        return false;
    }
    size_t bytes;
    do {
        bytes = fread(sample, 1, sizeof sample, file);
        XXH3_64bits_update(hash->state, sample, bytes);
    } while (hash->whole && bytes > 0);
    return !ferror(file);
}

static bool add_samples(const file_hash *hash, FILE *file, long size)
{
    const long last = size > (long)SAMPLE_BYTES ? size - (long)SAMPLE_BYTES : 0;
    if (hash->whole) {
        return add_sample(hash, file, 0);
    }
    return add_sample(hash, file, 0) && add_sample(hash, file, last / 2) &&
           add_sample(hash, file, last);
}

static kvern_status hash_file(const file_hash *hash, const char *path, engine_error *error)
{
    FILE *file = fopen(path, "rb");
    bool good = file && fseek(file, 0, SEEK_END) == 0;
    const long size = good ? ftell(file) : -1;
    good = good && size >= 0 && add_samples(hash, file, size);
    const int reason = errno;
    XXH3_64bits_update(hash->state, &size, sizeof size);
    if (file) {
        fclose(file);
    }
    return good ? KVERN_OK : engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(reason));
}

// Links that lead to a file are files, too.
static bool is_regular(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode);
}

static int plain_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && entry->d_type != DT_DIR;
}

// Every file of a directory counts, with its name: weights, tokenizer, configuration.
static kvern_status hash_directory(const file_hash *hash, const char *path, engine_error *error)
{
    struct dirent **names;
    const int count = scandir(path, &names, plain_file, alphasort);
    if (count < 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    kvern_status status = KVERN_OK;
    for (int i = 0; i < count; i++) {
        char file[PATH_MAX];
        const int bytes = snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (status == KVERN_OK && bytes >= PATH_MAX) {
            status = engine_fail(error, KVERN_ERR_IO, "%s: too long", path);
        }
        if (status == KVERN_OK && is_regular(file)) {
            XXH3_64bits_update(hash->state, names[i]->d_name, strlen(names[i]->d_name) + 1);
            status = hash_file(hash, file, error);
        }
        free(names[i]);
    }
    free(names);
    return status;
}

// The parts of a split model: NAME-00001-of-00003.gguf and so on. 0: the name is no such one.
static unsigned count_parts(const char *path, size_t *stem)
{
    static const size_t tail = sizeof "-00001-of-00003.gguf" - 1;
    unsigned part, count;
    char end;
    const size_t bytes = strlen(path);
    *stem = bytes < tail ? 0 : bytes - tail;
    const int read = sscanf(path + *stem, "-%5u-of-%5u.ggu%c", &part, &count, &end);
    return read == 3 && end == 'f' && part == 1 ? count : 0;
}

static kvern_status hash_parts(const file_hash *hash, const char *path, engine_error *error)
{
    size_t stem;
    const unsigned count = count_parts(path, &stem);
    kvern_status status = hash_file(hash, path, error);
    for (unsigned part = 2; status == KVERN_OK && part <= count; part++) {
        char name[PATH_MAX];
        const int bytes =
            snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)stem, path, part, count);
        status = bytes < PATH_MAX ? hash_file(hash, name, error)
                                  : engine_fail(error, KVERN_ERR_IO, "%s: too long", path);
    }
    return status;
}

kvern_status model_fingerprint_add(XXH3_state_t *state, const char *path, bool whole,
                                   engine_error *error)
{
    struct stat facts;
    const file_hash hash = {state, whole};
    const bool directory = stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    return directory ? hash_directory(&hash, path, error) : hash_parts(&hash, path, error);
}

kvern_status model_fingerprint_text(const char *path, char text[MODEL_FINGERPRINT_TEXT],
                                    engine_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to read %s", path);
    }
    XXH3_64bits_reset(state);
    kvern_status status = model_fingerprint_add(state, path, true, error);
    snprintf(text, MODEL_FINGERPRINT_TEXT, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    return status;
}
