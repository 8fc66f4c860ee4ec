/* A verb's connection to a dispatcher as an admin client: its options, and queries of the dispatcher's state.
 * Called by `jobs`, `workers`, `top`, and by `up`, which watches its provisioner (pool_watch.h). */
#include "cli/admin.h"

#include <stdlib.h>
#include <string.h>

int cli_admin_parse(struct cli_admin *a, const struct cli_verb *verb, const struct cli_option *options,
                    int argc, char **argv, struct cw_error *err)
{
    a->wait_s = 5;
    int r = cli_parse(verb, options, argc, argv, err);
    return r == 0 ? cli_admin_open(a, err) : r;
}

int cli_admin_open(struct cli_admin *a, struct cw_error *err)
{
    int r = cli_credentials_token(&a->credentials, &a->token, err);
    a->o = (struct cw_admin_client_options){
        .service = a->service, .token = a->token, .timeout_ns = (uint64_t)(a->wait_s * 1e9)};
    return r < 0 ? r : cli_credentials_connect(&a->credentials, &a->o.tls, err);
}

int cli_admin_query(const struct cli_admin *a, const char *what, json_t **ret, struct cw_error *err)
{
    _cleanup_free_ char *answer = NULL;
    int r = cw_observe(&a->o, what, &answer, err);
    if (r < 0)
        return r;
    json_auto_t *value = json_loads(answer, 0, NULL);
    if (strcmp(what, "status") == 0 ? !json_is_object(value) : !json_is_array(value))
        return cw_error_set(
            err, CW_E_SERVICE,
            "the dispatcher at %s sent an answer that is not the expected JSON" CW_OTHER_VERSION, a->service);
    *ret = json_incref(value);
    return 0;
}

const json_t *cli_admin_named(const json_t *rows, const char *name)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        const char *its = json_string_value(json_object_get(row, "name"));
        if (its && strcmp(its, name) == 0)
            return row;
    }
    return NULL;
}

void cli_admin_deinit(struct cli_admin *a)
{
    cw_tls_unref(a->o.tls);
    free(a->token);
}
