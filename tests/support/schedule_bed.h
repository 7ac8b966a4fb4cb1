// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SCHEDULE_BED_H
#define KVERN_TESTS_SUPPORT_SCHEDULE_BED_H

// What the tests of the scheduler serve requests with: tiny models whose heads are wide enough for
// every storage. Everything that fails here fails the test.

#include "tests/support/engine_fixture.h"
#include "tests/support/storages.h"

#define SCHEDULE_BED_VOCABULARY 260 // of the llama files
#define SCHEDULE_BED_POISON 200     // see schedule_bed_poison

// A model file in memory, with windows (gemma) or without (llama). Files of other seeds are other
// models; `layers` is for llama alone.
void *schedule_bed_file(bool gemma, uint64_t seed, size_t layers, size_t *bytes);

// Gives the token SCHEDULE_BED_POISON an embedding of NaN in such a file.
void schedule_bed_poison(void *data, size_t bytes);

// A storage as it is wished for; NULL: the default.
kvern_storage schedule_bed_wishes(const storage *s);

// From now on the fixture's composition has that storage.
void schedule_bed_store(engine_fixture *f, const kvern_storage *wishes);

// Of the fixture's context.
kvern_memory schedule_bed_memory(const engine_fixture *f);

#endif
