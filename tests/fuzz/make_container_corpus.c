// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target of files of rows: two rows with a checkpoint, one row with
// tokens and an identity, and no rows. `make_container_corpus tests/fuzz/corpus/container`

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/small_rows.h"

#include <stdio.h>

static const char *folder;

static void save(const kvern_state *s, const kvern_file_content *content, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(kvern_file_save(s, content, path));
}

static void write_corpus(void **state)
{
    (void)state;
    const uint64_t sequences[] = {3, 4};
    const kvern_file_key key = {"salt", "s"};
    int32_t tokens[156];
    kvern_context *context = small_rows_context();
    kvern_composition *composition = small_rows_composition(context);
    kvern_state *s;
    assert_ok(kvern_state_create(composition, 2, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_C(1) << 24));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){30, 66}, NULL);
    assert_ok(kvern_state_checkpoint(s, 1));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){3, 90}, NULL);
    save(s, NULL, "rows");
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_content content = kvern_file_content_default();
    identity.model = "m";
    identity.keys = &key;
    identity.key_count = 1;
    for (int i = 0; i < 156; i++)
        tokens[i] = i;
    content.rows = (size_t[]){0};
    content.row_count = 1;
    content.tokens = (const int32_t *[]){tokens};
    content.identity = &identity;
    save(s, &content, "tokens");
    content.row_count = 0;
    save(s, &content, "empty");
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
