/* The ranks of a job, and the answers to their clients' Attach requests. */
#include "service/dispatcher/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "net/conn.h"
#include "service/dispatcher/notify.h"
#include "service/dispatcher/state.h"

int cw_dp_rank_get(struct cw_dispatcher *d, struct job *j, uint32_t number, struct rank **ret,
                   struct cw_error *err)
{
    size_t i = CW_FIRST(k, 0, j->ranks.n, j->ranks.items[k]->number >= number);
    if (i < j->ranks.n && j->ranks.items[i]->number == number) {
        *ret = j->ranks.items[i];
        return 0;
    }
    if (d->jobs.n_ranks >= DP_RANKS)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher has %" PRIu32 " ranks already, the most that it accepts",
                            DP_RANKS);
    if (CW_ARRAY_ROOM(j->ranks.items, j->ranks.room, j->ranks.n + 1, "the ranks of a job", err) < 0)
        return CW_E_MEMORY;
    struct rank *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a rank");
    *r = (struct rank){.job = j, .number = number};
    memmove(j->ranks.items + i + 1, j->ranks.items + i, (j->ranks.n - i) * sizeof(struct rank *));
    j->ranks.items[i] = r;
    j->ranks.n++;
    j->mark.n = 0;
    d->jobs.n_ranks++;
    *ret = r;
    return 0;
}

void cw_dp_ranks_free(struct cw_dispatcher *d, struct job *j)
{
    DP_RANKS_EACH (r, j) {
        if (r->client)
            r->client->rank = NULL;
        free(r);
    }
    free(j->ranks.items);
    d->jobs.n_ranks -= j->ranks.n;
    j->ranks = (struct job_ranks){0};
}

void cw_dp_rank_detach(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    if (!r->client)
        return;
    r->client->rank = NULL;
    r->client = NULL;
    r->attach_id = 0;
    r->greeted = false;
    if (--j->ranks.n_attached == 0)
        j->since_ns = d->now_ns;
    j->left = r->leaves;
    if (j->stream)
        cw_dp_stream_dirty(d, j->stream);
}

int cw_dp_rank_position(const struct job *j, const Cachew__Place *from, uint64_t snapshot, uint64_t *ret,
                        struct cw_error *err)
{
    const struct stream *s = j->stream;
    int result = cw_dp_stream_position(s, from, ret, err);
    if (result < 0)
        return result;
    if (*ret > cw_dp_stream_epochs(s, j->terms.epochs))
        return cw_error_set(err, CW_E_OPTION,
                            "the client's position, in epoch %" PRIu64
                            ", lies after the end of the job's %" PRIu64 " epochs",
                            from->epoch, j->terms.epochs);
    if (snapshot != 0 && snapshot != s->data->plan->snapshot)
        return cw_error_set(
            err, CW_E_STATE,
            "the state was saved with other data: the fingerprint of its data (snapshot) is %016" PRIx64
            ", that of the job's data %016" PRIx64,
            snapshot, s->data->plan->snapshot);
    return 0;
}

void cw_dp_rank_begin(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    struct stream *s = j->stream;
    struct cw_error err = {0};
    uint64_t pos;
    if (cw_dp_rank_position(j, &r->from, r->snapshot, &pos, &err) < 0) {
        cw_dp_rank_refuse(d, r, &err);
        return;
    }
    if (!j->began)
        j->first_from = pos;
    j->began = r->began = true;
    r->pos = r->began_at = r->next_report = pos;
    j->mark.n = 0;
    cw_dp_lease_split(d, s, pos);
    cw_dp_stream_dirty(d, s);
}

void cw_dp_rank_refuse(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why)
{
    cw_dp_peer_fail(d, r->client, r->attach_id, why);
    cw_dp_rank_detach(d, r);
}

void cw_dp_rank_greet(struct cw_dispatcher *d, struct rank *r)
{
    struct stream *s = r->job->stream;
    Cachew__Attached a = {CW_MESSAGE(attached), .stream = {16, s->id}, .plan = s->data->plan,
                          .took_over = r->took_over};
    cw_dp_peer_send(d, r->client,
                    &(Cachew__Envelope){CW_MESSAGE(envelope), .re = r->attach_id,
                                        .of_case = CACHEW__ENVELOPE__OF_ATTACHED, .attached = &a});
    r->attach_id = 0;
    r->took_over[0] = '\0';
    r->greeted = true;
    cw_dp_notify_rank(d, r);
}

void cw_dp_rank_end(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why)
{
    Cachew__Failure f;
    cw_failure_init(&f, why);
    Cachew__Ended e = {CW_MESSAGE(ended), .why = &f};
    cw_dp_peer_send(
        d, r->client,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_ENDED, .ended = &e});
    if (r->attach_id != 0)
        cw_dp_peer_fail(d, r->client, r->attach_id, why);
    cw_dp_rank_detach(d, r);
}
