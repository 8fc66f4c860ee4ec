/* The operator of the jobs of `cachew materialize --service`: its state is the compiled pipeline whose
 * elements are written, that of its source the opened one, divided into ranges. shard_range.c writes a range.
 */
#include "session/shard_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ops/source/keyed_source.h"
#include "ops/table.h"
#include "optimize/order.h"
#include "session/shard_dir.h"
#include "session/shard_range.h"
#include "session/shard_writer.h"
#include "storage/file.h"

/* Of the number of ranges: enough that the workers of a service share the work evenly ... */
#define RANGES_LEAST 64
/* ... and few enough that a directory can hold their shards. It counts where small elements make small
 * shards. */
#define RANGES_MOST 4096
/* The size of a component whose size varies, before any element is computed: that of an encoded image. */
#define VARYING_BYTES ((uint64_t)64 << 10)
/* The part of a stream's memory that the pipeline gets; the list of shards needs little of the rest. */
#define PIPELINE_PART(memory) ((memory) / 4 * 3)

struct written { /* op->state: the pipeline whose elements are written */
    struct cw_pipeline *pipeline;
    struct cw_compiled *compiled;
    struct cw_shard_schema schema;
};

struct ranges {
    struct cw_keyed_source base;
    struct cw_shard_ranges ranges;
};

/* ---- binding ---- */

static void written_free(void *state)
{
    struct written *w = state;
    if (!w)
        return;
    cw_shard_schema_deinit(&w->schema);
    cw_compiled_free(w->compiled);
    cw_pipeline_unref(w->pipeline);
    free(w);
}

static int written_check(const struct written *w, const struct cw_op *op, struct cw_error *err)
{
    struct cw_hash128 expected;
    if (!cw_hash128_parse(cw_attr_string(op, "fingerprint"), &expected) ||
        memcmp(&expected, &w->pipeline->fingerprint, sizeof(expected)) != 0)
        return cw_error_set(err, CW_E_PIPELINE,
                            "the pipeline that is to be materialised does not match the fingerprint that the "
                            "command computed: expected the same version of Cachew, and files with the same "
                            "content, on this worker");
    for (unsigned i = 0; i < w->compiled->n_programs; i++)
        for (unsigned k = 0; k < w->compiled->programs[i].n_ops; k++)
            if (w->compiled->programs[i].ops[k]->desc->here_only)
                return cw_error_set(err, CW_E_PIPELINE,
                                    "%s: its data are in the memory of one process, which the workers of a "
                                    "service can't read: expected a source that reads files",
                                    w->compiled->programs[i].ops[k]->desc->name);
    return 0;
}

static int written_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const struct cw_pipeline *p = cw_bind_pipeline(b);
    const struct cw_type text = {.dtype = CW_BYTES};
    enum cw_shard_format format = 0;
    struct written *w = op->state = calloc(1, sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a pipeline");
    while (strcmp(cw_attr_string(op, "format"), cw_shard_formats[format]) != 0)
        format++;
    int r = cw_path_check(cw_attr_string(op, "dir"), p->data_roots, p->n_data_roots, err);
    if (r >= 0)
        r = cw_pipeline_from_json(cw_ops(), cw_attr_json(op, "pipeline"), p->base_dir, &w->pipeline, err);
    if (r < 0)
        return r;
    w->pipeline->data_roots = p->data_roots;
    w->pipeline->n_data_roots = p->n_data_roots;
    r = cw_order_compile(w->pipeline, true, &w->compiled, err);
    if (r >= 0)
        r = written_check(w, op, err);
    if (r >= 0)
        r = cw_shard_schema_read(w->compiled, format, &w->schema, err);
    if (r >= 0)
        r = cw_bind_write(b, "shards", &text, err);
    return r < 0 ? r : 0;
}

/* ---- opening ---- */

bool cw_shard_source_divides(const struct cw_compiled *c)
{
    return !c->sequential && c->n_limits == 0 && c->take == UINT64_MAX && c->batch_from == 0 &&
           c->batch_to == UINT64_MAX && (c->counted || (!c->batcher && c->batch_size == 1));
}

