// SPDX-License-Identifier: MIT
// Any bytes as a file of rows. Checksums are made right first, or nothing would be behind them.
// Refused with a sentence, or verified, loaded into a state of the layers of the corpus, and used.

#include "src/file/container/container.h"
#include "src/state/walk.h"
#include "tests/support/container_forge.h"
#include "tests/support/small_rows.h"

#include <kvern/kvern.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Cut, gone back and saved again, which may be refused, but leaves a sound state.
static void use_state(kvern_state *s)
{
    for (size_t r = 0; r < kvern_state_rows(s); r++) {
        if (kvern_state_trim(s, r, 1) == KVERN_OK && kvern_state_walk(s))
            abort();
        const int64_t below = kvern_state_checkpoint_below(s, r, 70);
        if (below >= 0 && kvern_state_return(s, r, below))
            abort();
    }
    int64_t counts[64] = {0};
    if (kvern_state_rows(s) > 64)
        return;
    for (size_t r = 0; r < kvern_state_rows(s); r++)
        counts[r] = 2;
    if (kvern_step_begin(s, KVERN_PHASE_WINDOW, counts) == KVERN_OK)
        kvern_step_abandon(s);
    if (kvern_state_walk(s))
        abort();
}

static void load(const kvern_file *file, kvern_composition *composition, uint32_t copy)
{
    kvern_file_load_options options = kvern_file_load_options_default();
    kvern_state *s;
    options.copy = copy;
    if (kvern_state_create(composition, 0, &s) ||
        kvern_state_checkpoint_budget(s, UINT64_C(1) << 24))
        abort();
    if (kvern_file_load(file, &options, s) == KVERN_OK)
        use_state(s);
    else if (kvern_state_rows(s) || !*kvern_error_detail())
        abort();
    kvern_state_destroy(s);
}

// The layers that it says: what has the file's own signatures loads, whatever they are.
static void load_own(const kvern_file *file)
{
    kvern_composition *own;
    if (kvern_file_composition(file, &own) == KVERN_OK)
        load(file, own, 0);
    else if (own || !*kvern_error_detail())
        abort();
    kvern_composition_release(own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvern_context *context = small_rows_context();
    kvern_composition *composition = small_rows_composition(context);
    forgery f = forgery_of(data, size);
    kvern_file *file;
    forgery_sum(&f, context, true);
    if (kvern_file_open_memory(context, f.data, f.bytes, &file) == KVERN_OK) {
        kvern_status status = kvern_file_verify(file);
        load(file, composition, 0);
        load(file, composition, 1);
        load_own(file);
        (void)status; // sums of pages may be those of other tensors
        kvern_file_close(file);
    } else if (file || !*kvern_error_detail()) {
        abort();
    }
    forgery_free(&f);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return 0;
}
