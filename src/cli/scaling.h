/* The options of verbs with a scaling policy: objective and prices. Each verb defines the option for the
 * policy itself. The caller owns the struct cli_scaling. */
#pragma once
#include "cli/options.h"
#include "policy/policy.h"

struct cli_scaling {
    const char *policy, *objective;    /* names; policy NULL: no policy; objective NULL: "time" */
    double price_client, price_worker; /* per hour */
    const char *currency;              /* of prices and costs; NULL: not named */
    struct cw_policy found;            /* the policy that `policy` names */
};

/* needed: name of the option that turns the policy on. It is an error to give one of these options without
 * it. */
#define CLI_SCALING_OPTIONS(x, needed) \
    {"objective", \
     CLI_TEXT, \
     &(x)->objective, \
     "O", \
     "have the policy minimise time (default; with the fewest workers) or cost", \
     .choices = cli_objectives, \
     .needs = needed}, \
        {"price-client", \
         CLI_NUMBER, \
         &(x)->price_client, \
         "P", \
         "tell the policy what all ranks of a job together cost per hour, in any currency, waiting or not " \
         "(default 4.96)", \
         .needs = needed, \
         .least = CW_CLIENT_PRICE_LEAST, \
         .most = CW_CLIENT_PRICE_MOST}, \
        {"price-worker", \
         CLI_NUMBER, \
         &(x)->price_worker, \
         "P", \
         "tell the policy what a worker costs per hour, in the same currency (default 0.427)", \
         .needs = needed, \
         .most = CW_WORKER_PRICE_MOST}, \
    { \
        "currency", CLI_TEXT, &(x)->currency, "NAME", \
            "name the currency of prices and costs where they are shown, such as EUR (default: not named)", \
            .needs = needed \
    }
extern const char *const cli_objectives[]; /* "time", "cost" */

/* Default prices per hour, which the verbs write before they read options: of all ranks of a job together
 * (one accelerator machine), and of a worker (docs/simulator.md). */
#define CLI_PRICE_CLIENT 4.96
#define CLI_PRICE_WORKER 0.427319

/* Sets the error for a policy that does not exist. The message lists the known names, and `more` (or NULL): a
 * name that only this verb knows. */
int cli_policy_unknown(const char *name, const char *more, struct cw_error *err) _must_check_;
/* Checks the currency, and sets x->found from x->policy, unless that is NULL. CW_E_OPTION: the currency is no
 * short text, or there is no such policy. */
int cli_scaling_find(struct cli_scaling *x, struct cw_error *err) _must_check_;
