/* --token-file and --tls-*: how a process authenticates itself, and which peers it accepts
 * (docs/security.md). Called by every verb that connects to a service or listens. */
#pragma once
#include "cli/options.h"
#include "net/tls.h"

struct cli_credentials { /* file names; NULL: the option was not given */
    const char *token_file, *cert, *key, *ca;
    bool mutual;
};

/* Rows for a verb's table of options. c: the struct cli_credentials that gets the values. */
#define CLI_TOKEN_OPTION(c) \
    {"token-file", CLI_TEXT, &(c)->token_file, "FILE", \
     "read the service's token (its shared secret) from the first line of FILE (default: $CACHEW_TOKEN, if " \
     "it is set)"}
#define CLI_TLS_CA_OPTION(c) \
    {"tls-ca", CLI_TEXT, &(c)->ca, "FILE", \
     "use TLS, and connect only to processes whose certificate is signed by the authority in FILE (PEM)"}
/* Options of a process that only connects. */
#define CLI_CONNECT_OPTIONS(c) \
    CLI_TOKEN_OPTION(c), CLI_TLS_CA_OPTION(c), \
        {"tls-cert", CLI_TEXT, &(c)->cert, "FILE", \
         "present the certificate in FILE (PEM); needed if the service runs with --tls-mutual"}, \
        {"tls-key", CLI_TEXT, &(c)->key, "FILE", \
         "use the private key in FILE (PEM), which belongs to the certificate of --tls-cert"}
/* Options of a process that listens. It may connect too. */
#define CLI_LISTEN_OPTIONS(c) \
    CLI_TOKEN_OPTION(c), CLI_TLS_CA_OPTION(c), \
        {"tls-cert", CLI_TEXT, &(c)->cert, "FILE", \
         "use TLS, and present the certificate in FILE (PEM) to processes that connect"}, \
        {"tls-key", CLI_TEXT, &(c)->key, "FILE", \
         "use the private key in FILE (PEM), which belongs to the certificate of --tls-cert"}, \
        {"tls-mutual", CLI_FLAG, &(c)->mutual, NULL, \
         "accept only clients that present a certificate signed by the authority of --tls-ca"}

/* Reads the token: the first line of --token-file, else $CACHEW_TOKEN. *ret is new; NULL: neither is given.
 * No option takes the token itself, because `ps` shows command lines to other users. */
int cli_credentials_token(const struct cli_credentials *c, char **ret, struct cw_error *err) _must_check_;
/* Make the TLS configuration: _connect for connections that this process opens, _listen for connections that
 * it accepts. *ret is new (cw_tls_unref), or NULL if no --tls-* option was given. CW_E_OPTION: the options do
 * not fit together, or a file can't be used. */
int cli_credentials_connect(const struct cli_credentials *c, struct cw_tls **ret,
                            struct cw_error *err) _must_check_;
int cli_credentials_listen(const struct cli_credentials *c, struct cw_tls **ret,
                           struct cw_error *err) _must_check_;
