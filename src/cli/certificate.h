/* Keys and certificates for a small cluster, made with OpenSSL: P-256, X.509. Called by `keys`, which owns
 * them. */
#pragma once
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/error.h"

struct cli_identity {
    EVP_PKEY *key;
    X509 *certificate;
};

enum cli_certified { CLI_AUTHORITY, CLI_SERVER, CLI_CLIENT };

/* Makes a key and its certificate. hosts: of a server, "DNS:NAME,IP:ADDRESS" ... by: the authority that
 * signs; NULL: the certificate signs itself. It is valid for `days`, from an hour ago since clocks differ. */
int cli_certify(enum cli_certified kind, const char *name, const char *hosts, const struct cli_identity *by,
                unsigned days, struct cli_identity *ret, struct cw_error *err) _must_check_;
/* PEM of the key, or of the certificate. *ret is new. */
int cli_identity_pem(const struct cli_identity *i, bool key, char **ret, struct cw_error *err) _must_check_;
void cli_identity_deinit(struct cli_identity *i);
