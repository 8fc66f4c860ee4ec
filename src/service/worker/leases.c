/* All leases of a stream: adds and frees them on command, serves their requests, and divides the runner's
 * memory among them. The stream's thread only; called by stream.c. */
#include "service/worker/leases.h"

#include "base/clock.h"
#include "base/crash.h"
#include "service/worker/batches.h"
#include "service/worker/rows.h"

/* ---- commands ---- */

/* Returns the number of batches of a counted range, including batches of which the range has only a part. */
static uint64_t leases_n_batches(const struct cw_leases *s, uint64_t begin, uint64_t end)
{
    const struct cw_compiled *c = s->sequence->compiled;
    bool cut = c->grouping.full_only && end == s->sequence->n_positions;
    uint64_t upto = (end + (cut ? 0 : c->batch_size - 1)) / c->batch_size;
    return s->kind == CW_RANGES_COUNTED ? upto - CW_MIN(begin / c->batch_size, upto) : 0;
}

void cw_leases_add(struct cw_leases *s, const struct cw_command *c)
{
    struct cw_lease **at = cw_lease_find(s, c->epoch, c->begin), *l = *at;
    uint64_t batch_size = s->sequence->compiled->batch_size;
    if (l && l->epoch == c->epoch && l->begin == c->begin)
        return; /* the dispatcher sent it again */
    l = malloc(sizeof(*l));
    uint64_t *elements = calloc((size_t)3 * s->n_keys + 1, sizeof(*elements));
    if (!l || !elements) {
        free(l);
        free(elements);
        cw_leases_out_of_memory(s);
        return;
    }
    *l = (struct cw_lease){.next = *at,
                           .epoch = c->epoch,
                           .begin = c->begin,
                           .end = c->end,
                           .number = c->lease,
                           .leased_ns = cw_now_ns(),
                           .whole = c->whole,
                           .lowest = UINT64_MAX,
                           .n_batches = leases_n_batches(s, c->begin, c->end),
                           .elements = elements,
                           .sent_upto = elements + s->n_keys,
                           .dropped = elements + 2 * (size_t)s->n_keys};
    cw_list_init(&l->requests);
    *at = l;
    cw_lease_open(s, l, s->kind == CW_RANGES_COUNTED ? c->from / batch_size - c->begin / batch_size : 0);
}

void cw_leases_revoke(struct cw_leases *s, uint64_t epoch, uint64_t begin, uint64_t end)
{
    struct cw_lease **at = cw_lease_find(s, epoch, begin);
    while (*at && (*at)->epoch == epoch &&
           (*at)->end <= end) /* ranges do not overlap: no later one ends before `end` */
        cw_lease_free(s, CW_POP(*at));
}

/* Checks that a request fits the stream. If not, the client has another pipeline. */
static int leases_check_request(const struct cw_leases *s, const struct cw_request *r, struct cw_error *err)
{
    bool rows = cw_request_for_rows(r);
    if (s->kind != CW_RANGES_PLACED ? r->what != CACHEW__WHAT__WHAT_BATCHES
                                    : !rows && r->what != CACHEW__WHAT__WHAT_KEYS)
        return cw_error_set(err, CW_E_SERVICE,
                            "the client requested %s, but this pipeline gives %s" CW_OTHER_VERSION,
                            rows                                    ? "elements"
                            : r->what == CACHEW__WHAT__WHAT_BATCHES ? "whole batches"
                            : r->what == CACHEW__WHAT__WHAT_KEYS    ? "keys of elements"
                                                                    : "an unknown kind of data",
                            s->kind == CW_RANGES_PLACED ? "elements by key, of which the client makes batches"
                                                        : "whole batches");
    if (rows && r->key >= s->n_keys)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the client requested elements of batch key %u: expected a key less than %u" CW_OTHER_VERSION,
            r->key, s->n_keys);
    if (rows && r->end - r->at > cw_key_size(s->sequence->compiled, r->key))
        return cw_error_set(err, CW_E_SERVICE,
                            "the client requested %llu elements of batch key %u: expected at most %llu, a "
                            "full batch" CW_OTHER_VERSION,
                            (unsigned long long)(r->end - r->at), r->key,
                            (unsigned long long)cw_key_size(s->sequence->compiled, r->key));
    return 0;
}

void cw_leases_request(struct cw_leases *s, struct cw_request *r)
{
    struct cw_lease *l = *cw_lease_find(s, r->epoch, r->begin);
    struct cw_error why = {0};
    if (!l || l->epoch != r->epoch || l->begin != r->begin ||
        (cw_mutated("not-here") && l->number % 4 == 0)) {
        cw_lease_reply(s, r, CW_ANSWER_NOT_HERE, NULL);
        return;
    }
    if (leases_check_request(s, r, &why) < 0) {
        cw_lease_reply(s, r, CW_ANSWER_RANGE_FAILED, &why);
        return;
    }
    cw_list_add(&l->requests, &r->link);
    l->lowest = CW_MIN(l->lowest, r->at);
}

