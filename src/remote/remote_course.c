/* Courses: the batches of an epoch. They are planned from what is known of ranges, asked for, and taken in
 * order; in order any also those of this rank that are ready before their turn. The mutex is held throughout,
 * except where a comment says otherwise. */
#include <stdlib.h>
#include <string.h>

#include "remote/remote_impl.h"
#include "net/limits.h"

#include "base/clock.h"
#include "base/hash.h"

/* The client asks for the keys of so many ranges beyond the one that the plan is in. */
#define KEYS_AHEAD 16

static struct remote *remote_of(const struct course *c)
{
    return c->view->remote;
}

static bool is_recut(const struct course *c)
{
    return c->recut_at != UINT64_MAX;
}

/* ---- whose batches are whose ---- */

/* The batch at which rounds of ranks begin. */
static uint64_t rounds_from(const struct course *c)
{
    const struct view *v = c->view;
    return v->base.compiled->batch_from + (c->epoch == v->rounds_epoch ? v->rounds_from : 0);
}

/* Whether batch g is one of this rank's, in the iterator's course. */
static bool is_own(const struct course *c, uint64_t g)
{
    const struct view *v = c->view;
    uint64_t from = rounds_from(c);
    return v->main && g >= from && g < v->base.compiled->batch_to && (g - from) % v->world_size == v->rank;
}

/* How many batches further the placer's next one is. */
static uint64_t stride(const struct course *c)
{
    return remote_of(c)->own_ranges ? c->view->world_size : 1;
}

/* The first batch of the placer from g on. */
static uint64_t placer_from(const struct course *c, uint64_t g)
{
    while (remote_of(c)->own_ranges && !is_own(c, g))
        g++;
    return g;
}

/* Whether this rank's batches are made of the elements of a range. Others' have none for it. */
static bool owns_range(const struct course *c, uint64_t begin)
{
    const uint64_t place[] = {c->epoch, begin};
    return !remote_of(c)->own_ranges ||
           cw_hash64(place, sizeof(place)) % c->view->world_size == c->view->rank;
}

/* ---- beginning and end ---- */

int cw_cursor_init(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from,
                   struct cw_error *err)
{
    int r = cw_entry_init(c, &to->entry, err);
    if (r >= 0)
        cw_cursor_set(c, to, from);
    return r;
}

static int course_place(struct course *c, const struct cw_cursor *from, struct cw_error *err)
{
    const struct cw_compiled *p = remote_of(c)->compiled;
    static const uint64_t single[] = {1};
    cw_placer_deinit(&c->placer);
    c->planned = from->g;
    c->placer_g = placer_from(c, from->g);
    int r = cw_placer_init(&c->placer, remote_of(c)->n_keys, p->n_buckets ? p->bucket_sizes : single,
                           p->drop_remainder, &from->entry, c->end, err);
    if (r >= 0 && p->n_limits)
        cw_placer_limit(&c->placer, &from->entry, p->n_limits, p->take);
    return r;
}

struct course *cw_course_new(struct view *v, const struct cw_cursor *from)
{
    struct remote *r = v->remote;
    struct course *c = malloc(sizeof(*c)), **at = &r->courses;
    if (!c)
        return NULL;
    *c = (struct course){.view = v,
                         .epoch = from->epoch,
                         .end = CW_MIN(v->base.plan.n_positions, CW_EPOCH_POSITIONS),
                         .g = from->g,
                         .handed = from->handed,
                         .planned = from->g,
                         .wanted = UINT64_MAX,
                         .places = r->n_keys > 0,
                         .recut_at = UINT64_MAX};
    if (cw_cursor_init(r->compiled, &c->from, from, NULL) < 0 ||
        (c->places && course_place(c, &c->from, NULL) < 0)) {
        cw_entry_deinit(&c->from.entry);
        free(c);
        return NULL;
    }
    while (*at)
        at = &(*at)->next;
    *at = c;
    return c;
}

bool cw_slot_here(const struct slot *s)
{
    const struct piece *p = s->pieces;
    while (p && p->state == HERE)
        p = p->more;
    return s->pieces && !p;
}

