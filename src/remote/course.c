/* A course is the plan of the batches of one epoch, from an entry (a position where an iterator can start)
 * on. The mutex must be held in all functions. */
#include "remote/course.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "net/limits.h"
#include "remote/assembly.h"
#include "remote/internal.h"

/* Keys are requested for this many ranges after the one that the plan has reached. */
#define KEYS_AHEAD 16

static struct remote *course_remote(const struct course *c)
{
    return c->view->remote;
}

static const struct cw_compiled *course_compiled(const struct course *c)
{
    return c->view->base.compiled;
}

static struct known_range *course_range(const struct course *c, uint64_t position)
{
    return cw_range_table_find(&course_remote(c)->ranges, c->epoch, position);
}

static bool course_is_recut(const struct course *c)
{
    return c->recut_at != UINT64_MAX;
}

/* ---- batches of this rank ---- */

/* Returns the number of the batch at which rounds begin: in each round every rank gets one batch. */
static uint64_t course_rounds_from(const struct course *c)
{
    const struct view *v = c->view;
    return v->base.compiled->batch_from + (c->epoch == v->rounds_epoch ? v->rounds_from : 0);
}

bool cw_course_owns_batch(const struct course *c, uint64_t g)
{
    const struct view *v = c->view;
    uint64_t from = course_rounds_from(c);
    return v->main && g >= from && g < v->base.compiled->batch_to && (g - from) % v->world_size == v->rank;
}

/* Returns the distance between two batches of the placer, in batch numbers. */
static uint64_t course_stride(const struct course *c)
{
    return course_remote(c)->job.own_ranges ? c->view->world_size : 1;
}

/* Returns the number of the placer's first batch from g on. */
static uint64_t course_next_placed(const struct course *c, uint64_t g)
{
    while (course_remote(c)->job.own_ranges && !cw_course_owns_batch(c, g))
        g++;
    return g;
}

/* Whether this rank's batches are made of the elements of the range that begins there. */
static bool course_owns_range(const struct course *c, uint64_t begin)
{
    const uint64_t place[] = {c->epoch, begin};
    return !course_remote(c)->job.own_ranges ||
           cw_hash64(place, sizeof(place)) % c->view->world_size == c->view->rank;
}

uint64_t cw_course_handed_bit(const struct course *c, uint64_t g)
{
    uint64_t from = course_rounds_from(c), ranks = c->view->world_size, round = (g - from) / ranks,
             now = c->g > from ? (c->g - from) / ranks : 0;
    return round - now < CW_ROUNDS_AHEAD ? UINT64_C(1) << round % CW_ROUNDS_AHEAD : 0;
}

/* Whether batch g is wanted, as far as is known now. */
static bool course_wants(const struct course *c, uint64_t g)
{
    return g >= c->g &&
           (g == c->wanted || (cw_course_owns_batch(c, g) && !(c->handed & cw_course_handed_bit(c, g))));
}

void cw_remote_count_lost(struct remote *r, struct known_range *x)
{
    r->n_lost += x && !x->missed;
    if (x)
        x->missed = true;
}

/* ---- beginning and end ---- */

/* Starts the placer again at a cursor. */
static int course_begin_placer(struct course *c, const struct cw_cursor *from, struct cw_error *err)
{
    const struct cw_compiled *p = course_compiled(c);
    static const uint64_t single[] = {1};
    cw_placer_deinit(&c->placer);
    c->planned = from->g;
    c->placer_g = course_next_placed(c, from->g);
    int r = cw_placer_init(&c->placer, course_remote(c)->job.n_keys, p->n_buckets ? p->bucket_sizes : single,
                           &p->grouping, &from->entry, c->end, err);
    if (r >= 0 && p->n_limits)
        cw_placer_limit(&c->placer, &from->entry, p->n_limits, p->take);
    return r;
}

