// SPDX-License-Identifier: MIT
#include "src/store/remote/tls.h"

#include "src/base/fail.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Both are OpenSSL's own, which counts who uses them.
static SSL_CTX *context_of(const kvern_tls_trust *trust)
{
    return (SSL_CTX *)(uintptr_t)trust;
}

static SSL *ssl_of(const kvern_tls *tls)
{
    return (SSL *)(uintptr_t)tls;
}

static void last_error(char *text, size_t room)
{
    const unsigned long code = ERR_get_error();
    const char *reason = ERR_reason_error_string(code);
    snprintf(text, room, "%s", reason ? reason : "the connection failed");
    ERR_clear_error();
}

static kvern_status refuse_file(const char *what, const char *path)
{
    char text[200];
    last_error(text, sizeof text);
    return kvern_fail(KVERN_ERR_IO, "%s '%s': %s", what, path, text);
}

static kvern_status trust_files(SSL_CTX *context, const char *ca, const char *certificate,
                                const char *key)
{
    if (ca && SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
        return refuse_file("certificates to trust in", ca);
    if (!ca && SSL_CTX_set_default_verify_paths(context) != 1)
        return kvern_fail(KVERN_ERR_IO, "the system's certificates cannot be read");
    if (certificate && SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        return refuse_file("the client's certificate in", certificate);
    if (key && SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        return refuse_file("the client's key in", key);
    if (key && SSL_CTX_check_private_key(context) != 1)
        return refuse_file("the key of the client's certificate is not in", key);
    return KVERN_OK;
}

kvern_status kvern_tls_trust_make(const char *ca, const char *certificate, const char *key,
                                  kvern_tls_trust **out)
{
    *out = NULL;
    if (!certificate != !key)
        return kvern_fail(KVERN_ERR_ARGUMENT, "a client's certificate without its key, or a key "
                                              "without its certificate");
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context)
        return kvern_fail(KVERN_ERR_MEMORY, "no memory for TLS");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    kvern_status status = trust_files(context, ca, certificate, key);
    if (status)
        SSL_CTX_free(context);
    else
        *out = (kvern_tls_trust *)context;
    return status;
}

void kvern_tls_trust_free(kvern_tls_trust *trust)
{
    SSL_CTX_free(context_of(trust));
}

// A name is compared with names, an address with addresses.
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

kvern_tls *kvern_tls_make(const kvern_tls_trust *trust, int socket, const char *host)
{
    SSL *ssl = SSL_new(context_of(trust));
    if (ssl && expect_host(ssl, host) && SSL_set_fd(ssl, socket) == 1) {
        SSL_set_connect_state(ssl);
        return (kvern_tls *)ssl;
    }
    SSL_free(ssl);
    return NULL;
}

void kvern_tls_free(kvern_tls *tls)
{
    SSL_free(ssl_of(tls));
}

static kvern_tls_result result_of(SSL *ssl, int code)
{
    if (code > 0)
        return KVERN_TLS_DONE;
    switch (SSL_get_error(ssl, code)) {
    case SSL_ERROR_WANT_READ:
        return KVERN_TLS_READS;
    case SSL_ERROR_WANT_WRITE:
        return KVERN_TLS_WRITES;
    case SSL_ERROR_ZERO_RETURN:
        return KVERN_TLS_ENDED;
    default:
        return KVERN_TLS_FAILED;
    }
}

kvern_tls_result kvern_tls_greet(kvern_tls *tls)
{
    ERR_clear_error();
    return result_of(ssl_of(tls), SSL_do_handshake(ssl_of(tls)));
}

kvern_tls_result kvern_tls_read(kvern_tls *tls, void *to, size_t bytes, size_t *done)
{
    ERR_clear_error();
    return result_of(ssl_of(tls), SSL_read_ex(ssl_of(tls), to, bytes, done));
}

kvern_tls_result kvern_tls_write(kvern_tls *tls, const void *from, size_t bytes, size_t *done)
{
    ERR_clear_error();
    return result_of(ssl_of(tls), SSL_write_ex(ssl_of(tls), from, bytes, done));
}

void kvern_tls_error(const kvern_tls *tls, char *text, size_t room)
{
    const long verdict = SSL_get_verify_result(ssl_of(tls));
    if (verdict == X509_V_OK) {
        last_error(text, room);
        return;
    }
    ERR_clear_error();
    snprintf(text, room, "its certificate: %s", X509_verify_cert_error_string(verdict));
}