static void slots_free(struct remote *r, struct slot *slots)
{
    pthread_mutex_unlock(&r->mutex); /* a call of map_batches for a slot may need it */
    for (struct slot *s = slots; s; s = s->next)
        cw_whole_free(&s->whole);
    pthread_mutex_lock(&r->mutex);
    while (slots) {
        struct slot *s = slots;
        slots = s->next;
        cw_pieces_free(r, &s->pieces);
        r->n_outstanding--;
        free(s);
    }
}

void cw_course_drop_slots(struct course *c)
{
    slots_free(remote_of(c), CW_STEAL(c->slots));
}

struct course *cw_course_free(struct course *c)
{
    struct remote *r = remote_of(c);
    struct course **at = &r->courses;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    cw_course_drop_slots(c);
    cw_pieces_free(r, &c->keys);
    cw_pieces_free(r, &c->early);
    cw_placer_deinit(&c->placer);
    cw_entry_deinit(&c->from.entry);
    free(c);
    return NULL;
}

/* ---- slots ---- */

/* The bit of c->handed for batch g of this rank; 0: it is too far ahead to be taken before its turn. */
static uint64_t handed_bit(const struct course *c, uint64_t g)
{
    uint64_t from = rounds_from(c), ranks = c->view->world_size, round = (g - from) / ranks,
             now = c->g > from ? (c->g - from) / ranks : 0;
    return round - now < CW_ROUNDS_AHEAD ? UINT64_C(1) << round % CW_ROUNDS_AHEAD : 0;
}

/* Whether batch g will be wanted, as far as is known. */
static bool is_wanted(const struct course *c, uint64_t g)
{
    return g >= c->g && (g == c->wanted || (is_own(c, g) && !(c->handed & handed_bit(c, g))));
}

/* What to ask for to get a part of a batch. */
static struct piece part_piece(const struct course *c, Cachew__What what, unsigned key,
                               const struct cw_placer_part *part)
{
    return (struct piece){
        .epoch = c->epoch, .what = what, .key = key, .begin = part->begin, .first = part->from, .n = part->n};
}

/* The piece of a batch with these rows: one that was asked for early, or a new one. */
static struct piece *piece_of(struct course *c, const struct piece *what)
{
    for (struct piece **at = &c->early; *at; at = &(*at)->more) {
        struct piece *p = *at;
        if (p->begin == what->begin && p->first == what->first && p->n == what->n && p->key == what->key) {
            *at = p->more;
            p->more = NULL;
            return p;
        }
    }
    return cw_piece_new(remote_of(c), what);
}

/* Frees the early pieces of a key once the batch that they were asked for is planned: pieces that the batch
 * did not take are another rank's. */
static void drop_early(struct course *c, unsigned key)
{
    for (struct piece **at = &c->early; *at;)
        if ((*at)->key == key)
            cw_piece_drop(remote_of(c), at);
        else
            at = &(*at)->more;
}

/* Makes a slot for batch g, with the pieces of the batch, which are then asked for. b: its parts, as the
 * placer planned them; NULL: batches are asked for by number. */
static int slot_make(struct course *c, uint64_t g, const struct cw_placer_batch *b, struct cw_error *err)
{
    struct remote *r = remote_of(c);
    struct slot **at = &c->slots, *s;
    while (*at && (*at)->g < g)
        at = &(*at)->next;
    if (!*at || (*at)->g != g) {
        if (!(s = malloc(sizeof(*s))))
            return cw_error_nomem(err, sizeof(*s), "a batch");
        *s = (struct slot){.next = *at, .g = g};
        *at = s;
        r->n_outstanding++;
    }
    s = *at;
    /* planned again: what is here is the batch, and may be in use by the consumer's thread */
    if (cw_slot_here(s))
        return 0;
    cw_pieces_free(r, &s->pieces); /* pieces of an earlier plan */
    bool counted = !b && !r->compiled->sequential;
    uint64_t size = r->compiled->batch_size, begin = counted ? g * size : 0;
    struct piece **piece = &s->pieces;
    const struct cw_placer_part batch = {
        .begin = begin, .from = g, .n = counted ? CW_MIN(size, c->end - begin) : 0};
    const struct cw_placer_part *parts = b ? b->parts : &batch;
    size_t n = b ? b->n_parts : 1;
    Cachew__What kind = !b       ? CACHEW__WHAT__WHAT_BATCHES
                        : n == 1 ? CACHEW__WHAT__WHAT_ROWS
                                 : CACHEW__WHAT__WHAT_PART;
    s->key = b ? b->key : 0;
    for (size_t i = 0; i < n; i++, piece = &(*piece)->more) {
        const struct piece what = part_piece(c, kind, s->key, &parts[i]);
        if (!(*piece = piece_of(c, &what))) {
            cw_pieces_free(r, &s->pieces); /* a slot has all its pieces or none */
            return cw_error_nomem(err, sizeof(**piece), "a batch");
        }
    }
    return 0;
}

