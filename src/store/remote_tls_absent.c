// SPDX-License-Identifier: MIT
// A library with KVERN_REDIS and without KVERN_TLS: a server with TLS is refused by name, when the
// store is opened. There never is a connection, so that the other calls have nothing to do.
#include "src/base/fail.h"
#include "src/store/remote/tls.h"

#include <stdio.h>

kvern_status kvern_tls_trust_make(const char *ca, const char *certificate, const char *key,
                                  kvern_tls_trust **out)
{
    (void)ca, (void)certificate, (void)key;
    *out = NULL;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "TLS (rediss://): the library was built without KVERN_TLS");
}

void kvern_tls_trust_free(kvern_tls_trust *trust)
{
    (void)trust;
}

kvern_tls *kvern_tls_make(const kvern_tls_trust *trust, int socket, const char *host)
{
    (void)trust, (void)socket, (void)host;
    return NULL;
}

void kvern_tls_free(kvern_tls *tls)
{
    (void)tls;
}

kvern_tls_result kvern_tls_greet(kvern_tls *tls)
{
    (void)tls;
    return KVERN_TLS_FAILED;
}

kvern_tls_result kvern_tls_read(kvern_tls *tls, void *to, size_t bytes, size_t *done)
{
    (void)tls, (void)to, (void)bytes, (void)done;
    return KVERN_TLS_FAILED;
}

kvern_tls_result kvern_tls_write(kvern_tls *tls, const void *from, size_t bytes, size_t *done)
{
    (void)tls, (void)from, (void)bytes, (void)done;
    return KVERN_TLS_FAILED;
}

void kvern_tls_error(const kvern_tls *tls, char *text, size_t room)
{
    (void)tls;
    snprintf(text, room, "no TLS");
}
