// SPDX-License-Identifier: MIT
// Two stores of prefixes, one in memory and one in a directory, as a server has them: a prompt is
// looked up in both, begins with the longer prefix, and is published to both when it has been
// served. The last prompt is that of a process that was started again: only the directory knows it.
//
//     cc stores.c $(pkg-config --cflags --libs kvern) -o stores
#define _XOPEN_SOURCE 700 // mkdtemp
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEADS 2
#define DIM 8
#define DOCUMENT 500 // tokens that all prompts begin with
#define PROMPT 510

static const kvern_store_key key = {&(kvern_store_field){"model", "tiny", 4}, 1};

typedef struct stores {
    kvern_context *context;
    kvern_composition *composition;
    kvern_store *memory;
    kvern_disk_store *disk;
} stores;

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

static void open_stores(stores *s, const char *directory)
{
    const kvern_layer layer = kvern_layer_default(HEADS, DIM);
    kvern_store_options memory = kvern_store_options_default();
    kvern_disk_store_options disk = kvern_disk_store_options_default();
    memory.budget_bytes = UINT64_C(64) << 20;
    disk.budget_bytes = UINT64_C(256) << 20;
    check(kvern_context_create(NULL, &s->context));
    check(kvern_composition_create(s->context, &layer, 1, &s->composition));
    check(kvern_store_create(s->context, &memory, &s->memory));
    check(kvern_disk_store_open(s->context, directory, &disk, &s->disk));
}

static void close_stores(stores *s)
{
    kvern_disk_store_close(s->disk); // what is queued is written before
    kvern_store_destroy(s->memory);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
}

// The empty row becomes the longest prefix that either has; where from, for the user.
static const char *begin(const stores *s, const int32_t *tokens, kvern_state *state)
{
    kvern_store_hit memory = kvern_store_hit_default();
    kvern_disk_hit disk = kvern_disk_hit_default();
    int64_t lent = 0;
    check(kvern_store_find(s->memory, &key, s->composition, tokens, PROMPT, &memory));
    check(kvern_disk_store_find(s->disk, &key, s->composition, tokens, PROMPT, &disk));
    if (disk.positions > memory.positions) // 0 where the file has gone: then it is computed
        check(kvern_disk_store_lend(s->disk, &disk, state, 0, &lent));
    else if (memory.positions)
        check(kvern_store_lend(s->memory, &memory, state, 0));
    const char *source = lent               ? "from the directory"
                         : memory.positions ? "from memory"
                                            : "all are new";
    kvern_store_release(s->memory, &memory);
    kvern_disk_store_release(s->disk, &disk);
    return source;
}

// Stands for a forward pass over the tokens that the row does not have yet.
static void run(kvern_state *state, const int32_t *tokens)
{
    static float k[PROMPT * HEADS * DIM], v[PROMPT * HEADS * DIM];
    const int64_t from = kvern_state_length(state, 0), fresh = PROMPT - from;
    kvern_tokens stored = kvern_tokens_default(kvern_cache_layer(kvern_state_cache(state, 0)));
    for (int64_t i = 0; i < fresh * HEADS * DIM; i++)
        k[i] = v[i] = (float)tokens[from + i / (HEADS * DIM)];
    check(kvern_step_begin(state, KVERN_PHASE_WINDOW, &fresh));
    stored.k = k, stored.v = v;
    check(kvern_step_append(state, 0, &stored, NULL));
    check(kvern_step_end(state));
}

// Serves the prompt of a question; how many of its tokens were there.
static int64_t serve(const stores *s, int32_t question)
{
    int32_t tokens[PROMPT];
    kvern_state *state;
    for (int32_t i = 0; i < PROMPT; i++)
        tokens[i] = i < DOCUMENT ? i : 5000 + question;
    check(kvern_state_create(s->composition, 1, &state));
    const char *source = begin(s, tokens, state);
    const int64_t reused = kvern_state_length(state, 0);
    printf("question %d: %lld of %d tokens are there (%s)\n", question, (long long)reused, PROMPT,
           source);
    run(state, tokens);
    check(kvern_store_publish(s->memory, &key, tokens, PROMPT, state, 0, NULL));
    check(kvern_disk_store_publish(s->disk, &key, tokens, PROMPT, state, 0, NULL)); // is queued
    kvern_state_destroy(state);
    return reused;
}

int main(void)
{
    char directory[] = "/tmp/kvern-example-XXXXXX";
    stores s;
    int64_t reused[4];
    if (!mkdtemp(directory))
        return 1;
    open_stores(&s, directory);
    reused[0] = serve(&s, 1);
    reused[1] = serve(&s, 2); // the document is there
    close_stores(&s);
    open_stores(&s, directory); // another process, later
    reused[2] = serve(&s, 2);   // the whole prompt, but for its last token
    reused[3] = serve(&s, 3);
    kvern_disk_store_flush(s.disk);
    check(kvern_disk_store_prune(s.disk, 0)); // all entries go; the directory is the caller's
    close_stores(&s);
    if (chdir(directory) || unlink("writer.lock") || rmdir(directory))
        return 1;
    const int good =
        reused[0] == 0 && reused[1] == DOCUMENT && reused[2] == PROMPT - 1 && reused[3] == DOCUMENT;
    return good ? 0 : 1;
}