/* Returns the number of positions of a range. */
static uint64_t ranges_positions(const struct written *w, const struct cw_sequence *s, uint64_t shard_bytes)
{
    uint64_t element = 1, n = s->n_positions, unit = cw_piece_unit(w->compiled);
    for (unsigned i = 0; i < w->schema.n; i++) {
        const struct cw_type *type = &w->schema.components[i].type;
        element += cw_type_fixed(type) ? cw_type_bytes(type) : VARYING_BYTES;
    }
    uint64_t positions = CW_MIN(shard_bytes / element, (n + RANGES_LEAST - 1) / RANGES_LEAST);
    positions = CW_MAX(positions, (n + RANGES_MOST - 1) / RANGES_MOST);
    if (s->by_chunk && s->window % unit == 0 && positions > s->window)
        unit = s->window; /* a range that has a part of a window reads all of it */
    return CW_MAX((positions + unit - 1) / unit, UINT64_C(1)) * unit;
}

static void ranges_free(struct cw_source *s)
{
    struct ranges *x = (struct ranges *)s;
    cw_sequence_free(x->ranges.sequence);
    pthread_cond_destroy(&x->ranges.turn.over);
    pthread_mutex_destroy(&x->ranges.turn.mutex);
    free(x);
}

static int ranges_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                          struct cw_error *err);

static const struct cw_source_ops ranges_ops = {
    .free = ranges_free, .ids = cw_keyed_source_ids, .produce = ranges_produce};

/* Divides the epoch into ranges. */
static int ranges_divide(struct ranges *x, const struct written *w, const char *run, struct cw_error *err)
{
    const struct cw_compiled *c = w->compiled;
    struct cw_shard_ranges *s = &x->ranges;
    struct cw_key key = {0};
    uint64_t n = s->sequence->n_positions;
    bool divides = cw_shard_source_divides(c) && !s->sequence->stream;
    if (n >= CW_ENDLESS && !c->sequential && c->take == UINT64_MAX && c->batch_to == UINT64_MAX)
        return cw_error_set(err, CW_E_PIPELINE,
                            "the pipeline has no end, so it can't be materialised: end it with take");
    s->positions = divides ? ranges_positions(w, s->sequence, s->shard_bytes) : 0;
    cw_key_text(&key, run);
    cw_key_u64(&key, s->sequence->snapshot);
    cw_key_u64(&key, s->positions);
    cw_keyed_source_init(&x->base, &ranges_ops, cw_key_hash(&key),
                         divides ? (n + s->positions - 1) / s->positions : n > 0, 0);
    return 0;
}

static int ranges_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                       struct cw_error *err)
{
    struct written *w = op->state;
    struct ranges *x = malloc(sizeof(*x));
    if (!x)
        return cw_error_nomem(err, sizeof(*x), "a source");
    *x = (struct ranges){.ranges = {.schema = &w->schema,
                                    .dir = cw_attr_string(op, "dir"),
                                    .seed = (uint64_t)cw_attr_int(op, "seed"),
                                    .shard_bytes = (uint64_t)cw_attr_int(op, "shard_bytes"),
                                    .threads = (unsigned)CW_MAX(env->threads, 1),
                                    .memory = PIPELINE_PART(env->memory)}};
    pthread_mutex_init(&x->ranges.turn.mutex, NULL);
    cw_cond_init(&x->ranges.turn.over);
    int r = cw_shard_dir_check_member(x->ranges.dir, cw_attr_string(op, "run"), err);
    if (r >= 0)
        r = cw_sequence_open(w->compiled, env, &x->ranges.sequence, err);
    if (r >= 0)
        r = ranges_divide(x, w, cw_attr_string(op, "run"), err);
    if (r < 0) {
        ranges_free(&x->base.base);
        return r;
    }
    *ret = &x->base.base;
    return 0;
}

/* ---- elements ---- */

/* Makes the value of an element: {data, shards}. */
static int ranges_value(const struct ranges *x, const json_t *shards, struct cw_block *b,
                        struct cw_tensor *ret, struct cw_error *err)
{
    char data[17];
    snprintf(data, sizeof(data), "%016" PRIx64, x->ranges.sequence->snapshot);
    json_auto_t *value = json_pack("{s:s, s:O}", "data", data, "shards", shards);
    _cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    if (!text)
        return cw_error_nomem(err, 0, "a list of shards");
    size_t size = strlen(text);
    void *copy = cw_block_alloc(b, size, err);
    if (!copy)
        return err ? err->status : CW_E_MEMORY;
    memcpy(copy, text, size);
    *ret = (struct cw_tensor){.data = copy, .size = size};
    return 0;
}

