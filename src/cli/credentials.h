/* --token-file and --tls-*: how a process authenticates itself, and which peers it accepts
 * (docs/security.md). Called by every verb that connects to a service or listens. */
#pragma once
#include "cli/options.h"
#include "net/tls.h"

struct cli_credentials { /* names of files, NULL where an option was not given */
    const char *token_file, *cert, *key, *ca;
    bool mutual;
};

/* Rows for a verb's table of options. */
#define CLI_TOKEN_OPTION(c) \
    {"token-file", CLI_TEXT, &(c)->token_file, "FILE", \
     "read the service's token from the first line of FILE (default: $CACHEW_TOKEN, if it is set)"}
#define CLI_TLS_CA_OPTION(c) \
    {"tls-ca", CLI_TEXT, &(c)->ca, "FILE", \
     "use TLS, and connect only to peers with a certificate from this authority (PEM)"}
/* Of a process that only connects. */
#define CLI_CONNECT_OPTIONS(c) \
    CLI_TOKEN_OPTION(c), CLI_TLS_CA_OPTION(c), \
        {"tls-cert", CLI_TEXT, &(c)->cert, "FILE", \
         "present this certificate to daemons with --tls-mutual (PEM)"}, \
        {"tls-key", CLI_TEXT, &(c)->key, "FILE", "use this private key of --tls-cert (PEM)"}
/* Of a process that listens, and may connect too. */
#define CLI_LISTEN_OPTIONS(c) \
    CLI_TOKEN_OPTION(c), CLI_TLS_CA_OPTION(c), \
        {"tls-cert", CLI_TEXT, &(c)->cert, "FILE", "use TLS, and present this certificate (PEM)"}, \
        {"tls-key", CLI_TEXT, &(c)->key, "FILE", "use this private key of --tls-cert (PEM)"}, \
        {"tls-mutual", CLI_FLAG, &(c)->mutual, NULL, \
         "accept only clients with a certificate from the authority of --tls-ca"}

/* *ret is the token of the file, else of the environment; new, or NULL where there is neither. No option
 * takes the token itself, since `ps` shows command lines. */
int cli_credentials_token(const struct cli_credentials *c, char **ret, struct cw_error *err) _must_check_;
/* *ret: TLS for connections to others, or for those that are accepted; NULL where no option of TLS was given.
 * CW_E_OPTION: the options do not fit together, or a file can't be used. */
int cli_credentials_connect(const struct cli_credentials *c, struct cw_tls **ret,
                            struct cw_error *err) _must_check_;
int cli_credentials_listen(const struct cli_credentials *c, struct cw_tls **ret,
                           struct cw_error *err) _must_check_;
