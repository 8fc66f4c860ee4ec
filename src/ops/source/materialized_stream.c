/* materialized_stream: the elements of a materialised data set, also while it is being written: a source that
 * is read from its start, and waits for the next shard. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "dataset/sequence.h"
#include "formats/tfrecord.h"
#include "ops/source/keyed_source.h"
#include "ops/source/materialized.h"

#define LOOK_NS UINT64_C(50000000)   /* interval at which a wait looks at the directory */
#define READ_BYTES ((size_t)1 << 20) /* most bytes of a read of several records */

struct following {
    struct cw_keyed_source base;
    const struct cw_op *op;
    char *index_dir; /* or NULL */
    size_t memory;
    pthread_mutex_t mutex; /* guards the rest */

    struct part { /* shards that were finished at the same time */
        struct cw_source *source;
        uint64_t first; /* number of its first element */
    } *parts;

    size_t n_parts, room, n_shards;
    uint64_t n_elements; /* of all finished shards */
    bool complete;
    off_t journal_bytes; /* when it was read last; -1: not yet */
    uint64_t news_ns;    /* when a shard was finished last, or the source opened */
};

/* ---- what is finished ---- */

/* Opens the shards that were finished since the last look. */
static int following_add(struct following *s, const struct cw_manifest *m, struct cw_error *err)
{
    const struct cw_materialized *x = s->op->state;
    const struct cw_source_env env = {.index_dir = s->index_dir, .threads = 1, .memory = s->memory};
    struct cw_source *source;
    if (m->n_shards <= s->n_shards)
        return 0;
    int r = CW_ARRAY_ROOM(s->parts, s->room, s->n_parts + 1, "shards", err);
    if (r >= 0)
        r = cw_materialized_open_shards(s->op, x->dir, m, s->n_shards, &env, &source, err);
    if (r < 0)
        return r;
    s->parts[s->n_parts++] = (struct part){source, s->n_elements};
    s->n_elements += source->n_records;
    s->n_shards = m->n_shards;
    s->news_ns = cw_now_ns();
    return 0;
}

/* Returns whether the journal is as it was read last. */
static bool following_unchanged(struct following *s)
{
    const struct cw_materialized *x = s->op->state;
    _cleanup_free_ char *path = cw_manifest_path(x->dir, CW_JOURNAL_NAME);
    struct stat st;
    off_t before = s->journal_bytes;
    s->journal_bytes = path && stat(path, &st) == 0 ? st.st_size : -1;
    return before >= 0 && s->journal_bytes == before;
}

/* Looks for further shards. */
static int following_look(struct following *s, struct cw_error *err)
{
    const struct cw_materialized *x = s->op->state;
    struct cw_manifest m = {0};
    bool complete = false;
    CW_GUARD(&s->mutex);
    if (s->complete || following_unchanged(s))
        return 0;
    int r = cw_manifest_read_begun(x->dir, &m, &complete, err);
    if (r == 0)
        r = following_add(s, &m, err);
    s->complete = r == 0 && complete;
    cw_manifest_deinit(&m);
    return r;
}

/* Reports that no shard was finished before the deadline. */
static int following_late(const struct following *s, struct cw_error *err)
{
    const struct cw_materialized *x = s->op->state;
    double wait_s = cw_attr_float(s->op, "wait");
    cw_error_op(err, s->op->desc->name);
    return cw_error_at_file(
        err, CW_E_DATA, x->dir, 0,
        "%s: %s got no further shard for %g s (attribute wait); %zu shards with %" PRIu64
        " elements are finished: continue the run of cachew materialize, or give a longer "
        "time",
        s->op->desc->name, x->dir, wait_s, s->n_shards, s->n_elements);
}

