// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target of what lies at a server: an entry of rows of many kinds, and
// fields of an index. `make_remote_entry_corpus tests/fuzz/corpus/remote_entry`

#include "src/store/remote/remote_store.h"
#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/small_rows.h"

#include <stdio.h>

static const char *folder;

static void write_seed(const char *name, const void *data, size_t bytes, char kind)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(kind, fputc(kind, file));
    assert_int_equal(bytes, fwrite(data, 1, bytes, file));
    assert_int_equal(0, fclose(file));
}

static kvern_status put(void *user, const void *data, size_t bytes, bool page)
{
    return kvern_manifest_add(user, data, bytes, page);
}

static void write_corpus(void **state)
{
    (void)state;
    static const char tail[] = "7\n0123456789abcdef0123456789abcdef 3 135 5 00ff00ff00ff00ff";
    static const char whole[] = "*\n0123456789abcdef0123456789abcdef 0 400 0 0000000000000000";
    const uint64_t sequences[] = {3};
    int32_t tokens[90];
    kvern_context *context = small_rows_context();
    kvern_composition *composition = small_rows_composition(context);
    kvern_key_front front;
    kvern_manifest m;
    kvern_state *s;
    void *value;
    size_t bytes;
    for (int i = 0; i < 90; i++)
        tokens[i] = i;
    assert_ok(kvern_state_create(composition, 1, &s));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){90}, NULL);
    kvern_manifest_begin(&context->heap, &m);
    const kvern_container_sink sink = {&m, put};
    assert_ok(kvern_key_front_make(NULL, &front));
    assert_ok(kvern_disk_write_to(&sink, s, &front, tokens));
    assert_ok(kvern_manifest_write(&m, &value, &bytes));
    write_seed("entry", value, bytes, 'e');
    write_seed("tail", tail, sizeof tail - 1, 'i');
    write_seed("whole", whole, sizeof whole - 1, 'i');
    kvern_heap_give(&context->heap, value, bytes, KVERN_HEAP_ALIGNMENT);
    kvern_manifest_free(&m);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(write_corpus)};
    if (count != 2)
        return 2;
    folder = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
