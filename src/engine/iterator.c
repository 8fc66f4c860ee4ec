#include "engine/iterator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

#define STATE_VERSION 1
#define PLAN_VERSION 1 /* of docs/semantics.md: a change there that changes a plan raises it */
/* Positions in splits opened ahead; in between these counts of splits. */
#define AHEAD_POSITIONS 8192
#define AHEAD_MIN 4
#define AHEAD_MAX 256
#define MAX_LISTED 10000 /* records that failed; beyond, they are only counted */

/* Where the sequence of batches stands: the next one. */
struct place {
    uint64_t epoch, g, split, batch;
};

/* Remnants of one key: the elements from split `from` on, but for the first `skip` of that split, are in no batch yet. */
struct unused {
    uint64_t from, skip;
};

enum phase { PHASE_BATCHES, PHASE_JOIN, PHASE_FLUSH };

struct cw_iterator {
    const struct cw_sequence *sequence;
    const struct cw_compiled *compiled;
    struct cw_iterator_options options;
    struct cw_runner *runner;
    unsigned n_keys;                  /* of remnants: buckets; 0: they are never joined */

    struct cw_split *open[AHEAD_MAX]; /* ring of splits opened, oldest first */
    unsigned n_open, first_open, ahead;
    uint64_t open_epoch, open_split;  /* the next one to open */

    struct place at;                  /* the next batch, whatever its rank */
    struct unused *unused;            /* by key */
    enum phase phase;                 /* of the oldest split */
    uint64_t discard;                 /* batches of split at.split that come again but were handed out before */
    uint64_t seen;                    /* batches of this epoch before take and skip of batches */
    unsigned key;                     /* whose remnants are joined or flushed now */
    struct cw_assembly **joining;     /* by key: elements that wait for a batch */
    struct cw_assembly *remnant;      /* of `key`, joined up to: */
    uint64_t remnant_at;

    struct place round;               /* the state: the round after the one handed out last */
    struct unused *round_unused;
    struct cw_batch *mine;            /* of the present round */
    struct cw_assembly *pending;      /* pulled, but not finished when a wait ended */

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

/* ---- state ---- */

json_t *cw_iterator_state(const struct cw_iterator *it)
{
    char fingerprint[33], snapshot[17];
    cw_hash128_print(it->compiled->pipeline->fingerprint, fingerprint);
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->sequence->snapshot);
    const struct place *p = &it->round;
    json_t *state = json_pack("{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "cachew_state", STATE_VERSION, "plan", PLAN_VERSION, "pipeline",
                              fingerprint, "snapshot", snapshot, "seed", (json_int_t)it->options.seed, "epoch", (json_int_t)p->epoch, "g",
                              (json_int_t)p->g, "split", (json_int_t)p->split, "batch", (json_int_t)p->batch);
    struct cw_text t = {0};
    for (unsigned k = 0; k < it->n_keys; k++) { /* "key:splits back:skip", where it is not the usual "from at.split, none skipped" */
        const struct unused *u = &it->round_unused[k];
        if (u->from != p->split || u->skip)
            cw_text_add(&t, "%s%u:%" PRIi64 ":%" PRIu64, t.size ? " " : "", k, (int64_t)(p->split - u->from), u->skip);
    }
    if (t.failed || (t.size && json_object_set_new(state, "remnants", json_string(t.data)) < 0)) {
        json_decref(state);
        state = NULL;
    }
    cw_text_deinit(&t);
    return state;
}

