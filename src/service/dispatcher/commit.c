/* Commits the journal and runs the actions of durable entries. */
#include "service/dispatcher/commit.h"

#include <stdlib.h>

#include "service/dispatcher/job_life.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_life.h"

void cw_dp_commit(struct cw_dispatcher *d)
{
    struct journal *j = &d->journal;
    if (j->in_flight || j->retry_ns > d->now_ns)
        return;
    if (j->retry_ns == 0) { /* otherwise the failed batch is committed again */
        if (j->pending.batch.n == 0 && j->pending.n == 0)
            return;
        struct journal_entries empty = j->flight;
        j->flight = j->pending;
        j->pending = empty;
    }
    j->in_flight = true;
    j->commit_began_ns = d->now_ns;
    d->io.commit(d->io.user, &j->flight.batch);
}

static void commit_action_unref(struct action *a)
{
    cw_dp_peer_unref(a->peer);
    cw_dp_stream_unref(a->stream);
    cw_dp_job_unref(a->job);
}

/* Runs the action of a durable entry, unless the range or job that it is about is gone. */
static void commit_action_run(struct cw_dispatcher *d, struct action *a)
{
    struct range *x = a->stream && a->stream->state != STREAM_DEAD
                          ? cw_dp_range_find(&a->stream->ranges, a->range.begin)
                          : NULL;
    if (x && x->number != a->range.number) /* another range was cut there since */
        x = NULL;
    switch (a->kind) {
    case ACTION_DONE:
        cw_dp_peer_done(d, a->peer, a->re);
        break;
    case ACTION_REGISTERED:
        cw_dp_worker_registered(d, a->peer, a->re);
        break;
    case ACTION_REPORT:
        if (x && (x->flags & RANGE_REPORTED)) {
            x->flags |= RANGE_DURABLE;
            cw_dp_stream_reports(d, a->stream);
        }
        break;
    case ACTION_JOB:
        if (!a->job->dead)
            cw_dp_job_written(d, a->job);
        break;
    case ACTION_LEASE:
        if (x)
            cw_dp_lease_written(d, a->stream, x);
        break;
    }
}

void cw_dispatcher_committed(struct cw_dispatcher *d, const struct cw_error *why, uint64_t now_ns)
{
    struct journal *j = &d->journal;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    j->in_flight = false;
    if (why) {
        j->n_failures++;
        if (j->retry_ns == 0)
            cw_dp_log(d, true,
                      "the journal can't be written: %s; the dispatcher acknowledges nothing, so jobs may "
                      "stop, until the journal can be written",
                      why->message);
        j->error = *why;
        j->retry_ns = d->now_ns + DP_S;
        return;
    }
    if (j->retry_ns != 0)
        cw_dp_log(d, false, "the journal can be written again");
    j->retry_ns = 0;
    j->n_commits++;
    j->commit_ns += d->now_ns - j->commit_began_ns;
    for (size_t i = 0; i < j->flight.n; i++) {
        commit_action_run(d, &j->flight.actions[i]);
        commit_action_unref(&j->flight.actions[i]);
    }
    j->flight.n = 0;
    cw_store_batch_clear(&j->flight.batch);
}

static void commit_entries_deinit(struct journal_entries *e)
{
    for (size_t i = 0; i < e->n; i++)
        commit_action_unref(&e->actions[i]);
    free(e->actions);
    cw_store_batch_deinit(&e->batch);
    *e = (struct journal_entries){0};
}

void cw_dp_commit_deinit(struct cw_dispatcher *d)
{
    commit_entries_deinit(&d->journal.pending);
    commit_entries_deinit(&d->journal.flight);
}