void cw_course_recut(struct course *c, uint64_t position)
{
    for (struct slot *s = c->slots; s; s = s->next) {
        struct piece *p = s->pieces;
        uint64_t g = p ? p->first : 0;
        if (!p || !p->part || cw_slot_here(s) || (g + 1) * remote_of(c)->compiled->batch_size <= position)
            continue;
        cw_pieces_free(remote_of(c), &s->pieces);
        /* where there is no memory, the batch gets its piece when its turn comes */
        (void)slot_make(c, s->g, NULL, NULL);
    }
}

/* Drops the slots of batches from number g on, which will be planned anew: ranges from `begin` on have fewer
 * elements than the plan took them to have. Pieces of earlier ranges are kept as early pieces. A slot whose
 * pieces are all here proves that the elements existed: then an operator is not deterministic, and the run
 * fails. Where the range was ended early, they are elements of the next one, and the slot stays. */
static void unplan(struct course *c, uint64_t g, uint64_t begin)
{
    struct remote *r = remote_of(c);
    struct slot **at = &c->slots;
    const struct known_range *x = cw_remote_range(r, c->epoch, begin);
    c->planned = g;
    while (*at && (*at)->g < g)
        at = &(*at)->next;
    while (*at) {
        struct slot *s = *at;
        if (cw_slot_here(s) && !s->pieces->failed) {
            if (!x || !x->ended_early) { /* else it is the same batch, wherever ranges end */
                struct cw_error why = {0};
                (void)cw_error_set(&why, CW_E_DATA,
                                   "positions from %llu on of epoch %llu gave fewer elements when they were "
                                   "run again: an operator of the pipeline is not deterministic",
                                   (unsigned long long)begin, (unsigned long long)c->epoch);
                cw_remote_fail(r, &why);
            }
            at = &s->next;
            continue;
        }
        while (s->pieces && s->pieces->what == CACHEW__WHAT__WHAT_PART && s->pieces->begin < begin) {
            struct piece *p = s->pieces;
            s->pieces = p->more;
            p->more = c->early;
            c->early = p;
            c->placer.asked[p->key] = c->placer.seen[p->key];
        }
        cw_pieces_free(r, &s->pieces);
        *at = s->next;
        r->n_outstanding--;
        free(s);
    }
}

/* ---- the plan ---- */

static uint64_t n_counted(const struct course *c)
{
    const struct cw_compiled *p = remote_of(c)->compiled;
    return c->end / p->batch_size + (c->end % p->batch_size && !p->drop_remainder);
}

/* Sets *ret to the number of batches of an epoch that is one range. False: the number is not known yet. */
static bool n_sequential(const struct course *c, uint64_t *ret)
{
    const struct known_range *x = c->end ? cw_remote_range(remote_of(c), c->epoch, 0) : NULL;
    *ret = !x ? 0 : x->reported ? x->n_batches : c->planned; /* one that is lost has no more */
    return !c->end || (x && (x->reported || x->lost));
}

static struct piece *keys_of(struct course *c, uint64_t begin)
{
    struct piece *p = c->keys;
    while (p && p->begin != begin)
        p = p->more;
    return p;
}

