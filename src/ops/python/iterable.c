/* iterable: a source whose elements come from a Python iterable, one after the other. The iterable runs in a
 * host process of its own. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread.h"
#include "ops/python/function.h"
#include "ops/source/keyed_source.h"
#include "dataset/sequence.h"

struct iterable {
    struct cw_keyed_source base;
    const struct cw_op *op;
    pthread_mutex_t mutex; /* guards runs[].n_epochs */

    /* Two epochs may be read at the same time: with a service, the last ranges of an epoch and the first
     * ranges of the next one; without a service, the padding of an epoch and the next epoch. Each of the two
     * epochs has an iterable of its own (struct run); reading both from one iterable would restart it at each
     * change. */
    struct run {
        uint64_t n_epochs; /* 1 + the epoch of the last pull; 0: not started */
        pthread_mutex_t mutex;
        /* Guarded by the run's mutex: */
        struct cw_host *host; /* the process that runs the iterable; NULL: none */
        /* if status is not 0, hosts died too often: pulls of epoch why_epoch, from element why_from on, get
         * this error at once */
        struct cw_error why;
        uint64_t why_epoch, why_from;
    } runs[2];
};

/* Chooses the run for a pull of an epoch. Without a service, a later epoch takes over the run of the last
 * epoch, even if a full `take` stopped that run in the middle. So two iterables exist at a time only while
 * padding reads an earlier epoch. served: the pull comes from another worker of a service. */
static struct run *iterable_run_of(struct iterable *s, uint64_t epoch, bool served)
{
    CW_GUARD(&s->mutex);
    struct run *last = &s->runs[s->runs[1].n_epochs > s->runs[0].n_epochs],
               *other = last == s->runs ? last + 1 : s->runs;
    struct run *x = epoch + 1 == last->n_epochs || (epoch + 1 > last->n_epochs && !served) ? last : other;
    x->n_epochs = epoch + 1;
    return x;
}

struct element {        /* the raw bytes of a row */
    const char *error;  /* NULL: none */
    const char *detail; /* of the error, as cw_error.detail; NULL: none */
    struct cw_tensor values[];
};

