/* Includes the OpenSSL headers. With OpenSSL 1.1.1 (Debian 11), defines the names of OpenSSL 3.0 that Cachew
 * uses and 1.1.1 lacks. */
#pragma once
#include <errno.h>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* CW_SSL_NO_ERRNO is our result for a call that failed with SSL_ERROR_SYSCALL, an empty error queue and errno
 * 0. In 1.1.1 this means that the peer closed its socket without a close_notify; as with 3.0, that counts as
 * the end of the stream (0). */
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#define CW_SSL_NO_ERRNO (-ECONNRESET)
#else
#define CW_SSL_NO_ERRNO 0
#define SSL_OP_IGNORE_UNEXPECTED_EOF 0
#define X509_VERSION_3 2L
#define ERR_SYSTEM_ERROR(code) (ERR_GET_LIB(code) == ERR_LIB_SYS)

static inline int SSL_CTX_load_verify_file(SSL_CTX *c, const char *file)
{
    return SSL_CTX_load_verify_locations(c, file, NULL);
}

/* Returns a new key of the curve; NULL on failure. */
static inline EVP_PKEY *EVP_EC_gen(const char *curve)
{
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    EVP_PKEY *key = NULL;
    if (c && EVP_PKEY_keygen_init(c) == 1 &&
        EVP_PKEY_CTX_set_ec_paramgen_curve_nid(c, EC_curve_nist2nid(curve)) == 1 &&
        EVP_PKEY_CTX_set_ec_param_enc(c, OPENSSL_EC_NAMED_CURVE) == 1)
        EVP_PKEY_keygen(c, &key);
    EVP_PKEY_CTX_free(c);
    return key;
}
#endif
