/* --token-file and --tls-*: how a process authenticates itself, and which peers it accepts
 * (docs/security.md). Called by every verb that connects to a service or listens. */
#include "cli/credentials.h"

#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "storage/file.h"

#define TOKEN_MOST 4096 /* bytes of a file that holds a token */

int cli_credentials_token(const struct cli_credentials *c, char **ret, struct cw_error *err)
{
    size_t size;
    const char *own = getenv("CACHEW_TOKEN");
    *ret = NULL;
    if (!c->token_file) {
        if (own && *own && !(*ret = strdup(own)))
            return cw_error_nomem(err, 0, "a token");
        return 0;
    }
    int r = cw_read_file(c->token_file, TOKEN_MOST, ret, &size, err);
    if (r < 0)
        return r;
    (*ret)[strcspn(*ret, "\r\n")] = '\0';
    if (**ret)
        return 0;
    free(CW_STEAL(*ret));
    return cw_error_value(
        err, CW_E_OPTION, "token-file", c->token_file, "a file whose first line is the token",
        "--token-file %s: the first line is empty: expected the service's token there", c->token_file);
}

/* Sets the error "--option is missing: expected `what`, since `with`". */
static int credentials_missing(const char *option, const char *what, const char *with, struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, option, "missing", what, "--%s is missing: expected %s, since %s",
                          option, what, with);
}

/* Returns 1 if an option of TLS was given, 0 if none was. */
static int credentials_check(const struct cli_credentials *c, struct cw_error *err)
{
    if (c->cert && !c->key)
        return credentials_missing("tls-key", "the key of --tls-cert", "--tls-cert was given", err);
    if (c->key && !c->cert)
        return credentials_missing("tls-cert", "the certificate of --tls-key", "--tls-key was given", err);
    return c->cert || c->ca || c->mutual;
}

int cli_credentials_connect(const struct cli_credentials *c, struct cw_tls **ret, struct cw_error *err)
{
    *ret = NULL;
    int r = credentials_check(c, err);
    const struct cw_tls_files files = {.certificate = c->cert, .key = c->key, .authority = c->ca};
    return r <= 0 ? r : cw_tls_new(&files, false, ret, err);
}

int cli_credentials_listen(const struct cli_credentials *c, struct cw_tls **ret, struct cw_error *err)
{
    *ret = NULL;
    int r = credentials_check(c, err);
    if (r <= 0)
        return r;
    if (!c->cert)
        return credentials_missing("tls-cert", "a certificate to present to clients",
                                   "an option of TLS was given", err);
    if (c->mutual && !c->ca)
        return credentials_missing("tls-ca", "the authority that signs the certificates of accepted clients",
                                   "--tls-mutual was given", err);
    const struct cw_tls_files files = {
        .certificate = c->cert, .key = c->key, .authority = c->mutual ? c->ca : NULL};
    return cw_tls_new(&files, true, ret, err);
}
