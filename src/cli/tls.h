/* --tls-*: files of keys and certificates (docs/security.md). */
#pragma once
#include "cli/options.h"
#include "net/tls.h"

struct cli_tls {
    const char *cert, *key, *ca;
    bool mutual;
};

#define CLI_TLS_CA_OPTION(t) \
    {"tls-ca", \
     CLI_TEXT, \
     &(t)->ca, \
     "FILE", \
     "speak TLS: who is connected to has a certificate from this authority (PEM)", \
     0, \
     0, \
     NULL, \
     NULL}
/* Of who connects. */
#define CLI_TLS_OPTIONS(t) \
    CLI_TLS_CA_OPTION(t), \
        {"tls-cert", CLI_TEXT, &(t)->cert, "FILE", "our certificate, where --tls-mutual asks for one (PEM)", \
         0,          0,        NULL,       NULL}, \
    { \
        "tls-key", CLI_TEXT, &(t)->key, "FILE", "its key (PEM)", 0, 0, NULL, NULL \
    }
/* Of who listens, and may connect too. */
#define CLI_TLS_LISTEN_OPTIONS(t) \
    CLI_TLS_CA_OPTION(t), \
        {"tls-cert", CLI_TEXT, &(t)->cert, "FILE", "speak TLS: our certificate (PEM)", 0, 0, NULL, NULL}, \
        {"tls-key", CLI_TEXT, &(t)->key, "FILE", "its key (PEM)", 0, 0, NULL, NULL}, \
    { \
        "tls-mutual", CLI_FLAG, &(t)->mutual, NULL, "let in only who has a certificate from --tls-ca", 0, 0, \
            NULL, NULL \
    }

bool cli_tls_given(const struct cli_tls *t);
/* *ret: NULL where none of the options was given. CW_E_OPTION: they do not fit together, or a file can't be
 * used. */
int cli_tls_connecting(const struct cli_tls *t, struct cw_tls **ret, struct cw_error *err) _must_check_;
int cli_tls_listening(const struct cli_tls *t, struct cw_tls **ret, struct cw_error *err) _must_check_;