/* Asks for the keys of a range's elements. */
static int want_keys(struct course *c, uint64_t begin, struct cw_error *err)
{
    const struct piece what = {.epoch = c->epoch, .begin = begin, .what = CACHEW__WHAT__WHAT_KEYS, .n = 1};
    struct piece **at = &c->keys;
    while (*at)
        at = &(*at)->more;
    *at = cw_piece_new(remote_of(c), &what);
    return *at ? 0 : cw_error_nomem(err, sizeof(**at), "the keys of a range");
}

/* Counts a range that is lost, of which this rank did not get all that is its. */
static void range_missed(struct remote *r, struct known_range *x)
{
    r->n_lost += x && !x->missed;
    if (x)
        x->missed = true;
}

/* Passes the keys that came of a range to the placer. lost: no more will come. As range_known. */
static int keys_known(struct course *c, struct placer_range *range, bool lost, struct cw_error *err)
{
    struct piece *p = keys_of(c, range->begin);
    if (!p || (!lost && (p->state != HERE || (!p->n_keys && !p->over))))
        return 0;
    int r = cw_placer_keys(range, p->keys, p->n_keys, err);
    if (r < 0)
        return r;
    free(CW_STEAL(p->keys));
    p->n_keys = 0;
    if (p->over || lost)
        (void)cw_placer_known(&c->placer, range, 0, p->failed);
    return 1;
}

/* Passes what became known of a range to the placer. 1: it was passed; 0: nothing is new. */
static int range_known(struct course *c, struct placer_range *range, struct cw_error *err)
{
    struct known_range *x = cw_remote_range(remote_of(c), c->epoch, range->begin);
    bool same = x && x->begin == range->begin && x->end == range->end, lost = same && x->lost;
    if (range->known)
        return 0;
    if (lost && !x->reported && !range->foreign)
        range_missed(remote_of(c), x);
    if (c->placer.n_keys > 1 && !range->foreign && !(same && x->reported && x->elements == 0))
        return keys_known(c, range, lost, err);
    if (!same || (!lost && !x->reported))
        return 0;
    size_t left = cw_placer_known(&c->placer, range,
                                  range->foreign ? 0
                                  : x->reported  ? x->elements
                                                 : cw_placer_planned(&c->placer, range),
                                  false);
    uint64_t g = c->placer_g + left * stride(c);
    if (g < c->planned)
        unplan(c, g, range->begin);
    return 1;
}

/* Adds ranges to the placer, and the elements of ranges that became known. 1: the placer got something
 * new. */
static int feed(struct course *c, struct cw_error *err)
{
    struct cw_placer *w = &c->placer;
    uint64_t position;
    int news = 0;
    while ((position = cw_placer_position(w)) < c->end && w->n_ranges - w->at <= KEYS_AHEAD) {
        const struct known_range *x = cw_remote_range(remote_of(c), c->epoch, position);
        int r = x && x->begin == position ? cw_placer_add(w, x->end, err) : 1;
        if (r == 0)
            w->ranges[w->n_ranges - 1].foreign = !owns_range(c, position);
        if (x && x->begin != position) /* cut anew since the placer began or came here */
            c->recut_at = CW_MIN(c->recut_at, x->begin);
        if (r == 0 && w->n_keys > 1 && !w->ranges[w->n_ranges - 1].foreign)
            r = x->reported && x->elements == 0 ? 0 : want_keys(c, position, err);
        if (r < 0)
            return r;
        if (r > 0)
            break;
        news = 1;
    }
    for (size_t i = w->at; i < w->n_ranges; i++) {
        int r = range_known(c, &w->ranges[i], err);
        if (r < 0)
            return r;
        news |= r;
    }
    return news;
}

/* Sets *err to the error that the range at the plan's place ends in. */
static int range_failed(struct course *c, struct cw_error *err)
{
    return cw_error_copy(err, keys_of(c, c->placer.ranges[c->placer.at].begin)->failed);
}

