// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SERVED_SEQUENCE_H
#define KVERN_TESTS_SUPPORT_SERVED_SEQUENCE_H

// A sequence of tokens, the logits of all of them, and the ways in which an engine may serve it:
// every way must give these logits, bit for bit.

#include "tests/support/engine_fixture.h"

typedef struct served_sequence {
    int32_t *tokens;
    size_t count;
    float *logits; // [count, vocabulary]
    size_t vocabulary;
} served_sequence;

// Random tokens below `limit`, and their logits from one window on one thread with all that the
// machine has.
served_sequence served_sequence_create(const engine_fixture_options *options, size_t count,
                                       size_t limit, uint64_t seed);
void served_sequence_free(served_sequence *sequence);

// Only the first `count` tokens; a view that is not freed.
served_sequence served_sequence_beginning(const served_sequence *sequence, size_t count);

// One way each; a difference fails the test and names the way and the tokens.
void serve_window(const engine_fixture *f, const served_sequence *sequence);
void serve_decodes(const engine_fixture *f, const served_sequence *sequence);
void serve_known(const engine_fixture *f, const served_sequence *sequence, size_t chunk);
void serve_chunks(const engine_fixture *f, const served_sequence *sequence, size_t chunk);
void serve_random_chunks(const engine_fixture *f, const served_sequence *sequence, size_t most,
                         uint64_t seed);
// A window, two thirds of which are dropped and served again.
void serve_after_trim(const engine_fixture *f, const served_sequence *sequence);
// In row 1 of three, each row going its own pace.
void serve_in_batch(const engine_fixture *f, const served_sequence *sequence, uint64_t seed);
// In speculative rounds, whose wrong tokens are rolled back.
void serve_in_rounds(const engine_fixture *f, const served_sequence *sequence, uint64_t seed);

#endif
