/* Makes keys (P-256) and X.509 certificates for a small cluster, with OpenSSL. Called by `keys`, which owns
 * them. */
#include "cli/certificate.h"

#include <openssl/bn.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

#include "net/openssl.h"

#define HOUR 3600L
#define DAY (24 * HOUR)

void cli_identity_deinit(struct cli_identity *i)
{
    EVP_PKEY_free(i->key);
    X509_free(i->certificate);
    *i = (struct cli_identity){0};
}

/* Adds the extension `nid`, whose value is a text in OpenSSL's syntax, to c. by: the issuer's certificate. */
static bool certificate_extend(X509 *c, X509 *by, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, by, c, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool ok = e && X509_add_ext(c, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

/* Sets a serial number of 127 random bits, so that serial numbers differ although no list of them is kept. */
static bool certificate_set_serial(X509 *c)
{
    BIGNUM *n = BN_new();
    bool ok = n && BN_rand(n, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(n, X509_get_serialNumber(c));
    BN_free(n);
    return ok;
}

static bool certificate_fill(X509 *c, EVP_PKEY *key, const char *name, X509 *by, unsigned days)
{
    X509_NAME *subject = X509_get_subject_name(c);
    return X509_set_version(c, X509_VERSION_3) == 1 && certificate_set_serial(c) &&
           X509_gmtime_adj(X509_getm_notBefore(c), -HOUR) &&
           X509_time_adj_ex(X509_getm_notAfter(c), (int)days, 0, NULL) && X509_set_pubkey(c, key) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8, (const unsigned char *)"cachew", -1, -1,
                                      0) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) ==
               1 &&
           X509_set_issuer_name(c, X509_get_subject_name(by)) == 1;
}

/* Limits what the key may be used for (RFC 5280, 4.2.1). A daemon's certificate may authenticate a server and
 * a client, because a worker is a server to its clients and a client of the dispatcher. */
static bool certificate_restrict(X509 *c, enum cli_certified kind, const char *hosts, X509 *by)
{
    bool authority = kind == CLI_AUTHORITY;
    return certificate_extend(c, by, NID_basic_constraints,
                              authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
           certificate_extend(c, by, NID_key_usage,
                              authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
           certificate_extend(c, by, NID_subject_key_identifier, "hash") &&
           (authority || certificate_extend(c, by, NID_authority_key_identifier, "keyid:always")) &&
           (authority || certificate_extend(c, by, NID_ext_key_usage,
                                            kind == CLI_SERVER ? "serverAuth,clientAuth" : "clientAuth")) &&
           (!hosts || certificate_extend(c, by, NID_subject_alt_name, hosts));
}

int cli_certify(enum cli_certified kind, const char *name, const char *hosts, const struct cli_identity *by,
                unsigned days, struct cli_identity *ret, struct cw_error *err)
{
    struct cli_identity i = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
    X509 *issuer = by ? by->certificate : i.certificate;
    if (!i.key || !i.certificate || !certificate_fill(i.certificate, i.key, name, issuer, days) ||
        !certificate_restrict(i.certificate, kind, hosts, issuer) ||
        X509_sign(i.certificate, by ? by->key : i.key, EVP_sha256()) <= 0) {
        cli_identity_deinit(&i);
        return cw_error_set(err, CW_E_BUG, "OpenSSL can't make the certificate \"%s\"", name);
    }
    *ret = i;
    return 0;
}

int cli_identity_pem(const struct cli_identity *i, bool key, char **ret, struct cw_error *err)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *data = NULL;
    bool ok = b && (key ? PEM_write_bio_PrivateKey(b, i->key, NULL, NULL, 0, NULL, NULL)
                        : PEM_write_bio_X509(b, i->certificate)) == 1;
    long size = ok ? BIO_get_mem_data(b, &data) : 0;
    char *text = ok ? malloc((size_t)size + 1) : NULL;
    if (text) { /* data has no NUL at its end */
        memcpy(text, data, (size_t)size);
        text[size] = '\0';
    }
    BIO_free(b);
    *ret = text;
    return text ? 0 : cw_error_nomem(err, 0, "a certificate");
}