/* Frees the keys of ranges that the plan has passed: no later batch needs them. */
static void drop_keys(struct course *c)
{
    const struct cw_placer *w = &c->placer;
    while (c->keys && c->keys->begin < (w->at < w->n_ranges ? w->ranges[w->at].begin : cw_placer_position(w)))
        cw_piece_drop(remote_of(c), &c->keys);
}

/* The plan has come to the last key that is known of a range which is not over: now its worker may know that
 * the rows of all batches before are asked for, and gets asked for more keys. */
static void ask_keys(struct course *c)
{
    const struct cw_placer *w = &c->placer;
    struct piece *p = w->at < w->n_ranges ? keys_of(c, w->ranges[w->at].begin) : NULL;
    if (p && p->state == HERE && !p->over)
        cw_piece_again(remote_of(c), p);
}

/* Plans batch c->planned. As cw_course_plan. */
static int plan_placed(struct course *c, const struct cw_placer_batch **ret, struct cw_error *err)
{
    struct cw_placer *w = &c->placer;
    if (is_recut(c))
        return 2;
    /* another rank's; there is no end of them before this rank's last */
    if (c->planned != placer_from(c, c->planned))
        return cw_placer_over(w);
    int r = cw_placer_plan(w, ret, err);
    drop_keys(c);
    if (r == 3)
        return range_failed(c, err);
    if (r == 0 && c->planned < c->g) { /* the batch was taken before */
        cw_placer_take(w);
        c->placer_g += stride(c);
        *ret = NULL;
    }
    return r;
}

/* As cw_course_plan. */
static int plan_next(struct course *c, const struct cw_placer_batch **ret, struct cw_error *err)
{
    return c->places ? plan_placed(c, ret, err) : cw_course_over(c);
}

/* Whether this rank may need elements that wait for a batch: with one key, it is known which rank's batch
 * comes next. */
static bool waiting_counts(const struct course *c)
{
    return c->placer.n_keys > 1 || remote_of(c)->own_ranges || is_wanted(c, c->planned);
}

/* Asks for elements that wait for a batch, if the plan waits for a range that no worker has. Workers may lack
 * memory for the range as long as they keep these elements. */
static int ask_early(struct course *c, struct cw_error *err)
{
    const struct known_range *x = cw_remote_range(remote_of(c), c->epoch,
                                                  cw_placer_needed(&c->placer, false));
    struct cw_placer_part part;
    if (is_recut(c) || (x && x->worker) || !waiting_counts(c))
        return 0;
    for (unsigned key = 0; key < c->placer.n_keys; key++)
        while (cw_placer_ask(&c->placer, key, &part)) {
            const struct piece what = part_piece(c, CACHEW__WHAT__WHAT_PART, key, &part);
            struct piece *p = cw_piece_new(remote_of(c), &what);
            if (!p)
                return cw_error_nomem(err, sizeof(*p), "a batch");
            p->more = c->early;
            c->early = p;
        }
    return 0;
}

int cw_course_plan(struct course *c, uint64_t g, struct cw_error *err)
{
    int r = c->places ? feed(c, err) : 0;
    uint64_t n;
    if (!c->places && remote_of(c)->compiled->sequential && n_sequential(c, &n) && n < c->planned)
        unplan(c, CW_MAX(n, c->g), 0);
    while (r >= 0 && c->planned < g) {
        const struct cw_placer_batch *b = NULL;
        r = plan_next(c, &b, err);
        if (r == 2 && c->places && (r = feed(c, err)) == 0) {
            ask_keys(c);
            return (r = ask_early(c, err)) < 0 ? r : 2;
        }
        if (r < 0 || (r == 1 && cw_course_over(c)))
            return r;
        if (r == 1) /* the placer got something new */
            continue;
        if (is_wanted(c, c->planned))
            r = slot_make(c, c->planned, b, err);
        if (b)
            drop_early(c, b->key);
        c->planned++;
    }
    return CW_MIN(r, 0);
}

bool cw_course_over(const struct course *c)
{
    uint64_t n;
    if (c->places)
        return cw_placer_over(&c->placer);
    if (!remote_of(c)->compiled->sequential)
        return c->planned >= n_counted(c);
    return n_sequential(c, &n) && c->planned >= n;
}