static int state_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err)
{
    const json_t *v = json_object_get(state, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        _cleanup_free_ char *shown = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        cw_error_attribute(err, key, shown ? shown : "missing", "an integer, at least 0");
        return cw_error_set(err, CW_E_STATE, "state: %s is %.60s: expected an integer of at least 0", key, shown ? shown : "missing");
    }
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int state_text(const json_t *state, const char *key, const char *expected, const char *what, struct cw_error *err)
{
    const char *have = json_string_value(json_object_get(state, key));
    if (have && strcmp(have, expected) == 0)
        return 0;
    cw_error_attribute(err, key, have ? have : "missing", expected);
    return cw_error_set(err, CW_E_STATE, "state: %s is %.60s, this run has %s: the state belongs to another %s", key, have ? have : "missing", expected,
                        what);
}

static int state_remnants(struct cw_iterator *it, const char *text, struct cw_error *err)
{
    const char *at = text;
    while (at && *at) {
        unsigned key;
        int64_t back;
        uint64_t skip;
        int used = 0;
        if (sscanf(at, "%u:%" SCNi64 ":%" SCNu64 "%n", &key, &back, &skip, &used) < 3 || key >= it->n_keys || back < -1 ||
            (back > 0 && (uint64_t)back > it->at.split))
            return cw_error_set(err, CW_E_STATE, "state: remnants is \"%.60s\": expected \"key:splits:elements\" for keys below %u", text, it->n_keys);
        it->unused[key] = (struct unused){.from = it->at.split - (uint64_t)back, .skip = skip};
        at += used;
        at += strspn(at, " ");
    }
    return 0;
}

static int load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    char fingerprint[33], snapshot[17];
    uint64_t version, plan, seed, n_splits = CW_MAX(it->sequence->n_splits, 1);
    int r;
    if (!json_is_object(state))
        return cw_error_set(err, CW_E_STATE, "state: expected a JSON object");
    if ((r = state_u64(state, "cachew_state", &version, err)) < 0 || (r = state_u64(state, "plan", &plan, err)) < 0)
        return r;
    if (version != STATE_VERSION || plan != PLAN_VERSION)
        return cw_error_set(err, CW_E_STATE, "state: version %" PRIu64 " of plan %" PRIu64 ": expected version %d of plan %d; another cachew wrote it",
                            version, plan, STATE_VERSION, PLAN_VERSION);
    cw_hash128_print(it->compiled->pipeline->fingerprint, fingerprint);
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->sequence->snapshot);
    if ((r = state_text(state, "pipeline", fingerprint, "pipeline", err)) < 0 ||
        (r = state_text(state, "snapshot", snapshot, "data set (files were added, removed or changed)", err)) < 0 ||
        (r = state_u64(state, "seed", &seed, err)) < 0 || (r = state_u64(state, "epoch", &it->at.epoch, err)) < 0 ||
        (r = state_u64(state, "g", &it->at.g, err)) < 0 || (r = state_u64(state, "split", &it->at.split, err)) < 0 ||
        (r = state_u64(state, "batch", &it->at.batch, err)) < 0)
        return r;
    if (seed != it->options.seed)
        return cw_error_set(err, CW_E_STATE, "state: seed is %" PRIu64 ", this run has %" PRIu64, seed, it->options.seed);
    if (it->at.split >= n_splits)
        return cw_error_set(err, CW_E_STATE, "state: split is %" PRIu64 ": expected less than %" PRIu64, it->at.split, n_splits);
    for (unsigned k = 0; k < it->n_keys; k++)
        it->unused[k].from = it->at.split;
    return state_remnants(it, json_string_value(json_object_get(state, "remnants")), err);
}

/* ---- splits ---- */

static struct cw_split *oldest(const struct cw_iterator *it) { return it->n_open ? it->open[it->first_open] : NULL; }

static int open_ahead(struct cw_iterator *it, struct cw_error *err)
{
    while (it->n_open < it->ahead && it->open_epoch < it->options.epochs && it->sequence->n_splits) {
        bool here = it->open_epoch == it->at.epoch && it->open_split == it->at.split;
        struct cw_split *s;
        int r = cw_runner_open(it->runner, it->options.seed, it->open_epoch, it->open_split, here && it->compiled->counted && !it->n_keys ? it->at.batch : 0, &s,
                               err);
        if (r < 0)
            return r;
        it->open[(it->first_open + it->n_open++) % AHEAD_MAX] = s;
        if (++it->open_split == it->sequence->n_splits) {
            it->open_split = 0;
            it->open_epoch++;
        }
    }
    return 0;
}

static void close_oldest(struct cw_iterator *it)
{
    cw_runner_close(it->runner, it->open[it->first_open]);
    it->first_open = (it->first_open + 1) % AHEAD_MAX;
    it->n_open--;
}