void cw_leases_forget_peer(struct cw_leases *s, const struct cw_peer *p)
{
    for (struct cw_lease *l = s->list; l; l = l->next)
        CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
            if (r->peer == p)
                cw_lease_done(s, r);
    if (s->runner)
        cw_runner_relent(s->runner);
}

/* ---- memory ---- */

size_t cw_leases_runner_memory(size_t memory)
{
    return memory - memory / CW_KEPT_PART;
}

void cw_leases_set_memory(struct cw_leases *s, size_t memory)
{
    size_t runner_memory = cw_leases_runner_memory(memory);
    bool over = cw_runner_memory_used(s->runner) > runner_memory; /* even a single range may use that much */
    for (struct cw_lease *l = over ? s->list : NULL; l; l = l->next)
        if (l->range)
            cw_lease_close(s, l);
    s->memory = memory;
    cw_runner_set_memory(s->runner, runner_memory);
}

/* Returns whether the lease's range was closed to free memory, before all of it was computed. */
static bool lease_gave_way(const struct cw_leases *s, const struct cw_lease *l)
{
    return !l->range && !l->computed && !l->failed &&
           (s->kind != CW_RANGES_COUNTED || l->next_batch < l->n_batches);
}

/* Frees memory when the runner can't compute more for the first range that has a request. Returns whether
 * anything was done. It tries these steps in order: send clients the keys so far; drop the parts of requests
 * for later ranges; close the last open range before the request's range (such ranges have no requests);
 * close later ranges, the last one first; drop rows of the request's range that no request names. If no range
 * has a request, nothing is closed, and a range that was closed for memory is opened again. Of the range's
 * requests, the first one whose rows are computed gets the memory, because sending its rows frees more. */
static bool leases_make_room(struct cw_leases *s)
{
    struct cw_lease *gives = NULL, *l = s->list, *aside = NULL;
    for (; l && !cw_lease_first_request(l); l = l->next) {
        gives = l->range ? l : gives;
        aside = lease_gave_way(s, l) ? l : aside;
    }
    if (!l) {
        if (aside)
            cw_lease_open(s, aside, aside->next_batch);
        return false;
    }
    if (!cw_runner_stuck(s->runner))
        return false;
    if (cw_rows_send_keys(s) || s->failed)
        return !s->failed;
    struct cw_request *first = cw_rows_first_ready(s, l);
    first = first ? first : cw_lease_first_request(l);
    if (cw_rows_give_up_part(s, l, first))
        return true;
    bool before = gives != NULL;
    for (struct cw_lease *later = l->next; later && !before; later = later->next)
        gives = later->range ? later : gives;
    if (!gives && (!s->short_of || s->short_of == first))
        return cw_rows_give_up(s, l);
    if (gives)
        cw_lease_close(s, gives);
    if (!before)
        s->short_of = first;
    return true;
}

/* ---- serving ---- */

/* If the first unfinished range takes longer than range_ns, ends it after the positions that are begun
 * already. The dispatcher leases the rest again, perhaps to another worker. Nothing is ended while the runner
 * waits for clients: then it has no work that another worker could do. */
static void leases_shorten(struct cw_leases *s)
{
    struct cw_lease *l = s->list;
    while (l && (l->computed || l->failed || !l->range))
        l = l->next;
    if (!l || l->whole || s->kind == CW_RANGES_SEQUENTIAL ||
        cw_now_ns() - CW_MAX(l->leased_ns, s->completed_ns) < s->range_ns || cw_runner_stuck(s->runner))
        return;
    uint64_t end = cw_runner_shorten(s->runner, l->range);
    if (end == 0)
        return;
    l->end = end;
    l->n_keys = 0; /* keys from an earlier computation of the range may lie after its new end */
    l->n_batches = leases_n_batches(s, l->begin, end);
}

bool cw_leases_serve(struct cw_leases *s)
{
    struct cw_error fatal = {0};
    bool any = false;
    if (s->short_of && !cw_peer_room(s->short_of->peer))
        s->short_of = NULL;
    leases_shorten(s);
    for (struct cw_lease *l = s->list, *next; l && !s->failed; l = next) {
        next = l->next;
        /* if the stream fails here, all leases are freed */
        any |= s->kind == CW_RANGES_PLACED ? cw_rows_serve(s, l) : cw_batches_serve(s, l);
    }
    if (!s->failed && cw_runner_fatal(s->runner, &fatal) < 0)
        cw_leases_fail(s, &fatal);
    return !s->failed && (any || leases_make_room(s));
}