uint64_t cw_course_position(const struct course *c)
{
    const struct cw_compiled *p = remote_of(c)->compiled;
    if (c->places)
        return cw_placer_needed(&c->placer, waiting_counts(c));
    return p->sequential ? 0 : CW_MIN(c->g * p->batch_size, c->end);
}

/* ---- ranges that were cut again ---- */

/* Whether the placer can begin at a cursor. The cursor must be of the course's epoch, and not behind its next
 * batch. A range must begin at the cursor's entry, as far as is known. */
static bool is_start(const struct course *c, const struct cw_cursor *from)
{
    const struct known_range *x = cw_remote_range(remote_of(c), c->epoch, from->entry.position);
    return from->epoch == c->epoch && from->g <= c->g && (!x || x->begin == from->entry.position);
}

/* Begins the placer again: at its present place, or else at an earlier place where a range begins. If there
 * is no such place, c->recut_at stays set, until the dispatcher names other ranges. */
static void placer_again(struct course *c)
{
    struct remote *r = remote_of(c);
    struct cw_cursor here = {.epoch = c->epoch, .g = CW_MIN(c->placer_g, c->g)}, now = r->from,
                     attached = r->attached_from;
    struct cw_error err = {0};
    const struct cw_cursor *from[] = {&here, &now, &attached, &c->from};
    now.g += now.g ? r->compiled->batch_from : 0; /* courses count the batches that a skip leaves out */
    attached.g += attached.g ? r->compiled->batch_from : 0;
    if (cw_entry_init(r->compiled, &here.entry, &err) < 0)
        return; /* the next call tries again */
    cw_placer_entry(&c->placer, &here.entry);
    struct slot *slots = NULL;
    for (size_t i = 0; i < CW_COUNT_OF(from) && is_recut(c); i++)
        if (is_start(c, from[i]) && (c->view->main || i == 0 || i == 3)) {
            cw_pieces_free(r, &c->keys);
            cw_pieces_free(r, &c->early);
            slots = slots ? slots : CW_STEAL(c->slots);
            if (course_place(c, from[i], &err) >= 0)
                c->recut_at = UINT64_MAX;
        }
    cw_entry_deinit(&here.entry);
    slots_free(r, slots); /* last: it gives the mutex up */
}

/* Drops the keys of ranges from a position on. */
static void keys_drop(struct course *c, uint64_t begin)
{
    struct piece **at = &c->keys;
    while (*at && (*at)->begin < begin)
        at = &(*at)->more;
    cw_pieces_free(remote_of(c), at);
}

bool cw_course_shorten(struct course *c, uint64_t begin, uint64_t end)
{
    if (cw_placer_position(&c->placer) <= begin)
        return true;
    if (!cw_placer_shorten(&c->placer, begin, end))
        return false;
    keys_drop(c, end);
    return true;
}

/* Drops the plan of ranges that were cut again. */
static void course_settle(struct course *c)
{
    struct slot **at = &c->slots;
    if (!is_recut(c))
        return;
    if (!c->placer.n_ranges || !cw_placer_cut(&c->placer, c->recut_at)) {
        placer_again(c);
        return;
    }
    uint64_t begin = cw_placer_position(&c->placer);
    keys_drop(c, begin);
    for (struct piece **early = &c->early; *early;)
        if ((*early)->begin >= begin)
            cw_piece_drop(remote_of(c), early);
        else
            early = &(*early)->more;
    c->recut_at = UINT64_MAX;
    c->planned = c->placer_g + c->placer.n_batches * stride(c);
    while (*at && (*at)->g < c->planned)
        at = &(*at)->next;
    slots_free(remote_of(c), CW_STEAL(*at));
}

/* ---- batches are taken ---- */