int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state, struct cw_iterator **ret,
                    struct cw_error *err)
{
    const struct cw_compiled *c = s->compiled;
    struct cw_iterator *it = calloc(1, sizeof(*it));
    if (!it)
        return cw_error_nomem(err, sizeof(*it), "an iterator");
    it->sequence = s;
    it->compiled = c;
    it->options = *o;
    it->at.epoch = o->first_epoch;
    it->quarantined_tail = &it->quarantined;
    it->n_keys = c->batcher == CW_BATCHER_BUCKET || (c->batcher == CW_BATCHER_BATCH && !c->counted) ? c->n_buckets : 0;
    it->unused = calloc(it->n_keys + 1, sizeof(*it->unused));
    it->round_unused = calloc(it->n_keys + 1, sizeof(*it->round_unused));
    it->joining = calloc(it->n_keys + 1, sizeof(*it->joining));
    int r = it->unused && it->round_unused && it->joining ? 0 : cw_error_nomem(err, 0, "an iterator");
    it->ahead = (unsigned)CW_MIN(CW_MAX(AHEAD_POSITIONS / s->split_size, AHEAD_MIN), AHEAD_MAX);
    if (r >= 0 && state)
        r = load_state(it, state, err);
    if (r >= 0) {
        it->round = it->at;
        memcpy(it->round_unused, it->unused, it->n_keys * sizeof(*it->unused));
        it->discard = c->counted && !it->n_keys ? 0 : it->at.batch + (it->at.batch ? c->batch_from : 0);
        it->seen = it->discard;
        it->open_epoch = it->at.epoch;
        it->open_split = it->at.split;
        for (unsigned k = 0; k < it->n_keys; k++)
            it->open_split = CW_MIN(it->open_split, it->unused[k].from);
        r = cw_runner_new(s, &o->runner, &it->runner, err);
    }
    if (r >= 0)
        r = open_ahead(it, err);
    if (r < 0) {
        cw_iterator_free(it);
        return r;
    }
    *ret = it;
    return 0;
}

static void drop_joining(struct cw_iterator *it)
{
    for (unsigned k = 0; k < it->n_keys; k++)
        if (it->joining[k])
            cw_runner_drop(it->runner, CW_STEAL(it->joining[k]));
    if (it->remnant)
        cw_runner_drop(it->runner, CW_STEAL(it->remnant));
}

struct cw_iterator *cw_iterator_free(struct cw_iterator *it)
{
    if (!it)
        return NULL;
    if (it->runner) {
        if (it->mine)
            cw_runner_release(it->runner, it->mine);
        if (it->pending)
            cw_runner_drop(it->runner, it->pending);
        drop_joining(it);
    }
    cw_runner_free(it->runner);
    while (it->quarantined) {
        struct cw_quarantined *q = it->quarantined;
        it->quarantined = q->next;
        free(q->file);
        free(q);
    }
    free(it->unused);
    free(it->round_unused);
    free(it->joining);
    free(it);
    return NULL;
}

/* ---- the batches of an epoch, in order ---- */

/* The reasons why records failed go where the other elements of their remnant go. */
static void move_quarantined(struct cw_assembly *from, struct cw_assembly *to)
{
    struct cw_quarantined **tail = &to->quarantined;
    while (*tail)
        tail = &(*tail)->next;
    *tail = from->quarantined;
    from->quarantined = NULL;
}

/* Appends the remnants of the oldest split to those that wait, key by key. 0: that filled a batch, *ret; 1: all are in. */
static int join(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    struct cw_split *s = oldest(it);
    uint64_t index = cw_split_index(s);
    int r;
    for (; it->key < it->n_keys; it->key++) {
        unsigned k = it->key;
        struct unused *u = &it->unused[k];
        if (!it->remnant && (it->remnant = cw_split_take_remnant(s, k)))
            it->remnant_at = index < u->from ? it->remnant->n_assigned : index == u->from ? CW_MIN(u->skip, it->remnant->n_assigned) : 0;
        while (it->remnant && it->remnant_at < it->remnant->n_assigned) {
            if (!it->joining[k] && (r = cw_runner_join_new(it->runner, k, deadline_ns, &it->joining[k], err)) < 0)
                return r;
            struct cw_assembly *j = it->joining[k];
            uint64_t n = CW_MIN(j->capacity - j->n_assigned, it->remnant->n_assigned - it->remnant_at);
            if ((r = cw_runner_join(it->runner, j, it->remnant, it->remnant_at, n, deadline_ns, err)) < 0)
                return r;
            it->remnant_at += n;
            if (it->remnant_at == it->remnant->n_assigned)
                move_quarantined(it->remnant, j);
            if (j->n_assigned == j->capacity) {
                *u = (struct unused){.from = index, .skip = it->remnant_at};
                it->joining[k] = NULL;
                *ret = j;
                return 0;
            }
        }
        if (it->remnant)
            cw_runner_drop(it->runner, CW_STEAL(it->remnant));
        if (!it->joining[k] && u->from <= index)
            *u = (struct unused){.from = index + 1};
    }
    return 1;
}

