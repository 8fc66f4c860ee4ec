/* Grants: the loop thread's copy of a stream's leases (lease.h has the copy of the stream's thread). A stream
 * (streams.c) owns its grants. The loop's thread only. */
#include "service/worker/grants.h"

#include "base/macro.h"
#include "dataset/sequence.h"

/* Most granted ranges of a stream: more than any dispatcher leases (cw_streams_capacity). A grant stays until
 * it is revoked, which happens when all clients have passed its range. */
#define MAX_GRANTS 65536

static struct cw_grant **grants_at(struct cw_grants *g, uint64_t epoch, uint64_t begin)
{
    struct cw_grant **at = &g->list;
    while (*at && ((*at)->epoch < epoch || ((*at)->epoch == epoch && (*at)->begin < begin)))
        at = &(*at)->next;
    return at;
}

struct cw_grant *cw_grants_find(struct cw_grants *g, uint64_t epoch, uint64_t begin)
{
    struct cw_grant *x = *grants_at(g, epoch, begin);
    return x && x->epoch == epoch && x->begin == begin ? x : NULL;
}

/* Checks that a range may be granted: it is a range of this stream, and no part of it is granted already. */
static int grants_check(const struct cw_grants *g, const Cachew__Range *m, uint64_t n, bool whole,
                        struct cw_error *err)
{
    const char *expected = NULL;
    if (m->begin >= m->end || m->end > n)
        expected = "at least one position, within the epoch";
    else if (whole && (m->begin || (m->end != n &&
                                    n < CW_ENDLESS))) /* the dispatcher assumes an end of an endless epoch */
        expected = "the whole epoch, because this pipeline's epochs can't be divided";
    for (const struct cw_grant *x = g->list; x && !expected; x = x->next)
        if (x->epoch == m->epoch && x->begin < m->end && m->begin < x->end)
            expected = "only positions that are not leased yet";
    if (expected)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher leased positions %llu to %llu of an epoch of %llu positions: "
                            "expected %s" CW_OTHER_VERSION,
                            (unsigned long long)m->begin, (unsigned long long)m->end, (unsigned long long)n,
                            expected);
    if (g->n == MAX_GRANTS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the dispatcher leased more than %d ranges of a pipeline to this worker" CW_OTHER_VERSION,
            MAX_GRANTS);
    return 0;
}

int cw_grants_add(struct cw_grants *g, const Cachew__Range *m, uint64_t n_positions, bool whole,
                  struct cw_error *err)
{
    struct cw_grant **at = grants_at(g, m->epoch, m->begin), *x = *at;
    if (x && x->epoch == m->epoch && x->begin == m->begin && (x->end == m->end || x->number == m->lease))
        return 1;
    int r = grants_check(g, m, n_positions, whole, err);
    if (r < 0)
        return r;
    if (!(x = malloc(sizeof(*x))))
        return cw_error_nomem(err, sizeof(*x), "a lease");
    *x = (struct cw_grant){
        .next = *at, .epoch = m->epoch, .begin = m->begin, .end = m->end, .number = m->lease};
    *at = x;
    g->n++;
    return 0;
}

/* Unlinks and frees the grant *at. */
static void grants_remove(struct cw_grants *g, struct cw_grant **at)
{
    struct cw_grant *x = CW_POP(*at);
    g->n--;
    cw_answer_free(x->report);
    free(x);
}

void cw_grants_revoke(struct cw_grants *g, const Cachew__Range *m)
{
    struct cw_grant **at = grants_at(g, m->epoch, m->begin);
    while (*at && (*at)->epoch == m->epoch && (*at)->end <= m->end)
        grants_remove(g, at);
}

void cw_grants_clear(struct cw_grants *g)
{
    while (g->list)
        grants_remove(g, &g->list);
}