/* Moves the course past the next batch, which was taken: a->a.after becomes the entry behind it. */
static int advance(struct course *c, struct remote_assembly *a, struct cw_error *err)
{
    bool sequential = !c->places && remote_of(c)->compiled->sequential && !remote_of(c)->compiled->counted;
    if (c->places && c->g == c->placer_g) {
        cw_placer_take(&c->placer);
        c->placer_g += stride(c);
    }
    if (is_own(c, c->g))
        c->handed &= ~handed_bit(c, c->g);
    c->g++;
    while (c->slots && c->slots->g < c->g) { /* batches that were not wanted after all */
        struct slot *s = c->slots;
        c->slots = s->next;
        s->next = NULL;
        slots_free(remote_of(c), s);
    }
    if (!c->places && !sequential)
        return 0;
    if (!(a->a.after = cw_entry_new(remote_of(c)->compiled)))
        return cw_error_nomem(err, sizeof(*a->a.after), "a place in an epoch");
    if (c->places) /* of a sequential pipeline only the number of the batch is known */
        cw_placer_entry(&c->placer, a->a.after);
    return 0;
}

/* The error that a piece of a batch came as; NULL: none did. */
static const struct cw_error *slot_failed(const struct slot *s)
{
    const struct piece *p = s->pieces;
    while (p && !p->failed)
        p = p->more;
    return p ? p->failed : NULL;
}

/* Whether a batch need not be waited for: all of it is here, and operators on batches were applied, or
 * failed. */
static bool slot_ready(const struct course *c, const struct slot *s)
{
    bool joined = remote_of(c)->compiled->n_batch_ops && cw_slot_here(s) && !s->pieces->batch;
    return cw_slot_here(s) &&
           (!joined || slot_failed(s) ||
            (s->whole && (s->whole->error || s->whole->n_applied == remote_of(c)->compiled->n_batch_ops)));
}

/* Whether something of a batch is lost. The range of what is lost is counted. */
static bool slot_lost(const struct course *c, const struct slot *s)
{
    struct remote *r = remote_of(c);
    const struct piece *p = s->pieces;
    while (p && !p->lost)
        p = p->more;
    if (p)
        range_missed(r, cw_remote_range(r, p->epoch, p->begin));
    return p;
}

/* Removes a slot, whose pieces the caller has. */
static void slot_remove(struct course *c, struct slot **at)
{
    struct remote *r = remote_of(c);
    struct slot *s = *at;
    *at = s->next;
    free(s);
    size_t window = cw_remote_window(r), n = --r->n_outstanding;
    if (n <= window / 2 && (window < 8 || n % 4 == 0)) /* several requests at a time */
        cw_remote_wake(r);
}

/* Moves the pieces of a batch, which are all here, from its slot to a. */
static int take_slot(struct course *c, struct slot **at, struct remote_assembly *a, struct cw_error *err)
{
    struct remote *r = remote_of(c);
    struct slot *s = *at;
    const struct cw_error *failed = slot_failed(s);
    if (failed)
        return cw_error_copy(err, failed);
    struct piece *first = s->pieces;
    for (const struct piece *p = r->options.trace ? first : NULL; p; p = p->more) {
        struct cw_traced what = {r->stream, p->epoch, p->asked_begin, cw_piece_asked(r, p), p->key};
        if (p == first)
            cw_trace_span(r->options.trace, "batch", &what, p->asked_ns, cw_now_ns());
        cw_trace_span(r->options.trace, "fetch", &what, p->asked_ns, p->came_ns);
    }
    cw_remote_waited(r);
    a->a.bucket = s->key;
    a->whole = s->whole;
    if (first->batch) {
        a->a.batch = &CW_STEAL(first->batch)->b;
        a->a.quarantined = CW_STEAL(first->quarantined);
        cw_pieces_free(r, &s->pieces);
    } else {
        a->pieces = s->pieces;
    }
    slot_remove(c, at);
    return 0;
}

/* Order any: takes the first batch behind number c->g that is ready. 2: none is. */
static int take_early(struct course *c, struct remote_assembly *a, struct cw_error *err)
{
    for (struct slot **at = &c->slots; *at && handed_bit(c, (*at)->g); at = &(*at)->next)
        if ((*at)->g > c->g && slot_ready(c, *at) && !slot_failed(*at)) {
            c->handed |= handed_bit(c, (*at)->g);
            a->a.n_before = (*at)->g - c->g;
            return take_slot(c, at, a, err);
        }
    return 2;
}

