/* The life of jobs. The first Attach creates a job; it runs once its stream is ready; it is over when all
 * ranks have finished, or an error or an admin client ends it. */
#pragma once
#include "base/error.h"
#include "service/dispatcher/jobs.h"

/* Adds a job without a stream. If there are too many jobs, removes the one that has been without a client for
 * the longest time; fails if all have clients. */
int cw_dp_job_new(struct cw_dispatcher *d, const char *name, struct job **ret,
                  struct cw_error *err) _must_check_;
/* Connects the job with its stream, or ends the connection; a stream without jobs is freed later. */
void cw_dp_job_join_stream(struct job *j, struct stream *s);
void cw_dp_job_leave_stream(struct cw_dispatcher *d, struct job *j);
/* Call when the job's stream is ready. Writes the job to the journal; its clients are answered once it is
 * durable. */
void cw_dp_job_ready(struct cw_dispatcher *d, struct job *j);
/* Call when the job's journal entry is durable: answers its clients. */
void cw_dp_job_written(struct cw_dispatcher *d, struct job *j);
/* Call when no worker can serve the job: sends its waiting clients the reason, and frees the job. */
void cw_dp_job_refuse(struct cw_dispatcher *d, struct job *j, const struct cw_error *why);
/* Ends the job with the state JOB_DONE, JOB_CANCELLED or JOB_FAILED. why: the reason, sent to its clients;
 * NULL for JOB_DONE. */
void cw_dp_job_end(struct cw_dispatcher *d, struct job *j, enum job_state state, const struct cw_error *why);
/* Ends all jobs of the stream as failed. */
void cw_dp_job_fail_all(struct cw_dispatcher *d, struct stream *s, const struct cw_error *why);
/* Removes the job from all tables. The struct is freed when its last pending journal entry is written. */
void cw_dp_job_free(struct cw_dispatcher *d, struct job *j);
/* Called by a timer. Removes jobs that have had no client, or have been over, for long, and tells the clients
 * of the other jobs why they make no progress. */
void cw_dp_job_tick(struct cw_dispatcher *d);
