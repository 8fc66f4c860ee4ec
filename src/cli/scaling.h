/* Options of the verbs that decide about workers: policy, objective and prices. */
#pragma once
#include "cli/options.h"
#include "policy/policy.h"

struct cli_scaling {
    const char *policy, *objective; /* NULL: none; "time" */
    double price_client, price_worker;
    struct cw_policy found; /* of `policy` */
};

/* needed: the option that names a policy. */
#define CLI_SCALING_OPTIONS(x, needed) \
    {"objective", \
     CLI_TEXT, \
     &(x)->objective, \
     "O", \
     "have the policy minimise time (default) or cost", \
     .choices = cli_objectives, \
     .needs = needed}, \
        {"price-client", \
         CLI_NUMBER, \
         &(x)->price_client, \
         "P", \
         "set what a job's ranks cost together per hour, waiting or not (default 4.96)", \
         .needs = needed, \
         .least = CW_CLIENT_PRICE_LEAST, \
         .most = CW_CLIENT_PRICE_MOST}, \
    { \
        "price-worker", CLI_NUMBER, &(x)->price_worker, "P", \
            "set what a worker costs per hour (default 0.427)", .needs = needed, \
            .most = CW_WORKER_PRICE_MOST \
    }
extern const char *const cli_objectives[]; /* "time", "cost" */

/* Prices per hour of an accelerator machine and of a worker, as in docs/simulator.md. */
#define CLI_PRICE_CLIENT 4.96
#define CLI_PRICE_WORKER 0.427319

/* The error for a policy that does not exist. `more`: one more name that counts here, or NULL. */
int cli_policy_unknown(const char *name, const char *more, struct cw_error *err) _must_check_;
/* Finds the policy, if one was named. CW_E_OPTION: there is no such policy. */
int cli_scaling_find(struct cli_scaling *x, struct cw_error *err) _must_check_;
