/* The admin client: queries a dispatcher, and steers its jobs and workers. Each call makes a connection of
 * its own, and waits for the answer; any thread. cli/ calls it. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "net/tls.h"

struct cw_admin_client_options {
    const char *service; /* address of the dispatcher */
    const char *token;   /* may be NULL */
    struct cw_tls *tls;  /* NULL: plain */
    uint64_t timeout_ns; /* for the whole call */
};

/* Queries the state. what: "jobs", "workers", "streams", "status". *ret: JSON, to be freed. CW_E_SERVICE: the
 * dispatcher can't be reached, or refused. */
int cw_observe(const struct cw_admin_client_options *o, const char *what, char **ret,
               struct cw_error *err) _must_check_;

/* A job's claim to workers. Values without their has_ flag stay as they are. */
struct cw_claim_options {
    double weight; /* more than 0 */
    int priority;
    unsigned quota; /* 0: none */
    bool has_weight, has_priority, has_quota;
};

int cw_share_job(const struct cw_admin_client_options *o, const char *name,
                 const struct cw_claim_options *claim, struct cw_error *err) _must_check_;
/* Sets the objective of a job's policy, "time" or "cost" (NULL: as it is), and the price of all its ranks per
 * hour (NULL: as it is). */
int cw_aim_job(const struct cw_admin_client_options *o, const char *name, const char *objective,
               const double *client_price_per_h, struct cw_error *err) _must_check_;
/* Steers a worker or a job. verb: "drain-worker", "cancel-job", "pause-job", "resume-job"; name: of the job,
 * or the worker's id or name. */
int cw_steer(const struct cw_admin_client_options *o, const char *verb, const char *name,
             struct cw_error *err) _must_check_;