static void iterable_free(struct cw_source *base)
{
    struct iterable *s = (struct iterable *)base;
    for (unsigned i = 0; i < CW_COUNT_OF(s->runs); i++) {
        cw_host_free(s->runs[i].host); /* also frees files and memory that the iterable uses */
        pthread_mutex_destroy(&s->runs[i].mutex);
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static const char *iterable_copy_text(struct cw_arena *arena, const char *text, struct cw_error *err)
{
    size_t size = strlen(text) + 1;
    char *copy = cw_arena_alloc(arena, size, err);
    return copy ? memcpy(copy, text, size) : NULL;
}

struct call {
    struct cw_function_call base;
    const struct iterable *s;
    const struct cw_pull *q;
    struct cw_host_tries tries;
    /* For a pull, the destination of the elements: */
    struct cw_arena *arena;
    struct cw_tensor *raw;
    size_t *ret_n;
    /* For `serve`, the destination of the answer's bytes: */
    uint8_t **ret_bytes;
    size_t *ret_size;
};

static void iterable_write_request(const struct cw_function_call *base, uint8_t *to)
{
    const struct call *c = (const struct call *)base;
    const struct cw_pull *q = c->q;
    uint64_t keep =
        cw_host_tried(&c->tries)
            ? q->from
            : q->keep; /* keeps nothing after a death: memory for kept elements may have caused it */
    cw_exchange_pull_write(
        &(struct cw_exchange_pull){.from = q->from, .n = q->n, .least = q->least, .keep = keep}, to);
}

/* Memory for the elements of an answer. It is allocated in one piece, so that an out-of-memory error states
 * the whole size. */
struct room {
    uint8_t *at;
    size_t left;
};

/* Returns the next part of the room. NULL: the answer has become larger since the room was allocated, which a
 * malicious host process can do. */
static void *iterable_room_take(struct room *r, size_t bytes)
{
    uint8_t *at = r->at;
    size_t whole = CW_ALIGN_UP(bytes, 64);
    if (whole > r->left)
        return NULL;
    r->at += whole;
    r->left -= whole;
    return at;
}

static size_t iterable_element_bytes(const struct iterable *s)
{
    return sizeof(struct element) + s->op->n_out * sizeof(struct cw_tensor);
}

static int iterable_room_for(const struct iterable *s, const struct cw_exchange_answer *a,
                             struct cw_arena *arena, struct room *ret, struct cw_error *err)
{
    size_t element = iterable_element_bytes(s), bytes = 0;
    struct cw_tensor t;
    for (size_t i = 0; i < a->n; i++) {
        bytes += CW_ALIGN_UP(element, 64);
        for (unsigned k = 0; k < s->op->n_out; k++)
            if (s->op->out[k].live && cw_exchange_row(a, k, &s->op->out[k].type, i, &t))
                bytes += CW_ALIGN_UP(t.size, 64);
    }
    *ret = (struct room){.at = cw_arena_alloc(arena, bytes, err), .left = bytes};
    return ret->at ? 0 : err->status;
}

/* Copies the host's answer into the arena. If the iterable raised an exception, the elements before it are
 * given out first. */
static int iterable_take_answer(struct cw_function_call *base, const uint8_t *data, size_t size,
                                struct cw_error *err)
{
    const struct call *c = (const struct call *)base;
    const struct iterable *s = c->s;
    struct cw_arena *arena = c->arena;
    struct cw_tensor *raw = c->raw;
    size_t n_wanted = c->q->n;
    const struct cw_function *f = s->op->state;
    unsigned n_out = s->op->n_out;
    struct cw_exchange_answer a;
    const char *why;
    if (!cw_exchange_read(data, size, n_wanted, n_out, true, &a, &why) || a.n > n_wanted)
        return cw_error_set(
            err, CW_E_BUG,
            "iterable: %s: the host process sent a malformed answer: %s; the cause is a defect of Cachew "
            "(please report it), or a function that overwrites memory that is not its own",
            f->name, why);
    struct room room;
    int r = iterable_room_for(s, &a, arena, &room, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < a.n; i++) {
        struct element *e = iterable_room_take(&room, iterable_element_bytes(s));
        if (!e)
            return cw_error_set(
                err, CW_E_BUG,
                "iterable: %s: the host process changed its answer while it was read; the cause is a defect "
                "of Cachew (please report it), or a function that overwrites memory that is not its own",
                f->name);
        memset(e, 0, iterable_element_bytes(s));
        if (a.status[i] == CW_EXCHANGE_FAILED)
            e->error = "failed";
        for (unsigned k = 0; k < n_out && !e->error; k++) {
            if (!s->op->out[k].live)
                continue;
            struct cw_tensor *t = &e->values[k];
            if ((r = cw_function_value(s->op, &a, k, i, t, err)) < 0)
                return r;
            void *copy = iterable_room_take(&room, t->size);
            if (!copy)
                return cw_error_set(err, CW_E_BUG,
                                    "iterable: %s: the host process changed its answer while it was read; "
                                    "the cause is a defect of Cachew (please report it), or a function that "
                                    "overwrites memory that is not its own",
                                    f->name);
            if (t->size)
                memcpy(copy, t->data, t->size);
            t->data = copy;
        }
        raw[i] = (struct cw_tensor){.data = e, .size = sizeof(*e)};
    }
    *c->ret_n = a.n;
    size_t i;
    json_t *errors, *entry;
    r = cw_function_errors(s->op, &a, &errors, err);
    json_array_foreach(errors, i, entry)
    {
        json_int_t row = json_integer_value(json_array_get(entry, 0));
        const char *text = json_string_value(json_array_get(entry, 1)),
                   *detail = json_string_value(json_array_get(entry, 2));
        if (text && row >= 0 && (size_t)row < a.n && r >= 0) {
            struct element *e = raw[row].data;
            e->error = iterable_copy_text(arena, text, err);
            e->detail = detail && e->error ? iterable_copy_text(arena, detail, err) : NULL;
            r = e->error && (e->detail || !detail) ? 0 : err->status;
        } else if (text && r >= 0 && a.n == 0) { /* the iterable itself raised: it gives no more elements */
            cw_error_detail(err, detail);
            r = cw_error_set(err, CW_E_DATA, "iterable: %s: %s", f->name, text);
        }
    }
    json_decref(errors);
    return r;
}

static int iterable_keep_answer(struct cw_function_call *base, const uint8_t *data, size_t size,
                                struct cw_error *err)
{
    const struct call *c = (const struct call *)base;
    if (!(*c->ret_bytes = aligned_alloc(64, CW_ALIGN_UP(CW_MAX(size, 1), 64))))
        return cw_error_nomem(err, size, "elements of a stream");
    memcpy(*c->ret_bytes, data, size);
    *c->ret_size = size;
    return 0;
}

/* Makes a call in the host of a run. If the host dies, the iterable is started again in a new host and
 * skipped to the element c->q->from. If memory is short, the caller pulls again from the same element. */
static int iterable_call_host(struct iterable *s, struct call *c, bool served, struct cw_error *err)
{
    const struct cw_function *f = s->op->state;
    struct run *run = iterable_run_of(s, c->q->epoch, served);
    char why[500];
    c->s = s;
    c->base.host = f->host;
    c->base.size = CW_EXCHANGE_PULL_BYTES;
    c->base.write = iterable_write_request;
    c->base.host.cancelled = c->q->cancelled;
    c->base.host.cancel_arg = c->q->cancel_arg;
    CW_GUARD(&run->mutex);
    if (run->why.status && run->why_epoch == c->q->epoch && run->why_from <= c->q->from)
        return cw_error_copy(err, &run->why);
    int r = cw_function_insist(&c->base, &run->host, &c->tries, why, err);
    if (r == 1) {
        cw_error_set(&run->why, CW_E_DATA, "iterable: %s: %s", f->name, why);
        run->why_epoch = c->q->epoch;
        run->why_from = c->q->from;
        return cw_error_copy(err, &run->why);
    }
    return r;
}

static int iterable_pull(struct cw_source *base, const struct cw_pull *q, struct cw_arena *arena,
                         struct cw_tensor *raw, size_t *ret_n, struct cw_error *err)
{
    struct iterable *s = (struct iterable *)base;
    struct call c = {
        .base.take = iterable_take_answer, .s = s, .q = q, .arena = arena, .raw = raw, .ret_n = ret_n};
    uint8_t *bytes;
    size_t size;
    if (!q->away)
        return iterable_call_host(s, &c, false, err);
    int r = q->away->pull(q->away->arg, q, &bytes, &size, err);
    if (r >= 0) {
        r = iterable_take_answer(&c.base, bytes, size, err);
        free(bytes);
    }
    return r;
}

static int iterable_serve(struct cw_source *base, const struct cw_pull *q, uint8_t **ret, size_t *ret_size,
                          struct cw_error *err)
{
    struct iterable *s = (struct iterable *)base;
    return iterable_call_host(
        s, &(struct call){.base.take = iterable_keep_answer, .q = q, .ret_bytes = ret, .ret_size = ret_size},
        true, err);
}

static int iterable_produce(const struct cw_source *base CW_UNUSED, const struct cw_op *op,
                            struct cw_block *b, struct cw_error *err)
{
    const struct cw_function *f = op->state;
    int r = 0;
    for (unsigned k = 0; k < op->n_out && r >= 0; k++) {
        const struct cw_port *port = &op->out[k];
        if (!port->live)
            continue;
        r = cw_block_column(b, port->value, &port->type, err);
        for (size_t i = 0; i < b->n && r >= 0; i++) {
            struct cw_column *c = &b->columns[port->value];
            const struct cw_tensor *t = &((const struct element *)b->raw[i].data)->values[k];
            if (!c->dense)
                c->rows[i] = *t;
            else if (t->size)
                memcpy(c->data + i * c->stride, t->data, t->size);
        }
    }
    for (size_t i = 0; i < b->n && r >= 0; i++) {
        const struct element *e = b->raw[i].data;
        if (e->error) {
            cw_block_fail(b, i, "iterable", "%s: %s", f->name, e->error);
            cw_block_detail(b, e->detail);
        }
    }
    return r;
}

static const struct cw_source_ops iterable_ops = {.free = iterable_free,
                                                  .ids = cw_keyed_source_ids,
                                                  .pull = iterable_pull,
                                                  .serve = iterable_serve,
                                                  .produce = iterable_produce};

static int iterable_open(const struct cw_op *op, const struct cw_source_env *env CW_UNUSED,
                         struct cw_source **ret, struct cw_error *err)
{
    const char *identity = json_string_value(json_object_get(cw_attr_json(op, "function"), "identity"));
    struct iterable *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    *s = (struct iterable){.op = op, .base.file_key = cw_hash64(identity, strlen(identity))};
    pthread_mutex_init(&s->mutex, NULL);
    for (unsigned i = 0; i < CW_COUNT_OF(s->runs); i++)
        pthread_mutex_init(&s->runs[i].mutex, NULL);
    s->base.base = (struct cw_source){.ops = &iterable_ops,
                                      .n_records = CW_ENDLESS,
                                      .n_chunks = 1,
                                      .chunk_records = CW_ENDLESS,
                                      .snapshot = s->base.file_key};
    *ret = &s->base.base;
    return 0;
}

static const struct cw_attr_def attrs[] = {CW_FUNCTION_ATTRS, CW_FUNCTION_OUTPUTS, {0}};

const struct cw_op_desc cw_op_iterable = {
    .name = "iterable",
    .summary = "elements that a Python iterable gives, one after the other",
    .doc = "The function is called without arguments and returns an iterable of dicts, or is a generator of "
           "dicts. The function must give the same elements each time it is called. It runs in one host "
           "process, a child process with a Python interpreter. The number of elements is not known until "
           "the iterable ends. In a service, one worker reads the iterable and sends the elements to the "
           "other workers. `shuffle(window=n)` permutes each n consecutive elements among themselves. A run "
           "that resumes from a state reads the iterable again from its beginning. If your data can be read "
           "at any position, use another source, such as `sequence` in Python.",
    .kind = CW_OP_SOURCE,
    .effects = {.count = CW_COUNT_ANY, .state = CW_STATE_SEQUENTIAL},
    .function = true,
    .attrs = attrs,
    .bind = cw_function_bind,
    .open = iterable_open,
    .free_state = cw_function_free,
};
