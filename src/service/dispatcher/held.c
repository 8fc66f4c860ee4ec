/* Finds the reason why a job makes no progress. */
#include "service/dispatcher/held.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/state.h"

/* Writes why no worker at all accepts ranges; nothing if some worker does. */
static void held_by_workers(const struct cw_dispatcher *d, char *buf, size_t size)
{
    size_t n_draining = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list) {
        if (cw_dp_worker_able(w))
            return;
        n_draining += w->peer && w->leaving;
    }
    if (n_draining > 0)
        snprintf(buf, size, "no worker accepts work: %zu %s being drained", n_draining,
                 n_draining == 1 ? "is" : "are");
    else
        snprintf(buf, size, "no worker is connected");
    CW_LIST_EACH_OF (p, const struct pool, link, &d->scaler.pools)
        if (*p->info->why && n_draining == 0)
            snprintf(buf, size, "no worker is connected, and pool \"%s\" can't start one: %.500s",
                     p->info->name, p->info->why);
}

/* Writes why no assignment of the stream accepts ranges. */
static void held_by_assignments(const struct cw_dispatcher *d, const struct stream *s, char *buf, size_t size)
{
    const struct assignment *unfit = NULL;
    size_t n_preparing = 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        n_preparing += t->state == ASSIGNMENT_ASKED;
        if (t->state == ASSIGNMENT_UNFIT && (!unfit || t->worker->id < unfit->worker->id))
            unfit = t;
    }
    if (n_preparing > 0)
        snprintf(buf, size, "a worker is opening the data");
    else if (s->wants)
        snprintf(buf, size,
                 "the workers run as many pipelines as their --max-streams allows, or as fit into their "
                 "--memory: this job begins when other jobs end");
    else if (unfit)
        snprintf(buf, size, "worker %" PRIu64 " can't compute this job: %.600s", unfit->worker->id,
                 unfit->why ? unfit->why : "out of memory");
    else
        held_by_workers(d, buf, size);
}

void cw_dp_held_why(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size)
{
    const struct stream *s = j->stream;
    *buf = '\0';
    if (d->journal.retry_ns != 0)
        snprintf(buf, size,
                 "the dispatcher can't write its journal, and nothing is acknowledged until it can: %.600s",
                 d->journal.error.message);
    else if (j->paused)
        snprintf(buf, size, "the job is paused (`cachew jobs --resume` lets it go on)");
    else if (s->assignments.heap.n == 0 && !cw_dp_stream_grace(d, s))
        held_by_assignments(d, s, buf, size);
    cw_text_clean(buf, size);
}

void cw_dp_held_notify(struct cw_dispatcher *d, struct job *j)
{
    char why[800];
    if (!j->stream)
        return;
    cw_dp_held_why(d, j, why, sizeof(why));
    uint64_t hash = *why ? cw_hash64(why, strlen(why)) | 1 : 0;
    Cachew__Held held = {CW_MESSAGE(held), .why = why, .paused = j->paused};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_HELD, .held = &held};
    DP_RANKS_EACH (r, j) {
        if (!r->client || r->held == hash)
            continue;
        r->held = hash;
        cw_dp_peer_send(d, r->client, &m);
    }
}