struct course *cw_course_new(struct view *v, const struct cw_cursor *from)
{
    struct remote *r = v->remote;
    struct course *c = malloc(sizeof(*c));
    if (!c)
        return NULL;
    *c = (struct course){.view = v,
                         .epoch = from->epoch,
                         .end = CW_MIN(v->base.plan.n_positions, CW_EPOCH_POSITIONS),
                         .g = from->g,
                         .handed = from->handed,
                         .planned = from->g,
                         .wanted = UINT64_MAX,
                         .placed = r->job.n_keys > 0,
                         .recut_at = UINT64_MAX};
    int status = cw_entry_init(r->job.compiled, &c->from.entry, NULL);
    if (status >= 0)
        cw_cursor_set(r->job.compiled, &c->from, from);
    if (status < 0 || (c->placed && course_begin_placer(c, &c->from, NULL) < 0)) {
        cw_entry_deinit(&c->from.entry);
        free(c);
        return NULL;
    }
    cw_list_add(&r->courses, &c->link);
    return c;
}

void cw_slot_free(struct remote *r, struct slot *s)
{
    cw_fetches_free(r, &s->fetches);
    r->window.n_outstanding--;
    free(s);
}

void cw_slots_free(struct remote *r, struct slot *slots)
{
    pthread_mutex_unlock(&r->mutex); /* a running call of map_batches for a slot may need the mutex */
    for (struct slot *s = slots; s; s = s->next)
        cw_remote_joined_free(r, s->joined);
    pthread_mutex_lock(&r->mutex);
    while (slots)
        cw_slot_free(r, CW_POP(slots));
}

void cw_course_drop_slots(struct course *c)
{
    cw_slots_free(course_remote(c), CW_STEAL(c->slots));
}

void cw_course_free(struct course *c)
{
    struct remote *r = course_remote(c);
    cw_link_out(&c->link);
    cw_course_drop_slots(c);
    cw_fetches_free(r, &c->keys);
    cw_fetches_free(r, &c->early);
    cw_placer_deinit(&c->placer);
    cw_entry_deinit(&c->from.entry);
    free(c);
}

/* ---- slots ---- */

/* Returns the description of a fetch for a part of a batch. */
static struct fetch part_fetch(const struct course *c, Cachew__What what, const struct cw_placer_part *part)
{
    return (struct fetch){.epoch = c->epoch,
                          .what = what,
                          .key = part->key,
                          .begin = part->begin,
                          .first = part->from,
                          .n = part->n};
}

/* Returns a fetch for a part of a batch: takes an early fetch, or makes a new one. NULL: out of memory. */
static struct fetch *course_fetch(struct course *c, const struct fetch *what)
{
    for (struct fetch **at = &c->early; *at; at = &(*at)->sibling) {
        struct fetch *f = *at;
        if (f->begin == what->begin && f->first == what->first && f->n == what->n && f->key == what->key) {
            *at = CW_STEAL(f->sibling);
            return f;
        }
    }
    return cw_fetch_new(course_remote(c), what);
}

/* Call when a batch is planned: frees the remaining early fetches of its keys if the batch ends a group. The
 * batches of the group did not take them, so they belong to another rank's batch. */
static void course_drop_early(struct course *c, const struct cw_placer_batch *b)
{
    unsigned begun;
    if (cw_placer_group(&c->placer, &begun))
        return;
    for (size_t i = 0; i < b->n_parts; i++)
        for (struct fetch **at = &c->early; *at;)
            if ((*at)->key == b->parts[i].key)
                cw_fetch_drop(course_remote(c), at);
            else
                at = &(*at)->sibling;
}

/* Returns the link to the first slot with a batch number of at least g, or where it would be inserted. */
static struct slot **course_slot_at(struct course *c, uint64_t g)
{
    struct slot **at = &c->slots;
    while (*at && (*at)->g < g)
        at = &(*at)->next;
    return at;
}