/* Waits until the element before number `upto` is finished, or all are. */
static int following_wait(struct following *s, const struct cw_pull *q, uint64_t upto, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(cw_attr_float(s->op, "wait") * 1e9);
    for (;;) {
        int r = following_look(s, err);
        uint64_t late_ns = 0;
        bool there = false;
        CW_WITH (&s->mutex) {
            there = s->complete || s->n_elements >= upto;
            late_ns = s->news_ns + wait_ns;
        }
        if (r < 0 || there)
            return r;
        if (cw_now_ns() > late_ns)
            return following_late(s, err);
        if (q->cancelled && q->cancelled(q->cancel_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "cancelled");
        const struct timespec look = {.tv_nsec = (long)LOOK_NS};
        nanosleep(&look, NULL);
    }
}

/* ---- elements ---- */

/* Returns the part that holds an element, and the element's row in it. */
static const struct part *following_part(const struct following *s, uint64_t element, uint64_t *ret_row)
{
    const struct part *p = &s->parts[CW_FIRST(i, 1, s->n_parts, s->parts[i].first > element) - 1];
    *ret_row = element - p->first;
    return p;
}

static int following_locate(struct following *s, uint64_t element, struct cw_extent *ret,
                            struct cw_error *err)
{
    uint64_t row;
    CW_GUARD(&s->mutex);
    const struct part *p = following_part(s, element, &row);
    return p->source->ops->locate(p->source, row, ret, err);
}

/* Reads n elements from number `from` on; records that lie one behind the other are read together. */
static int following_read(struct following *s, uint64_t from, size_t n, struct cw_arena *arena,
                          struct cw_tensor *raw, struct cw_error *err)
{
    struct cw_extent next;
    int r = n ? following_locate(s, from, &next, err) : 0;
    for (size_t i = 0; r == 0 && i < n;) {
        struct cw_extent e = next;
        size_t first = i, at = 0;
        raw[i++].size = e.length;
        while (r == 0 && i < n && (r = following_locate(s, from + i, &next, err)) == 0 &&
               next.file == e.file && next.offset == e.offset + e.length &&
               e.length + next.length <= READ_BYTES) {
            raw[i++].size = next.length;
            e.length += next.length;
        }
        uint8_t *data = r == 0 ? cw_arena_alloc(arena, CW_MAX(e.length, (size_t)1), err) : NULL;
        if (r == 0)
            r = data ? cw_extent_read(&e, data, false, err) : err ? err->status : CW_E_MEMORY;
        for (; r == 0 && first < i; at += raw[first++].size)
            raw[first].data = data + at;
    }
    return r;
}

static int following_pull(struct cw_source *base, const struct cw_pull *q, struct cw_arena *arena,
                          struct cw_tensor *raw, size_t *ret_n, struct cw_error *err)
{
    struct following *s = (struct following *)base;
    int r = following_wait(s, q, q->from + CW_MAX(q->least, (size_t)1), err);
    if (r < 0)
        return r;
    uint64_t there = CW_LOCKED(&s->mutex, s->n_elements);
    *ret_n = (size_t)CW_MIN(there - CW_MIN(there, q->from), (uint64_t)q->n);
    return following_read(s, q->from, *ret_n, arena, raw, err);
}

static int following_produce(const struct cw_source *base CW_UNUSED, const struct cw_op *op,
                             struct cw_block *b, struct cw_error *err)
{
    const struct cw_materialized *x = op->state;
    char why[160];
    if (!op->live)
        return 0;
    CW_ROWS_OK(i, b, x->manifest.schema.format != CW_SHARD_TAR)
    if (cw_tfrecord_check(b->raw[i].data, b->raw[i].size, why))
        cw_block_fail(b, i, op->desc->name, "%s", why);
    return cw_materialized_decode(&x->manifest.schema, op, b, err);
}

/* The ids are those of `materialized`, so random draws are the same. */
static void following_ids(const struct cw_source *base, const uint64_t *rows, size_t n,
                          struct cw_record_id *out)
{
    struct following *s = (struct following *)(uintptr_t)base;
    CW_GUARD(&s->mutex);
    for (size_t i = 0; i < n; i++) {
        uint64_t row;
        const struct part *p = following_part(s, rows[i], &row);
        p->source->ops->ids(p->source, &row, 1, &out[i]);
    }
}

/* ---- the source ---- */

static void following_free(struct cw_source *base)
{
    struct following *s = (struct following *)base;
    for (size_t i = 0; i < s->n_parts; i++)
        cw_source_free(s->parts[i].source);
    pthread_mutex_destroy(&s->mutex);
    free(s->parts);
    free(s->index_dir);
    free(s);
}

static const struct cw_source_ops following_ops = {
    .free = following_free, .ids = following_ids, .pull = following_pull, .produce = following_produce};

static int following_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                          struct cw_error *err)
{
    const struct cw_materialized *x = op->state;
    json_auto_t *components = cw_manifest_components(&x->manifest.schema);
    _cleanup_free_ char *text = components ? json_dumps(components, JSON_COMPACT) : NULL;
    struct following *s = text ? calloc(1, sizeof(*s)) : NULL;
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    *s = (struct following){.op = op,
                            .index_dir = env->index_dir ? strdup(env->index_dir) : NULL,
                            .memory = env->memory,
                            .journal_bytes = -1,
                            .news_ns = cw_now_ns()};
    pthread_mutex_init(&s->mutex, NULL);
    cw_keyed_source_init(&s->base, &following_ops, cw_hash64(text, strlen(text)), CW_ENDLESS, 0);
    s->base.base.n_chunks = 1;
    s->base.base.chunk_records = CW_ENDLESS;
    *ret = &s->base.base;
    return 0;
}

static int following_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return cw_materialized_bind(b, op, true, err);
}

static const struct cw_attr_def attrs[] = {
    {.name = "path",
     .kind = CW_ATTR_STRING,
     .path = true,
     .doc = "the directory that `cachew materialize` or `Dataset.materialize` writes, or has written"},
    {.name = "wait",
     .kind = CW_ATTR_FLOAT,
     .def = "600",
     .min = 0,
     .max = 1e9,
     .effort = true,
     .doc = "fail if no further shard is finished for this time, in seconds"},
    {0},
};

const struct cw_op_desc cw_op_materialized_stream = {
    .name = "materialized_stream",
    .summary = "the elements of a materialised data set, also while it is being written",
    .doc =
        "Gives the same elements in the same order as `materialized`, each shard as soon as it is finished, "
        "and "
        "waits for the next one. The number of elements is not known until the data are complete, so the "
        "source "
        "is read from its start: `shuffle(window=n)` permutes each n consecutive elements among themselves. "
        "`cachew materialize` must have begun when the pipeline is compiled, because its journal has the "
        "components. Read complete data with `materialized`.",
    .kind = CW_OP_SOURCE,
    .effects = {.count = CW_COUNT_ANY, .state = CW_STATE_SEQUENTIAL},
    .attrs = attrs,
    .bind = following_bind,
    .open = following_open,
    .free_state = cw_materialized_free,
};