/* The next batch of the epoch, unfinished where it was joined. 1: the epoch is over. */
static int pull(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    int r;
    for (;;) {
        struct cw_split *s = oldest(it);
        if (it->phase == PHASE_FLUSH) {
            for (; it->key < it->n_keys; it->key++)
                if (it->joining[it->key] && !it->compiled->drop_remainder) {
                    it->unused[it->key] = (struct unused){.from = it->sequence->n_splits};
                    *ret = CW_STEAL(it->joining[it->key]);
                    return 0;
                }
            return 1;
        }
        if (!s)
            return 1;
        bool again = cw_split_index(s) < it->at.split; /* resuming: only its remnants are wanted */
        if (it->phase == PHASE_BATCHES) {
            r = cw_runner_next(it->runner, s, deadline_ns, ret, err);
            if (r == 0 && !again && it->discard == 0)
                return 0;
            if (r == 0) {
                it->discard -= !again;
                cw_runner_drop(it->runner, *ret);
                continue;
            }
            if (r < 0)
                return r;
            it->discard = again ? it->discard : 0;
            it->phase = PHASE_JOIN;
            it->key = 0;
        }
        r = join(it, deadline_ns, ret, err);
        if (r <= 0)
            return r;
        bool last = cw_split_index(s) + 1 == it->sequence->n_splits;
        close_oldest(it);
        it->phase = PHASE_BATCHES;
        if (last) {
            it->phase = PHASE_FLUSH;
            it->key = 0;
        } else if (!again) {
            it->at.split++;
            it->at.batch = 0;
        }
        if ((r = open_ahead(it, err)) < 0)
            return r;
    }
}

/* Whether all batches of the epoch were handed out though its splits have more: behind a `take` of batches, or a short batch to drop. */
static bool cut_short(const struct cw_iterator *it)
{
    const struct cw_compiled *c = it->compiled;
    uint64_t n = it->sequence->n_positions;
    return it->seen >= c->batch_to || (!it->n_keys && c->drop_remainder && n < CW_ENDLESS && it->at.g >= n / c->batch_size);
}

/* The next one that counts: `take` and `skip` of batches, and drop_remainder, leave some out. 1: the epoch is over. */
static int pull_counted(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    for (;;) {
        if (cut_short(it))
            return 1;
        int r = pull(it, deadline_ns, ret, err);
        if (r != 0)
            return r;
        bool left_out = it->seen < it->compiled->batch_from;
        it->seen++;
        if (!left_out)
            return 0;
        cw_runner_drop(it->runner, *ret);
    }
}

static int epoch_over(struct cw_iterator *it, struct cw_error *err)
{
    while (it->phase != PHASE_FLUSH && it->n_open && cut_short(it)) {
        bool last = cw_split_index(oldest(it)) + 1 == it->sequence->n_splits;
        close_oldest(it);
        if (last)
            break;
    }
    drop_joining(it);
    memset(it->unused, 0, it->n_keys * sizeof(*it->unused));
    it->at = (struct place){.epoch = it->at.epoch + 1};
    it->phase = PHASE_BATCHES;
    it->key = 0;
    it->seen = it->discard = 0;
    if (it->sequence->n_splits == 0)
        it->at.epoch = it->options.epochs;
    return open_ahead(it, err);
}

static void round_done(struct cw_iterator *it)
{
    it->round = it->at;
    memcpy(it->round_unused, it->unused, it->n_keys * sizeof(*it->unused));
}

static void note_quarantined(struct cw_iterator *it, struct cw_assembly *a)
{
    while (a->quarantined) {
        struct cw_quarantined *q = a->quarantined;
        a->quarantined = q->next;
        q->next = NULL;
        it->n_skipped += !q->replaced && !q->note;
        it->n_replaced += q->replaced;
        if (it->n_listed < MAX_LISTED) {
            it->n_listed++;
            *it->quarantined_tail = q;
            it->quarantined_tail = &q->next;
        } else {
            free(q->file);
            free(q);
        }
    }
}