int cw_course_add_slot(struct course *c, uint64_t g, const struct cw_placer_batch *b, struct cw_error *err)
{
    struct remote *r = course_remote(c);
    struct slot **at = course_slot_at(c, g), *s = *at;
    if (!s || s->g != g) {
        if (!(s = malloc(sizeof(*s))))
            return cw_error_nomem(err, sizeof(*s), "a batch");
        *s = (struct slot){.next = *at, .g = g};
        *at = s;
        r->window.n_outstanding++;
    }
    /* planned again: the batch is here already, and the consumer's thread may be using it */
    if (cw_slot_here(s))
        return 0;
    cw_fetches_free(r, &s->fetches); /* fetches of an earlier plan */
    const struct cw_compiled *p = course_compiled(c);
    bool counted = !b && !p->sequential;
    uint64_t begin = counted ? g * p->batch_size : 0;
    struct fetch **fetch = &s->fetches;
    const struct cw_placer_part batch = {
        .begin = begin, .from = g, .n = counted ? CW_MIN(p->batch_size, c->end - begin) : 0};
    const struct cw_placer_part *parts = b ? b->parts : &batch;
    size_t n = b ? b->n_parts : 1;
    /* a worker makes a whole batch of rows of one key only as a batch of that key */
    Cachew__What kind = !b                                 ? CACHEW__WHAT__WHAT_BATCHES
                        : n == 1 && parts[0].key == b->key ? CACHEW__WHAT__WHAT_ROWS
                                                           : CACHEW__WHAT__WHAT_PART;
    s->key = b ? b->key : 0;
    for (size_t i = 0; i < n; i++, fetch = &(*fetch)->sibling) {
        const struct fetch what = part_fetch(c, kind, &parts[i]);
        if (!(*fetch = course_fetch(c, &what))) {
            cw_fetches_free(r, &s->fetches); /* a slot has all its fetches or none */
            return cw_error_nomem(err, sizeof(**fetch), "a batch");
        }
    }
    return 0;
}

void cw_course_recut(struct course *c, uint64_t position)
{
    for (struct slot *s = c->slots; s; s = s->next) {
        struct fetch *f = s->fetches;
        if (!f || !f->is_part || cw_slot_here(s) ||
            (f->first + 1) * course_compiled(c)->batch_size <= position)
            continue;
        cw_fetches_free(course_remote(c), &s->fetches);
        /* if memory is short, the batch gets its fetch when it is its turn */
        (void)!cw_course_add_slot(c, s->g, NULL, NULL);
    }
}

/* Whether a slot has a batch or elements that can't exist according to the report of range x. If so, an
 * operator is not deterministic. Elements of a range with other bounds prove nothing: a worker may have a
 * longer range than the dispatcher cut, and its last elements belong to the next range. */
static bool course_slot_contradicts(const struct course *c, const struct slot *s, const struct known_range *x)
{
    for (const struct fetch *f = s->fetches; f; f = f->sibling)
        if (f->begin == x->begin && f->range_end == x->end &&
            (c->placed ? f->first + f->n > x->elements : f->first >= x->n_batches))
            return true;
    return false;
}

/* Call when ranges from position `begin` on have fewer elements than the plan assumed: drops the slots of
 * batches from number g on, which will be planned again. Their fetches of earlier ranges become early
 * fetches. A slot whose fetches have all arrived stays: wherever ranges end, it is the same batch. */
static void course_unplan(struct course *c, uint64_t g, uint64_t begin)
{
    struct remote *r = course_remote(c);
    struct slot **at = course_slot_at(c, g);
    const struct known_range *x = course_range(c, begin);
    c->planned = g;
    while (*at) {
        struct slot *s = *at;
        if (cw_slot_here(s) && !s->fetches->failure) {
            if (x && course_slot_contradicts(c, s, x))
                cw_remote_fail_text(
                    r, CW_E_DATA,
                    "positions from %llu on of epoch %llu gave fewer elements when they were computed again: "
                    "an operator of the pipeline is not deterministic (its result differs from run to run)",
                    (unsigned long long)begin, (unsigned long long)c->epoch);
            at = &s->next;
            continue;
        }
        while (s->fetches && s->fetches->what == CACHEW__WHAT__WHAT_PART && s->fetches->begin < begin) {
            struct fetch *f = s->fetches;
            s->fetches = f->sibling;
            f->sibling = c->early;
            c->early = f;
            c->placer.requested[f->key] = c->placer.seen[f->key];
        }
        cw_slot_free(r, CW_POP(*at));
    }
}

/* ---- keys ---- */

/* Returns the fetch for the keys of the range that begins there; NULL: there is none. */
static struct fetch *course_keys(struct course *c, uint64_t begin)
{
    struct fetch *f = c->keys;
    while (f && f->begin != begin)
        f = f->sibling;
    return f;
}

