/* Decides whether a client may join a job: the job must agree with it in all terms. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* *ret: the job of this Attach, made where it is not known or is over. 1: it differs (err says how), and
 * no rank of the job sent a message since since_ns: perhaps its clients are gone. */
int cw_dp_job_join(struct cw_dispatcher *d, const Cachew__Attach *a, uint64_t since_ns, struct job **ret,
                   struct cw_error *err) _must_check_;
