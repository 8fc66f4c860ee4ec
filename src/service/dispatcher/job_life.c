/* Creates, starts, ends and frees jobs. */
#include "service/dispatcher/job_life.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/held.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/stream_life.h"

/* Returns the job that has been over for the longest time, or (over false) without a client for the longest
 * time; NULL: there is none. */
static struct job *job_find_oldest(struct cw_dispatcher *d, bool over)
{
    struct job *oldest = NULL;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list)
        if (cw_dp_job_over(j) == over && j->ranks.n_attached == 0 &&
            (!oldest || j->since_ns < oldest->since_ns))
            oldest = j;
    return oldest;
}

/* Makes room for one more job: if there are DP_JOBS, removes the job that has been without a client for the
 * longest time. False: all jobs have clients. */
static bool job_room(struct cw_dispatcher *d)
{
    if (d->jobs.n - d->jobs.n_over < DP_JOBS)
        return true;
    struct job *oldest = job_find_oldest(d, false);
    if (oldest) {
        cw_dp_log(d, true,
                  "job \"%s\" is removed to make room: it has no client, and the dispatcher has %d jobs, the "
                  "most that it keeps",
                  oldest->name, DP_JOBS);
        cw_dp_job_free(d, oldest);
    }
    return oldest;
}

int cw_dp_job_new(struct cw_dispatcher *d, const char *name, struct job **ret, struct cw_error *err)
{
    if (!job_room(d))
        return cw_error_set(err, CW_E_SERVICE, "the dispatcher has %d jobs already, the most that it accepts",
                            DP_JOBS);
    struct job *j = malloc(sizeof(*j));
    if (!j)
        return cw_error_nomem(err, sizeof(*j), "a job");
    *j = (struct job){.refs = 1, .since_ns = d->now_ns, .name = strdup(name)};
    if (!j->name || cw_map_add(&d->jobs.by_name, &j->node, cw_hash64(name, strlen(name))) < 0) {
        cw_dp_job_unref(j);
        return cw_error_nomem(err, sizeof(*j), "a job");
    }
    cw_list_add(&d->jobs.list, &j->link);
    d->jobs.n++;
    *ret = j;
    return 0;
}

void cw_dp_job_join_stream(struct job *j, struct stream *s)
{
    j->stream = s;
    memcpy(j->stream_id, s->id, 16);
    cw_list_add(&s->jobs, &j->by_stream);
    cw_dp_stream_set_total(s);
}

void cw_dp_job_leave_stream(struct cw_dispatcher *d, struct job *j)
{
    struct stream *s = j->stream;
    if (!s)
        return;
    j->stream = NULL;
    cw_dp_scaling_due(d);
    cw_link_out(&j->by_stream);
    cw_dp_stream_set_total(s);
    if (cw_list_empty(&s->jobs))
        cw_dp_stream_idle(d, s);
    else
        cw_dp_stream_dirty(d, s);
}

void cw_dp_job_free(struct cw_dispatcher *d, struct job *j)
{
    if (cw_dp_job_journalled(j))
        /* if that fails for lack of memory, the job is removed again some time after a restart */
        cw_dp_journal_tried(d, cw_dp_journal_gone(d, JOURNAL_JOB, j->name, strlen(j->name), NULL));
    cw_dp_job_leave_stream(d, j);
    cw_dp_ranks_free(d, j);
    cw_dp_history_free(d, j);
    cw_map_remove(&d->jobs.by_name, &j->node);
    cw_link_out(&j->link);
    d->jobs.n--;
    d->jobs.n_over -= cw_dp_job_over(j);
    j->dead = true;
    cw_dp_job_unref(j);
}

void cw_dp_job_ready(struct cw_dispatcher *d, struct job *j)
{
    struct cw_error err = {0};
    cw_dp_stream_set_total(j->stream);
    DP_RANKS_EACH (r, j)
        if (r->client && r->attach_id != 0)
            cw_dp_rank_begin(d, r);
    if (cw_dp_job_journalled(j))
        return;
    if (j->ranks.n_attached == 0) { /* all clients were refused */
        cw_dp_job_free(d, j);
        return;
    }
    int result = cw_dp_journal_stream(d, j->stream, &err);
    if (result == 0) {
        j->state = JOB_RUNNING;
        result = cw_dp_journal_job(d, j, &(struct action){.kind = ACTION_JOB, .job = j}, &err);
    }
    if (result == 0) {
        j->writing++;
        return;
    }
    cw_dp_job_refuse(d, j, &err);
}

void cw_dp_job_written(struct cw_dispatcher *d, struct job *j)
{
    j->writing--;
    j->durable = true;
    DP_RANKS_EACH (r, j)
        if (r->client && r->attach_id != 0)
            cw_dp_rank_greet(d, r);
}

void cw_dp_job_refuse(struct cw_dispatcher *d, struct job *j, const struct cw_error *why)
{
    DP_RANKS_EACH (r, j)
        if (r->client)
            cw_dp_rank_refuse(d, r, why);
    cw_dp_job_free(d, j);
}

void cw_dp_job_end(struct cw_dispatcher *d, struct job *j, enum job_state state, const struct cw_error *why)
{
    struct job *oldest = d->jobs.n_over >= DP_JOBS_OVER ? job_find_oldest(d, true) : NULL;
    if (oldest)
        cw_dp_job_free(d, oldest);
    j->state = state;
    uint64_t n_lost = cw_dp_job_lost(j);
    if (n_lost > 0)
        cw_dp_log(d, true,
                  "job \"%s\" is %s%s%s; %" PRIu64
                  " ranges were lost with workers, and their batches left out (guarantee at-most-once)",
                  j->name, cw_dp_job_state(j), why ? ": " : "", why ? why->message : "", n_lost);
    else
        cw_dp_log(d, j->lost, "job \"%s\" is %s%s%s", j->name, cw_dp_job_state(j), why ? ": " : "",
                  why ? why->message : "");
    j->since_ns = d->now_ns;
    if (why && !j->why)
        j->why = strdup(why->message);
    d->jobs.n_over++;
    DP_RANKS_EACH (r, j)
        if (r->client && why)
            cw_dp_rank_end(d, r, why);
    cw_dp_job_save(d, j);
    cw_dp_job_leave_stream(d, j);
}

void cw_dp_job_fail_all(struct cw_dispatcher *d, struct stream *s, const struct cw_error *why)
{
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_end(d, j, JOB_FAILED, why);
}

static void job_tick_running(struct cw_dispatcher *d, struct job *j)
{
    if (j->resumed_ns != 0 && !j->missing_over && j->began && d->now_ns - j->resumed_ns >= DP_MISSING) {
        j->missing_over = true;
        j->mark.n = 0;
        cw_dp_stream_dirty(d, j->stream);
    }
    if (j->ranks.n_attached > 0) {
        cw_dp_held_notify(d, j);
    } else if (d->now_ns - j->since_ns >= DP_ABANDONED) {
        cw_dp_log(d, true, "job \"%s\" is removed: it had no client for an hour", j->name);
        cw_dp_job_free(d, j);
    }
}

void cw_dp_job_tick(struct cw_dispatcher *d)
{
    /* from now on an unknown job can't be one whose entry was left out: it would have been removed by now */
    if (d->journal.damaged && d->now_ns - d->start_ns >= DP_LISTED) {
        d->journal.damaged = false;
        cw_dp_journal_tried(d, cw_dp_journal_counters(d, NULL));
    }
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list)
        if (!cw_dp_job_over(j))
            job_tick_running(d, j);
        else if (d->now_ns - j->since_ns >= DP_LISTED)
            cw_dp_job_free(d, j);
}