static int course_want_keys(struct course *c, uint64_t begin, struct cw_error *err)
{
    const struct fetch what = {.epoch = c->epoch, .begin = begin, .what = CACHEW__WHAT__WHAT_KEYS, .n = 1};
    struct fetch **at = &c->keys;
    while (*at)
        at = &(*at)->sibling;
    *at = cw_fetch_new(course_remote(c), &what);
    return *at ? 0 : cw_error_nomem(err, sizeof(**at), "the keys of a range");
}

/* Frees the fetches for keys of ranges that the plan has passed. */
static void course_drop_passed_keys(struct course *c)
{
    while (c->keys && c->keys->begin < cw_placer_plan_position(&c->placer))
        cw_fetch_drop(course_remote(c), &c->keys);
}

/* Frees the fetches for keys of ranges that begin at a position or after it. */
static void course_drop_keys(struct course *c, uint64_t begin)
{
    struct fetch **at = &c->keys;
    while (*at && (*at)->begin < begin)
        at = &(*at)->sibling;
    cw_fetches_free(course_remote(c), at);
}

/* Call when the plan has used all known keys of a range that is not over: requests more keys. They must not
 * be requested earlier: from this request the worker concludes that the rows of all batches before it are
 * requested. */
static void course_request_more_keys(struct course *c)
{
    const struct cw_placer *w = &c->placer;
    struct fetch *f = w->at < w->n_ranges ? course_keys(c, w->ranges[w->at].begin) : NULL;
    if (f && f->state == FETCH_HERE && !f->over)
        cw_fetch_again(course_remote(c), f);
}

/* Passes keys that arrived to the placer. lost: no more will arrive. Returns the same as course_learn_range.
 */
static int course_learn_keys(struct course *c, struct placer_range *range, bool lost, struct cw_error *err)
{
    struct fetch *f = course_keys(c, range->begin);
    if (!f || (!lost && (f->state != FETCH_HERE || (!f->n_keys && !f->over))))
        return 0;
    int r = cw_placer_keys(range, f->keys, f->n_keys, err);
    if (r < 0)
        return r;
    free(CW_STEAL(f->keys));
    f->n_keys = 0;
    if (f->over || lost)
        (void)cw_placer_known(&c->placer, range, 0, f->failure);
    return 1;
}

/* ---- the plan ---- */

/* Returns the number of batches of an epoch, for a counted pipeline. */
static uint64_t course_count_batches(const struct course *c)
{
    const struct cw_compiled *p = course_compiled(c);
    return c->end / p->batch_size + (c->end % p->batch_size && !p->grouping.full_only);
}

bool cw_course_count_sequential(const struct course *c, uint64_t *ret)
{
    const struct known_range *x = c->end ? course_range(c, 0) : NULL;
    *ret = !x ? 0 : x->reported ? x->n_batches : c->planned; /* a lost range has no more batches */
    return !c->end || (x && (x->reported || x->lost));
}

/* Whether all batches of the course are planned. */
static bool course_is_over(const struct course *c)
{
    uint64_t n;
    if (c->placed)
        return cw_placer_over(&c->placer);
    if (!course_compiled(c)->sequential)
        return c->planned >= course_count_batches(c);
    return cw_course_count_sequential(c, &n) && c->planned >= n;
}

/* Passes news about a range to the placer: its keys, or its number of elements. 1: there was news; 0: there
 * was none. */
static int course_learn_range(struct course *c, struct placer_range *range, struct cw_error *err)
{
    struct known_range *x = course_range(c, range->begin);
    bool same = x && x->begin == range->begin && x->end == range->end, lost = same && x->lost;
    if (range->known)
        return 0;
    if (lost && !x->reported && !range->foreign)
        cw_remote_count_lost(course_remote(c), x);
    if (c->placer.n_keys > 1 && !range->foreign && !(same && x->reported && x->elements == 0))
        return course_learn_keys(c, range, lost, err);
    if (!same || (!lost && !x->reported))
        return 0;
    uint64_t elements = range->foreign ? 0 : x->reported ? x->elements : cw_placer_planned(&c->placer, range);
    uint64_t g = c->placer_g + cw_placer_known(&c->placer, range, elements, false) * course_stride(c);
    if (g < c->planned)
        course_unplan(c, g, range->begin);
    return 1;
}

