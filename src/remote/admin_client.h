/* The admin client: queries a dispatcher, and changes its jobs and workers. Each call makes its own
 * connection, and waits for the answer. Any thread. cli/ calls it. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "net/tls.h"

struct cw_admin_client_options {
    const char *service; /* address of the dispatcher */
    const char *token;   /* may be NULL */
    struct cw_tls *tls;  /* NULL: no TLS */
    uint64_t timeout_ns; /* for the whole call */
};

/* Queries the dispatcher's state. what: "jobs", "workers", "streams", "status" and others (message Query).
 * *ret: JSON; the caller frees it. CW_E_SERVICE: the dispatcher can't be reached, or refused. */
int cw_observe(const struct cw_admin_client_options *o, const char *what, char **ret,
               struct cw_error *err) _must_check_;

/* A job's claim to workers. A value whose has_ flag is false stays as it is. */
struct cw_claim_options {
    double weight; /* more than 0 */
    int priority;
    unsigned quota; /* most workers; 0: no limit */
    bool has_weight, has_priority, has_quota;
};

/* Sets the claim of the job `name`. */
int cw_share_job(const struct cw_admin_client_options *o, const char *name,
                 const struct cw_claim_options *claim, struct cw_error *err) _must_check_;
/* Sets the objective of a job's policy, "time" or "cost", and the price per hour of all its ranks together.
 * NULL: the value stays as it is. */
int cw_aim_job(const struct cw_admin_client_options *o, const char *name, const char *objective,
               const double *client_price_per_h, struct cw_error *err) _must_check_;
/* Changes a worker or a job. verb: "drain-worker", "cancel-job", "pause-job", "resume-job". name: the name of
 * the job, or the id of the worker. */
int cw_steer(const struct cw_admin_client_options *o, const char *verb, const char *name,
             struct cw_error *err) _must_check_;
