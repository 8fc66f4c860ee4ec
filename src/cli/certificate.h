/* Makes keys (P-256) and X.509 certificates for a small cluster, with OpenSSL. Called by `keys`, which owns
 * them. */
#pragma once
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/error.h"

struct cli_identity { /* a private key, and the certificate of its public key */
    EVP_PKEY *key;
    X509 *certificate;
};

enum cli_certified { CLI_AUTHORITY, CLI_SERVER, CLI_CLIENT };

/* Makes a key and its certificate. name: the common name of the certificate. hosts: for CLI_SERVER, the hosts
 * that the certificate is for, as "DNS:NAME,IP:ADDRESS,..."; else NULL. by: the authority that signs; NULL:
 * the certificate is self-signed. days: how long it is valid. Validity begins an hour ago, so that a host
 * whose clock is slow accepts the certificate. *ret is new (cli_identity_deinit). */
int cli_certify(enum cli_certified kind, const char *name, const char *hosts, const struct cli_identity *by,
                unsigned days, struct cli_identity *ret, struct cw_error *err) _must_check_;
/* *ret is the PEM text of the key (key is true) or of the certificate; new. */
int cli_identity_pem(const struct cli_identity *i, bool key, char **ret, struct cw_error *err) _must_check_;
void cli_identity_deinit(struct cli_identity *i);