/* Adds the next range to the placer. 1: it was added; 0: no range that begins there is known. */
static int course_add_range(struct course *c, struct cw_error *err)
{
    struct cw_placer *w = &c->placer;
    uint64_t position = cw_placer_position(w);
    const struct known_range *x = course_range(c, position);
    if (x &&
        x->begin != position) /* ranges were cut again since the placer started, or reached this position */
        c->recut_at = CW_MIN(c->recut_at, x->begin);
    if (!x || x->begin != position)
        return 0;
    int r = cw_placer_add(w, x->end, err);
    if (r < 0)
        return r;
    bool foreign = !course_owns_range(c, position);
    w->ranges[w->n_ranges - 1].foreign = foreign;
    if (w->n_keys > 1 && !foreign && !(x->reported && x->elements == 0))
        r = course_want_keys(c, position, err);
    return r < 0 ? r : 1;
}

/* Adds ranges to the placer, and passes news about them. 1: the placer got something new; 0: it did not. */
static int course_feed(struct course *c, struct cw_error *err)
{
    struct cw_placer *w = &c->placer;
    int news = 0, r = 1;
    while (r == 1 && cw_placer_position(w) < c->end && w->n_ranges - w->at <= KEYS_AHEAD) {
        r = course_add_range(c, err);
        news |= r == 1;
    }
    for (size_t i = w->at; r >= 0 && i < w->n_ranges; i++) {
        r = course_learn_range(c, &w->ranges[i], err);
        news |= r == 1;
    }
    return r < 0 ? r : news;
}

/* Plans batch c->planned of a placed pipeline. Returns the same as course_plan_next. */
static int course_plan_placed(struct course *c, const struct cw_placer_batch **ret, struct cw_error *err)
{
    struct cw_placer *w = &c->placer;
    if (course_is_recut(c))
        return 2;
    /* a batch of another rank: assumed to exist until this rank's last batch is planned */
    if (c->planned != course_next_placed(c, c->planned))
        return cw_placer_over(w);
    int r = cw_placer_plan(w, ret, err);
    course_drop_passed_keys(c);
    if (r == 3) /* the range that the plan has reached ends in an error */
        return cw_error_copy(err, course_keys(c, w->ranges[w->at].begin)->failure);
    if (r == 0 && c->planned < c->g) { /* the batch was taken before the plan was made again */
        cw_course_take_placed(c);
        *ret = NULL;
    }
    return r;
}

/* Plans batch c->planned. 0: *ret is set to its parts if they are known, else to NULL; 1 and 2: as in
 * cw_course_plan. */
static int course_plan_next(struct course *c, const struct cw_placer_batch **ret, struct cw_error *err)
{
    return c->placed ? course_plan_placed(c, ret, err) : course_is_over(c);
}

void cw_course_take_placed(struct course *c)
{
    cw_placer_take(&c->placer);
    c->placer_g += course_stride(c);
}

/* Whether this rank may need the elements that are in no planned batch yet. With one key it is known whose
 * batch comes next. */
static bool course_waiting_counts(const struct course *c)
{
    return c->placer.n_keys > 1 || course_remote(c)->job.own_ranges || course_wants(c, c->planned);
}

/* If the plan waits for a range that no worker has: fetches the elements before it that are in no planned
 * batch yet. As long as workers keep these elements, they may lack memory for that range. */
static int course_fetch_early(struct course *c, struct cw_error *err)
{
    const struct known_range *x = course_range(c, cw_placer_needed(&c->placer, false));
    struct cw_placer_part part;
    if (course_is_recut(c) || (x && x->worker) || !course_waiting_counts(c))
        return 0;
    for (unsigned key = 0; key < c->placer.n_keys; key++)
        while (cw_placer_request(&c->placer, key, &part)) {
            const struct fetch what = part_fetch(c, CACHEW__WHAT__WHAT_PART, &part);
            struct fetch *f = cw_fetch_new(course_remote(c), &what);
            if (!f)
                return cw_error_nomem(err, sizeof(*f), "a batch");
            f->sibling = c->early;
            c->early = f;
        }
    return 0;
}

