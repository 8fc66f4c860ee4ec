/* A verb's connection to a dispatcher as an admin client: its options, and queries of the dispatcher's state.
 * Called by `jobs`, `workers`, `top`, and by `up`, which watches its provisioner (pool_watch.h). */
#pragma once
#include <jansson.h>

#include "cli/credentials.h"
#include "remote/admin_client.h"

struct cli_admin {
    const char *service; /* --service HOST:PORT */
    struct cli_credentials credentials;
    double wait_s; /* deadline for an answer of the dispatcher, in seconds */
    bool json;
    char *token;                      /* owned; NULL: none */
    struct cw_admin_client_options o; /* made from the fields above; refers to them */
};

#define CLI_ADMIN_OPTIONS(a) \
    {"service", \
     CLI_TEXT, \
     &(a)->service, \
     "HOST:PORT", \
     "connect to the service whose dispatcher listens at HOST:PORT (required)", \
     .required = "HOST:PORT of a dispatcher"}, \
        CLI_CONNECT_OPTIONS(&(a)->credentials), \
        {"wait", CLI_SECONDS, &(a)->wait_s, "S", \
         "fail if the dispatcher does not answer within S seconds (default 5)"}, \
        {"json", CLI_FLAG, &(a)->json, NULL, "print the result as JSON"}

/* Parses the command line (wait_s defaults to 5), then calls cli_admin_open. Returns what cli_parse returns,
 * or an error. */
int cli_admin_parse(struct cli_admin *a, const struct cli_verb *verb, const struct cli_option *options,
                    int argc, char **argv, struct cw_error *err) _must_check_;
/* Reads the token, loads the TLS files, and fills in a->o. */
int cli_admin_open(struct cli_admin *a, struct cw_error *err) _must_check_;
/* Queries the dispatcher's state. what: "status" gives a JSON object; "jobs", "workers", "pools" ... give an
 * array. *ret is new. */
int cli_admin_query(const struct cli_admin *a, const char *what, json_t **ret,
                    struct cw_error *err) _must_check_;
/* Returns the object of this name in an array of cli_admin_query; NULL: there is none. */
const json_t *cli_admin_named(const json_t *rows, const char *name);
void cli_admin_deinit(struct cli_admin *a);
