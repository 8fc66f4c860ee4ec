/* What verbs that decide about workers have in common. */
#pragma once
#include "cli/options.h"
#include "policy/policy.h"

struct cli_scaling {
    const char *policy, *objective; /* NULL: none; "time" */
    double price_client, price_worker;
    bool client_priced, worker_priced; /* it was said */
    struct cw_policy found;
};

#define CLI_SCALING_OPTIONS(x) \
    {"objective", CLI_TEXT, &(x)->objective, "O", "of the policy: time (default), or cost", \
     0,           0,        cli_objectives,  NULL}, \
        {"price-client", \
         CLI_NUMBER, \
         &(x)->price_client, \
         "P", \
         "of a job's ranks together, per hour (default 4.96): what waiting costs", \
         0, \
         0, \
         NULL, \
         &(x)->client_priced, \
         CW_CLIENT_PRICE_LEAST, \
         CW_CLIENT_PRICE_MOST}, \
    { \
        "price-worker", CLI_NUMBER, &(x)->price_worker, "P", "of a worker, per hour (default 0.427)", 0, 0, \
            NULL, &(x)->worker_priced, 0, CW_WORKER_PRICE_MOST \
    }
extern const char *const cli_objectives[];

/* Accelerators and workers as in docs/simulator.md. */
#define CLI_PRICE_CLIENT 4.96
#define CLI_PRICE_WORKER 0.427319

/* The error where there is no such policy. `more`: one more name that counts here, or NULL. */
int cli_policy_unknown(const char *said, const char *more, struct cw_error *err) _must_check_;
/* Refuses an option that was given without the one it needs; CW_E_OPTION. */
int cli_needs(const char *option, bool given, const char *needed, struct cw_error *err) _must_check_;
/* Finds the policy, if there is one. CW_E_OPTION: there is none of this name, or it belongs to the simulator;
 * or there is none, and other options were given, which mean nothing then. `needed`: the option that gives
 * one. */
int cli_scaling_find(struct cli_scaling *x, const char *needed, struct cw_error *err) _must_check_;