/* Marks the row of a range as failed, in the operator that failed, or in this one. */
static void ranges_fail(struct cw_block *b, size_t row, const struct cw_op_desc *own,
                        const struct cw_error *why)
{
    const struct cw_op_desc *failed = cw_op_find(cw_ops(), why->op);
    const char *text = why->message, *name = failed ? failed->name : own->name; /* static, as faults need */
    size_t n = strlen(name);
    if (strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0) /* it is written before the message */
        text += n + 2;
    cw_block_fail(b, row, name, "%s%s%s%s", text, *why->record ? " (record " : "", why->record,
                  *why->record ? ")" : "");
}

/* Writes the range of a row. */
static int ranges_write(struct ranges *x, const struct cw_op *op, struct cw_block *b, size_t row,
                        struct cw_error *err)
{
    struct cw_error why = {0};
    bool lasts = false;
    json_auto_t *shards = NULL;
    int r = cw_shard_range_write(&x->ranges, b->rows[row], b->cancelled, b->cancel_arg, &shards, &lasts,
                                 &why);
    if (r == 0)
        r = ranges_value(x, shards, b, &b->columns[op->out[0].value].rows[row], &why);
    if (lasts) {
        ranges_fail(b, row, op->desc, &why);
        return 0;
    }
    /* a budget that is too small for the pipeline does not become larger when this runner releases memory */
    if (r == CW_E_BUDGET)
        r = why.status = CW_E_MEMORY;
    if (r < 0 && err)
        *err = why;
    return r;
}

static int ranges_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                          struct cw_error *err)
{
    struct ranges *x = (struct ranges *)(uintptr_t)s; /* its turn changes */
    int r = cw_block_column(b, op->out[0].value, &op->out[0].type, err);
    CW_ROWS_OK(row, b, r == 0)
    r = ranges_write(x, op, b, row, err);
    return r;
}

/* ---- the operator ---- */

static const struct cw_attr_def attrs[] = {
    {.name = "pipeline",
     .kind = CW_ATTR_OBJECT,
     .effort = true, /* the fingerprint identifies it */
     .doc = "the pipeline whose elements are written"},
    {.name = "fingerprint", .kind = CW_ATTR_STRING, .doc = "its fingerprint, in hexadecimal digits"},
    {.name = "seed", .kind = CW_ATTR_INT, .max = (double)INT64_MAX, .doc = "its seed"},
    {.name = "dir", .kind = CW_ATTR_STRING, .doc = "the directory to write to, absolute"},
    {.name = "format", .kind = CW_ATTR_STRING, .choices = cw_shard_formats, .doc = "format of the files"},
    {.name = "shard_bytes",
     .kind = CW_ATTR_INT,
     .min = 1,
     .max = (double)INT64_MAX,
     .doc = "a file ends with the element with which it has so many bytes"},
    {.name = "run", .kind = CW_ATTR_STRING, .doc = "the name of the run, which the journal of `dir` has too"},
    {0},
};

static const struct cw_op_desc shard_source = {
    .name = "write_shards",
    .summary = "writes ranges of a pipeline's elements to files (for `cachew materialize --service`)",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = written_bind,
    .open = ranges_open,
    .free_state = written_free,
};

static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

int cw_shard_source_register(struct cw_error *err)
{
    static const struct cw_op_desc *const list[] = {&shard_source};
    CW_GUARD(&registering);
    return cw_op_find(cw_ops(), shard_source.name) == &shard_source ? 0 : cw_ops_add(list, 1, err);
}

json_t *cw_shard_source_pipeline(const struct cw_shard_job *j)
{
    char fingerprint[33];
    cw_hash128_print(j->fingerprint, fingerprint);
    return json_pack("{s:i, s:[{s:s, s:O, s:s, s:I, s:s, s:s, s:I, s:s}]}", "cachew", 1, "pipeline", "op",
                     shard_source.name, "pipeline", j->pipeline, "fingerprint", fingerprint, "seed",
                     (json_int_t)j->seed, "dir", j->dir, "format", cw_shard_formats[j->format], "shard_bytes",
                     (json_int_t)j->shard_bytes, "run", j->run);
}

int cw_shard_source_written(const struct cw_pipeline *p, struct cw_pipeline **ret, struct cw_error *err)
{
    const struct cw_node *source = &p->chain.nodes[0];
    *ret = NULL;
    return source->desc != &shard_source
               ? 0
               : cw_pipeline_from_json(cw_ops(), json_object_get(source->attrs, "pipeline"), p->base_dir, ret,
                                       err);
}
