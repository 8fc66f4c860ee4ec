/* The life of jobs: made by the first Attach, running once their stream is ready, over when all ranks have
 * finished or something ends them. */
#pragma once
#include "base/error.h"
#include "service/dispatcher/jobs.h"

/* Adds a job without a stream; the one that is without a client for longest makes room. */
int cw_dp_job_new(struct cw_dispatcher *d, const char *name, struct job **ret,
                  struct cw_error *err) _must_check_;
void cw_dp_job_join_stream(struct job *j, struct stream *s);
void cw_dp_job_leave_stream(struct cw_dispatcher *d, struct job *j);
/* Its stream is ready: the job is written to the journal, and its clients are answered when it is durable. */
void cw_dp_job_ready(struct cw_dispatcher *d, struct job *j);
/* Its entry is durable. */
void cw_dp_job_written(struct cw_dispatcher *d, struct job *j);
/* No worker can serve it: clients that wait are sent the reason, and the job is freed. */
void cw_dp_job_refuse(struct cw_dispatcher *d, struct job *j, const struct cw_error *why);
/* Ends the job with a state that is over; why: sent to its clients, NULL for JOB_DONE. */
void cw_dp_job_end(struct cw_dispatcher *d, struct job *j, enum job_state state, const struct cw_error *why);
/* Ends all jobs of the stream as failed. */
void cw_dp_job_fail_all(struct cw_dispatcher *d, struct stream *s, const struct cw_error *why);
/* Removes it from all tables; journal entries under way keep the struct. */
void cw_dp_job_free(struct cw_dispatcher *d, struct job *j);
/* Collects abandoned and old jobs, and notifies clients of what holds theirs. */
void cw_dp_job_tick(struct cw_dispatcher *d);
