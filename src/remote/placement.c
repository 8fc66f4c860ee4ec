/* Handles what the dispatcher and workers say about ranges: updates the table of ranges, and tells courses
 * and fetches what changed. The mutex must be held in all functions. */
#include "remote/placement.h"

#include "base/crash.h"
#include "remote/internal.h"

/* Call when a range begin to end - 1 was cut that overlaps ranges with other bounds. Marks the courses whose
 * plan contains such ranges: later batches may change. In a counted pipeline only the division of batches
 * into parts changes. known: such ranges were in the table. */
static void placement_recut(struct remote *r, uint64_t epoch, uint64_t begin, uint64_t end, bool known)
{
    CW_LIST_EACH_OF (c, struct course, link, &r->courses) {
        if (c->epoch == epoch && !c->placed && known)
            cw_course_recut(c, begin);
        uint64_t at = c->placed && c->epoch == epoch ? cw_placer_differs(&c->placer, begin, end) : UINT64_MAX;
        c->recut_at = CW_MIN(c->recut_at, at);
    }
}

/* Handles that a worker ended range x early, at `end`. False: a course may depend on elements after that. */
static bool placement_shorten(struct remote *r, struct known_range *x, uint64_t end)
{
    bool all = true;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        all &= !c->placed || c->epoch != x->epoch || cw_course_shorten(c, x->begin, end);
    if (!all)
        return false;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        if (!c->placed && c->epoch == x->epoch)
            cw_course_recut(c, end);
    x->end = end;
    return true;
}

/* Sets *ret to the range with these bounds. If it is new, it replaces the ranges that it overlaps. what: for
 * the error message. */
static int placement_range(struct remote *r, uint64_t epoch, uint64_t begin, uint64_t end, const char *what,
                           struct known_range **ret, struct cw_error *err)
{
    if (begin >= end)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher sent an empty range of epoch %llu, from position %llu to %llu: "
                            "expected at least one position" CW_OTHER_VERSION,
                            (unsigned long long)epoch, (unsigned long long)begin, (unsigned long long)end);
    struct range_table *t = &r->ranges;
    struct known_range *x = cw_range_table_find(t, epoch, begin);
    bool here = x && x->begin == begin, early = here && !x->reported && end < x->end;
    *ret = x;
    if ((early && placement_shorten(r, x, end)) || (here && x->end == end))
        return 0;
    size_t n, at = cw_range_table_overlap(t, epoch, begin, end, &n);
    placement_recut(r, epoch, n ? CW_MIN(begin, t->list[at].begin) : begin, end, n > 0);
    *ret = cw_range_table_replace(t, at, n, epoch, begin, end);
    return *ret ? 0 : cw_error_nomem(err, t->n * sizeof(**ret), what);
}

int cw_placement_set(struct remote *r, const Cachew__Placement *m, struct cw_error *err)
{
    struct known_range *x;
    int status = placement_range(r, m->epoch, m->begin, m->end, "ranges", &x, err);
    if (status < 0)
        return status;
    x->lost = m->lost && r->job.options.at_most_once;
    if (x->worker != m->worker) {
        x->worker = m->worker;
        x->not_before_ns = 0;
        x->n_not_here = 0;
    }
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list) {
        if (f->epoch != m->epoch || f->begin < m->begin || f->begin >= m->end)
            continue;
        f->lost = x->lost && f->state != FETCH_HERE;
        if (f->state == FETCH_REQUESTED &&
            (!f->link || f->link->worker != m->worker || f->requested_begin != m->begin))
            f->state = FETCH_WANTED;
    }
    pthread_cond_broadcast(&r->changed);
    return 0;
}

/* Whether a report is used. A worker's report is used if the known range has the same bounds; a report of the
 * dispatcher if the range ends after the cursor that was sent last. */
static bool placement_report_counts(const struct remote *r, const Cachew__Report *m, bool by_worker)
{
    const struct known_range *x = cw_range_table_find(&r->ranges, m->epoch, m->begin);
    if (by_worker)
        return x && x->begin == m->begin && x->end == m->end;
    return cw_position_before(r->dispatcher.cursor, (struct epoch_position){m->epoch, m->end});
}

int cw_placement_report(struct remote *r, const Cachew__Report *m, bool by_worker, struct cw_error *err)
{
    struct known_range *x;
    uint64_t elements = 0;
    if (m->begin < m->end && !placement_report_counts(r, m, by_worker))
        return 0;
    int status = placement_range(r, m->epoch, m->begin, m->end, "the report of a range", &x, err);
    if (status < 0)
        return status;
    for (size_t k = 0; k < m->n_elements; k++)
        elements += m->elements[k];
    if (x->reported && (x->n_batches != m->n_batches || x->elements != elements)) {
        /* an error of the connection would not help: the next one would bring the same report */
        cw_remote_fail_text(
            r, CW_E_DATA,
            "positions %llu to %llu of epoch %llu gave other elements when they were computed again: an "
            "operator of the pipeline is not deterministic (its result differs from run to run)",
            (unsigned long long)m->begin, (unsigned long long)m->end - 1, (unsigned long long)m->epoch);
        return 0;
    }
    x->reported = true;
    x->n_batches = m->n_batches;
    x->elements = elements;
    pthread_cond_broadcast(&r->changed);
    return 0;
}

/* ---- the cursor ---- */

static struct epoch_position position_min(struct epoch_position a, struct epoch_position b)
{
    return cw_position_before(a, b) ? a : b;
}

struct epoch_position cw_placement_cursor(const struct remote *r)
{
    struct epoch_position at = {.epoch = r->from.epoch, .position = r->from.entry.position};
    if (r->job.compiled->sequential)
        at.position = 0;
    /* The iterator's course, if there is one, knows better than the cursor's entry from which position it
     * needs ranges. */
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        if (c->placed && c->view->main && c->epoch == at.epoch)
            at.position = UINT64_MAX;
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        at = position_min((struct epoch_position){c->epoch, cw_course_position(c)}, at);
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->state != FETCH_HERE && !cw_mutated("part"))
            at = position_min((struct epoch_position){f->epoch, f->begin}, at);
    return at;
}

bool cw_placement_cursor_moved(const struct remote *r)
{
    struct epoch_position at = cw_placement_cursor(r);
    const struct known_range *x = cw_range_table_find(&r->ranges, at.epoch, at.position);
    return cw_position_before(r->dispatcher.cursor,
                              (struct epoch_position){at.epoch, x ? x->begin : at.position});
}