/* A repetition of batch j of an epoch, as batch g, from an iterator of its own. */
static int padding(const struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t j, uint64_t timeout_ns, struct cw_batch **ret,
                   struct cw_error *err)
{
    struct cw_iterator_options o = it->options;
    struct cw_iterator *other = NULL;
    struct cw_batch *copy = NULL;
    o.rank = 0;
    o.world_size = 1;
    o.first_epoch = epoch;
    o.epochs = epoch + 1;
    o.runner.batches_are_users = true;
    int r = cw_iterator_new(it->sequence, &o, NULL, &other, err);
    for (uint64_t i = 0; i <= j && r >= 0; i++) {
        struct cw_batch *b = NULL;
        r = cw_iterator_next(other, timeout_ns, &b, err);
        if (r > 0)
            r = cw_error_set(err, CW_E_BUG, "epoch %" PRIu64 " had more batches the first time", epoch);
        if (r == 0 && i == j)
            r = cw_batch_copy(b, &copy, err);
        if (b)
            cw_iterator_release(other, b);
    }
    cw_iterator_free(other);
    if (r < 0)
        return r;
    copy->epoch = epoch;
    copy->g = g;
    copy->flags |= CW_RECORD_PADDING;
    for (uint32_t i = 0; i < copy->n; i++)
        copy->ids[i].flags |= CW_RECORD_PADDING;
    *ret = copy;
    return 0;
}

int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    uint64_t deadline_ns = timeout_ns ? cw_now_ns() + timeout_ns : 0, ranks = it->options.world_size;
    while (it->at.epoch < it->options.epochs) {
        struct cw_assembly *a;
        int r = it->pending ? 0 : pull_counted(it, deadline_ns, &a, err);
        if (r < 0)
            return r;
        if (it->pending)
            a = CW_STEAL(it->pending);
        if (r == 1) {
            uint64_t total = it->at.g, epoch = it->at.epoch, rest = total % ranks;
            uint64_t j = it->options.rank - rest; /* a rank that has no batch in the last round repeats one */
            if (rest && !it->mine && it->options.rank >= rest &&
                (r = padding(it, epoch, total + j, j % total, timeout_ns, &it->mine, err)) < 0)
                return r;
            r = epoch_over(it, err);
            if (r < 0)
                return r;
            if (total == 0 && it->options.epochs >= INT64_MAX) /* nor will the next one have a batch: without end would be for ever */
                it->at.epoch = it->options.epochs;
            round_done(it);
        } else {
            bool mine = it->at.g % ranks == it->options.rank;
            if (a->error) { /* of an element that was joined */
                *err = *a->error;
                r = a->error->status;
                cw_runner_drop(it->runner, a);
                return r;
            }
            if (mine) {
                r = cw_runner_finish(it->runner, a, it->options.seed, it->at.epoch, deadline_ns, err);
                if (r == CW_E_DEADLINE || r == CW_E_INTERRUPTED) { /* nothing is lost: the next call goes on with it */
                    it->pending = a;
                    return r;
                }
                if (r < 0) {
                    cw_runner_drop(it->runner, a);
                    return r;
                }
                note_quarantined(it, a);
                it->mine = cw_runner_take_batch(it->runner, a);
                it->mine->epoch = it->at.epoch;
                it->mine->g = it->at.g;
                it->mine->split = it->at.split;
                it->mine->index = it->at.batch;
            } else {
                cw_runner_drop(it->runner, a);
            }
            it->at.g++;
            it->at.batch++;
            if (it->at.g % ranks == 0)
                round_done(it);
            else
                continue;
        }
        if (it->mine) {
            *ret = CW_STEAL(it->mine);
            return 0;
        }
    }
    return 1;
}

void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b)
{
    if (b->flags & CW_RECORD_PADDING)
        cw_batch_free(b);
    else
        cw_runner_release(it->runner, b);
}

const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped, uint64_t *ret_replaced)
{
    *ret_skipped = it->n_skipped;
    *ret_replaced = it->n_replaced;
    return it->quarantined;
}

void cw_iterator_interrupt(struct cw_iterator *it, bool on) { cw_runner_interrupt(it->runner, on); }
void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret) { cw_runner_profile(it->runner, ret); }
void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret) { cw_runner_fused(it->runner, ret); }
