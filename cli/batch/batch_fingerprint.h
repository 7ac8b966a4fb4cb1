// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BATCH_FINGERPRINT_H
#define KVERN_CLI_BATCH_FINGERPRINT_H

// Whether two jobs would give the same answers: a number of the model and of every option that
// changes an answer. What changes only the speed or the memory (threads, rows, drafts) does not
// count, nor does a seed that nobody chose.

#include "cli/session/model_loading.h"
#include "cli/session/session.h"

#define BATCH_FINGERPRINT_TEXT 17

// Writes it as hexadecimal text. Errors: KVERN_ERR_IO (a file that was read before cannot be read
// again), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status batch_fingerprint(const session_options *options,
                                           const loaded_model *loaded, const chat_template *chat,
                                           char text[BATCH_FINGERPRINT_TEXT], engine_error *error);

#endif
