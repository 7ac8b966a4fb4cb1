// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SMALL_MODEL_H
#define KVERN_TESTS_SUPPORT_SMALL_MODEL_H

// A whole model file of half a megabyte for tests of programs: architecture llama, byte-level
// vocabulary, ChatML. Token b below 256 is the byte b.

#include <stdbool.h>
#include <stddef.h>

enum {
    SMALL_MODEL_HE = 256, // merged from "h" and "e"
    SMALL_MODEL_LL,       // merged from "l" and "l"
    SMALL_MODEL_END_OF_TEXT,
    SMALL_MODEL_IM_START,
    SMALL_MODEL_IM_END,
    SMALL_MODEL_VOCABULARY
};

typedef struct small_model {
    // What the model says after a newline, the end of a ChatML prompt, and then ends its turn: each
    // token makes the next one all but certain, so no byte may occur twice, and no newline. NULL:
    // random weights, whose logits depend on every earlier token.
    const char *answer;
    bool endless;             // the answer begins again instead of ending
    size_t context;           // 0: 256
    const char *architecture; // NULL: llama
    const char *chat;         // the template's text; NULL: ChatML; "": none
    bool no_pre;              // it does not say how texts are split
    int mark_type;            // the token type of "<|im_start|>" and "<|im_end|>"; 0: control
    bool other_end;           // the file's end token is "<|endoftext|>"
    int turn_end;             // what the model ends its turn with; 0: SMALL_MODEL_IM_END
} small_model;

// Writes the file. The program ends when that fails.
void small_model_save(const small_model *options, const char *path);

#endif
