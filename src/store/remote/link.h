// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_LINK_H
#define KVERN_STORE_REMOTE_LINK_H

// The bytes of a wire, plain or in TLS: waiting for them within its times, and counting them.
// Errors: those of the wire, which is closed then.

#include "src/store/remote/wire.h"

// Makes the connected socket one that does not block, and greets a server with TLS.
KVERN_CHECK kvern_status kvern_link_begin(kvern_wire *wire);

// Reads at least one byte, at most `room`.
KVERN_CHECK kvern_status kvern_link_read(kvern_wire *wire, void *to, size_t room, size_t *count);

// Writes all of it. `more`: something follows at once.
KVERN_CHECK kvern_status kvern_link_write(kvern_wire *wire, const void *from, size_t bytes,
                                          bool more);

#endif
