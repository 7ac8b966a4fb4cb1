// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_TLS_H
#define KVERN_STORE_REMOTE_TLS_H

// TLS of a connection, by OpenSSL; the server's certificate is always verified, and its name. In a
// library without KVERN_TLS these are replaced by src/store/remote_tls_absent.c, which refuses.

#include <kvern/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct kvern_tls_trust kvern_tls_trust; // whom to trust, and who we are
typedef struct kvern_tls kvern_tls;             // of one connection

// Files in PEM. `ca` NULL: whom the system trusts; `certificate` and `key` of the client: both, or
// neither. Errors: KVERN_ERR_UNSUPPORTED (built without), KVERN_ERR_ARGUMENT (one of the two),
// KVERN_ERR_IO (a file that cannot be read, or holds something else), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status kvern_tls_trust_make(const char *ca, const char *certificate,
                                              const char *key, kvern_tls_trust **out);
void kvern_tls_trust_free(kvern_tls_trust *trust); // NULL is allowed

// A client's side on a socket that does not block, for a host of this name. NULL: no memory.
kvern_tls *kvern_tls_make(const kvern_tls_trust *trust, int socket, const char *host);
void kvern_tls_free(kvern_tls *tls); // NULL is allowed

typedef enum kvern_tls_result {
    KVERN_TLS_DONE,
    KVERN_TLS_READS,  // again when the socket has something to read
    KVERN_TLS_WRITES, // again when it takes something
    KVERN_TLS_ENDED,  // the other side ended it
    KVERN_TLS_FAILED  // kvern_tls_error says why
} kvern_tls_result;

kvern_tls_result kvern_tls_greet(kvern_tls *tls);
// *done: how much of it was, where that is KVERN_TLS_DONE.
kvern_tls_result kvern_tls_read(kvern_tls *tls, void *to, size_t bytes, size_t *done);
kvern_tls_result kvern_tls_write(kvern_tls *tls, const void *from, size_t bytes, size_t *done);

// Of the last call on this thread that failed.
void kvern_tls_error(const kvern_tls *tls, char *text, size_t room);

#endif
