/* Questions to a dispatcher, and what steers it: one at a time, from any thread. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "net/tls.h"

struct cw_admin_client_options {
    const char *service; /* address of the dispatcher */
    const char *token;   /* may be NULL */
    struct cw_tls *tls;  /* NULL: plain */
    uint64_t timeout_ns; /* until the answer is there */
};

/* what: "jobs", "workers", "streams", "status". *ret: new, JSON. CW_E_SERVICE: it can't be reached, or
 * refused. */
int cw_observe(const struct cw_admin_client_options *o, const char *what, char **ret,
               struct cw_error *err) _must_check_;

/* What a job may have of the workers; what is not said stays as it is. */
struct cw_claim_options {
    double weight; /* more than 0, where it is said */
    int priority;
    unsigned quota; /* 0: none */
    bool has_weight, has_priority, has_quota;
};

int cw_share_job(const struct cw_admin_client_options *o, const char *name,
                 const struct cw_claim_options *claim, struct cw_error *err) _must_check_;
/* What a job's policy is to look for: "time" or "cost" (NULL: as it is), and the price of all its ranks per
 * hour (NULL: as it is). */
int cw_aim_job(const struct cw_admin_client_options *o, const char *name, const char *objective,
               const double *client_price_per_h, struct cw_error *err) _must_check_;
/* verb: "drain-worker", "cancel-job", "pause-job", "resume-job"; name: a worker's id or name, or a job's
 * name. */
int cw_steer(const struct cw_admin_client_options *o, const char *verb, const char *name,
             struct cw_error *err) _must_check_;
