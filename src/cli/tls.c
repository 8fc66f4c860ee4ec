#include "cli/tls.h"

bool cli_tls_given(const struct cli_tls *t)
{
    return t->cert || t->key || t->ca || t->mutual;
}

static int missing(const char *option, const char *what, const char *with, struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, option, "missing", what, "--%s is missing: expected %s, since %s",
                          option, what, with);
}

static int check_pair(const struct cli_tls *t, struct cw_error *err)
{
    if (t->cert && !t->key)
        return missing("tls-key", "the key of --tls-cert", "--tls-cert was given", err);
    if (t->key && !t->cert)
        return missing("tls-cert", "the certificate of --tls-key", "--tls-key was given", err);
    return 0;
}

int cli_tls_connecting(const struct cli_tls *t, struct cw_tls **ret, struct cw_error *err)
{
    *ret = NULL;
    int r = check_pair(t, err);
    if (r < 0 || !cli_tls_given(t))
        return r;
    return cw_tls_new(&(struct cw_tls_files){.certificate = t->cert, .key = t->key, .authority = t->ca},
                      false, ret, err);
}

int cli_tls_listening(const struct cli_tls *t, struct cw_tls **ret, struct cw_error *err)
{
    *ret = NULL;
    int r = check_pair(t, err);
    if (r < 0 || !cli_tls_given(t))
        return r;
    if (!t->cert)
        return missing("tls-cert", "a certificate for those that connect", "TLS is asked for", err);
    if (t->mutual && !t->ca)
        return missing("tls-ca", "the authority of the certificates that are let in",
                       "--tls-mutual was given", err);
    return cw_tls_new(
        &(struct cw_tls_files){.certificate = t->cert, .key = t->key, .authority = t->mutual ? t->ca : NULL},
        true, ret, err);
}