/* Whether batch c->g, which is planned and another rank's, exists. 0: it does; 2: not known yet; < 0: its
 * range failed. */
static int find_place(const struct course *c, struct cw_error *err)
{
    uint64_t n;
    if (c->places ? c->g != c->placer_g || cw_placer_certain(&c->placer)
                  : !remote_of(c)->compiled->sequential || n_sequential(c, &n))
        return 0;
    for (const struct slot *s = c->slots; s; s = s->next)
        if (s->g >= c->g && cw_slot_here(s)) /* so batch c->g exists, unless its range ended in an error */
            return s->pieces->failed ? cw_error_copy(err, s->pieces->failed) : 0;
    return 2;
}

/* Takes batch c->g into a; ahead > 0: only passes its place. 0: taken, or passed; 2: the batch is not
 * here. */
static int take_next(struct course *c, uint64_t ahead, struct remote_assembly *a, struct cw_error *err)
{
    struct slot *s = c->slots;
    int r = 0;
    if (ahead > 0) {
        r = find_place(c, err);
        if (r == 2 && !s) /* nothing behind it is wanted that would show whether it exists */
            r = slot_make(c, c->g, c->placer.batches, err) < 0 ? err->status : 2;
    } else if (!s || s->g != c->g || !s->pieces) {
        /* the batch was not known to be wanted, or a slot lacked memory */
        r = slot_make(c, c->g, c->placer.batches, err);
    }
    if (ahead == 0 && r == 0) {
        a->a.lost = !cw_slot_here(c->slots) && slot_lost(c, c->slots);
        r = cw_slot_here(c->slots) ? take_slot(c, &c->slots, a, err) : a->a.lost ? 0 : 2;
    }
    if (a->a.lost) {
        cw_pieces_free(remote_of(c), &c->slots->pieces);
        slot_remove(c, &c->slots);
    }
    return r == 0 ? advance(c, a, err) : r;
}

/* The place of the range that the next batch waits for. */
static struct place waits_at(const struct course *c)
{
    const struct piece *p = c->slots && c->slots->g == c->g ? c->slots->pieces : NULL;
    while (p && p->state == HERE)
        p = p->more;
    return (struct place){.epoch = c->epoch,
                          .position = p ? p->begin
                                      : c->places && c->placer.at < c->placer.n_ranges
                                          ? c->placer.ranges[c->placer.at].begin
                                      : c->places ? cw_placer_position(&c->placer)
                                                  : cw_course_position(c)};
}

int cw_course_next(struct course *c, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err)
{
    struct remote *r = remote_of(c);
    struct remote_assembly *a = cw_remote_assembly_new();
    int status = a ? 2 : cw_error_nomem(err, sizeof(*a), "a batch");
    pthread_mutex_lock(&r->mutex);
    cw_remote_meanwhile(r);
    while (status == 2) {
        course_settle(c);
        if (!c->view->main)
            c->wanted = c->g + ahead;
        status = cw_course_plan(c, c->g + ahead + 1, err);
        bool any = r->any && c->view->main, planned = c->planned > c->g;
        bool turn = !any || ahead || !c->slots || c->slots->g != c->g || !cw_slot_here(c->slots) ||
                    slot_ready(c, c->slots);
        if (planned)
            status = turn ? take_next(c, ahead, a, err) : 2;
        if (status == 2 && any)
            status = take_early(c, a, err);
        if (status == 2 && !turn)
            status = take_next(c, ahead, a, err);
        if (status != 2)
            break;
        if (r->unasked)
            cw_remote_wake(r);
        const struct place at = waits_at(c);
        status = cw_remote_wait(r, deadline_ns, &at, "a batch", err);
        status = status == 0 ? 2 : status;
        cw_remote_meanwhile(r);
    }
    pthread_mutex_unlock(&r->mutex);
    if (status == 0)
        *ret = &a->a;
    else if (a)
        cw_remote_drop(&c->view->base, &a->a);
    return status;
}
