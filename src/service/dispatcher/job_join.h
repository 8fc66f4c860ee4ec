/* Decides whether a client may join a job: all terms of its Attach must be those of the job. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* ret: the job that the Attach names; a new one if there is none, or it is over, or it has other terms and no
 * client. 1: its terms differ (err says which), and no rank of the job sent a message since since_ns, so its
 * clients may be gone. < 0: refused. */
int cw_dp_job_join(struct cw_dispatcher *d, const Cachew__Attach *a, uint64_t since_ns, struct job **ret,
                   struct cw_error *err) _must_check_;
