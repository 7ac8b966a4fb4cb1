// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_CONVERSE_H
#define KVERN_CLI_CONVERSE_H

// A conversation on the terminal.

#include "cli/session/session.h"

// Reads messages and answers them until Ctrl-D. Ctrl-C ends the running answer only. Returns an
// exit code; a failure was reported.
int converse(run_session *session);

#endif