int cw_course_plan(struct course *c, uint64_t g, struct cw_error *err)
{
    int r = c->placed ? course_feed(c, err) : 0;
    uint64_t n;
    if (!c->placed && course_compiled(c)->sequential && cw_course_count_sequential(c, &n) && n < c->planned)
        course_unplan(c, CW_MAX(n, c->g), 0);
    while (r >= 0 && c->planned < g) {
        const struct cw_placer_batch *b = NULL;
        r = course_plan_next(c, &b, err);
        if (r == 2 && c->placed && (r = course_feed(c, err)) == 0) {
            course_request_more_keys(c);
            return (r = course_fetch_early(c, err)) < 0 ? r : 2;
        }
        if (r < 0 || (r == 1 && course_is_over(c)))
            return r;
        if (r == 1) /* the placer got something new */
            continue;
        if (course_wants(c, c->planned))
            r = cw_course_add_slot(c, c->planned, b, err);
        if (b)
            course_drop_early(c, b);
        c->planned++;
    }
    return CW_MIN(r, 0);
}

uint64_t cw_course_position(const struct course *c)
{
    const struct cw_compiled *p = course_compiled(c);
    if (c->placed)
        return cw_placer_needed(&c->placer, course_waiting_counts(c));
    return p->sequential ? 0 : CW_MIN(c->g * p->batch_size, c->end);
}

uint64_t cw_course_plan_position(const struct course *c)
{
    return c->placed ? cw_placer_plan_position(&c->placer) : cw_course_position(c);
}

/* ---- ranges that were cut again ---- */

/* Whether the placer can start at a cursor: the cursor is in the course's epoch, not after its next batch,
 * and a range begins at the cursor's entry (or none is known there). */
static bool course_can_begin(const struct course *c, const struct cw_cursor *from)
{
    const struct known_range *x = course_range(c, from->entry.position);
    return from->epoch == c->epoch && from->g <= c->g && (!x || x->begin == from->entry.position);
}

/* Starts the placer again: where it is, or else at an earlier position where a range begins. If there is no
 * such position, c->recut_at stays set until the dispatcher names other ranges. */
static void course_restart_placer(struct course *c)
{
    struct remote *r = course_remote(c);
    struct cw_cursor here = {.epoch = c->epoch, .g = CW_MIN(c->placer_g, c->g)}, now = r->from,
                     attached = r->attached_from;
    struct cw_error err = {0};
    const struct cw_cursor *from[] = {&here, &now, &attached, &c->from};
    /* in a course, batch numbers include the batches that `skip` leaves out */
    now.g += now.g ? r->job.compiled->batch_from : 0;
    attached.g += attached.g ? r->job.compiled->batch_from : 0;
    if (cw_entry_init(r->job.compiled, &here.entry, &err) < 0)
        return; /* the next call tries again */
    cw_placer_entry(&c->placer, &here.entry);
    struct slot *slots = NULL;
    for (size_t i = 0; i < CW_COUNT_OF(from) && course_is_recut(c); i++)
        if (course_can_begin(c, from[i]) && (c->view->main || i == 0 || i == 3)) {
            cw_fetches_free(r, &c->keys);
            cw_fetches_free(r, &c->early);
            slots = slots ? slots : CW_STEAL(c->slots);
            if (course_begin_placer(c, from[i], &err) >= 0)
                c->recut_at = UINT64_MAX;
        }
    cw_entry_deinit(&here.entry);
    cw_slots_free(r, slots); /* must be last, because it releases the mutex */
}

bool cw_course_shorten(struct course *c, uint64_t begin, uint64_t end)
{
    if (cw_placer_position(&c->placer) <= begin)
        return true;
    if (!cw_placer_shorten(&c->placer, begin, end))
        return false;
    course_drop_keys(c, end);
    return true;
}

void cw_course_settle(struct course *c)
{
    if (!course_is_recut(c))
        return;
    if (!c->placer.n_ranges || !cw_placer_cut(&c->placer, c->recut_at)) {
        course_restart_placer(c);
        return;
    }
    uint64_t begin = cw_placer_position(&c->placer);
    course_drop_keys(c, begin);
    for (struct fetch **early = &c->early; *early;)
        if ((*early)->begin >= begin)
            cw_fetch_drop(course_remote(c), early);
        else
            early = &(*early)->sibling;
    c->recut_at = UINT64_MAX;
    c->planned = c->placer_g + c->placer.n_batches * course_stride(c);
    cw_slots_free(course_remote(c), CW_STEAL(*course_slot_at(c, c->planned)));
}
