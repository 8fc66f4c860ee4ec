/* Runs operators on whole batches (map_batches, mixup, cutmix) when a batch is complete: in the calling
 * thread (cw_batch_apply), or each call on a thread of its own (cw_batch_call_*), which belongs to the
 * assembly. A call may also run the operators on elements of a tail. */
#include "engine/batch_ops.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "dataset/sequence.h"
#include "engine/tail.h"

#define COMPONENT_ALIGN 64 /* as in assembly.c */

/* Sets the key of a batch's random draws: from the operator's key of this epoch, and a hash of the batch's
 * content, because the number of the batch may not be known where it is computed. */
static int batch_key(const struct cw_compiled *c, const struct cw_op *op, const struct cw_batch *b,
                     uint64_t seed, uint64_t epoch, uint64_t ret[2], struct cw_error *err)
{
    _cleanup_free_ uint64_t *eids = malloc((b->n + 1) * sizeof(*eids));
    if (!eids)
        return cw_error_nomem(err, b->n * sizeof(*eids), "the key of a batch");
    for (uint32_t i = 0; i < b->n; i++)
        eids[i] = cw_element_id(&c->programs[b->ids[i].leaf], &b->ids[i]);
    ret[0] = cw_epoch_key(seed, epoch, c->salts[op->position]);
    ret[1] = cw_hash64(eids, b->n * sizeof(*eids));
    return 0;
}

/* Returns the port that makes component i of the result; op->n_out: the component stays as it is. */
static unsigned result_port(const struct cw_batch_op *o, unsigned i)
{
    unsigned k = 0;
    while (k < o->op->n_out && o->op->out[k].value != o->outputs[i].value)
        k++;
    return k;
}

static size_t result_bytes(const struct cw_batch_op *o, const struct cw_batch_result *result,
                           const struct cw_batch *from)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < o->n_outputs; i++) {
        unsigned k = result_port(o, i);
        size_t size = k < o->op->n_out ? result->columns[k].size : from->components[o->outputs[i].value].size;
        bytes += CW_ALIGN_UP(size, (size_t)COMPONENT_ALIGN);
        if (o->outputs[i].type.dtype == CW_BYTES)
            bytes += CW_ALIGN_UP(from->n * sizeof(uint64_t), (size_t)COMPONENT_ALIGN);
    }
    return CW_MAX(bytes, 1);
}

/* Copies a component that stays as it is to `at`. Returns the memory behind it. */
static uint8_t *keep_component(struct cw_batch_component *to, const struct cw_batch_component *from,
                               uint32_t n, uint8_t *at)
{
    const char *name = to->name;
    *to = *from;
    to->name = name;
    if (from->lengths) {
        to->lengths = memcpy(at, from->lengths, n * sizeof(uint64_t));
        at += CW_ALIGN_UP(n * sizeof(uint64_t), (size_t)COMPONENT_ALIGN);
    }
    to->data = at;
    if (from->size)
        memcpy(at, from->data, from->size);
    return at + CW_ALIGN_UP(from->size, (size_t)COMPONENT_ALIGN);
}

/* Makes a batch in `slab` from the operator's result, with the records of `from`, which it replaces. */
static int make_batch(const struct cw_batch_op *o, const struct cw_batch_result *result,
                      struct cw_batch *from, struct cw_slab *slab, struct cw_batch **ret,
                      struct cw_error *err)
{
    struct cw_batch *b = calloc(1, sizeof(*b));
    if (!b || !(b->components = calloc(o->n_outputs, sizeof(*b->components)))) {
        free(b);
        return cw_error_nomem(err, sizeof(*b), "a batch");
    }
    *b = (struct cw_batch){.epoch = from->epoch,
                           .g = from->g,
                           .index = from->index,
                           .n = from->n,
                           .flags = from->flags,
                           .leading = from->leading,
                           .n_components = o->n_outputs,
                           .components = b->components,
                           .ids = CW_STEAL(from->ids),
                           .slabs = {slab}};
    uint8_t *at = slab->data;
    for (unsigned i = 0; i < o->n_outputs; i++) {
        struct cw_batch_component *c = &b->components[i];
        unsigned k = result_port(o, i);
        if (k == o->op->n_out) {
            c->name = o->outputs[i].name;
            at = keep_component(c, &from->components[o->outputs[i].value], b->n, at);
            continue;
        }
        const struct cw_tensor *t = &result->columns[k];
        *c = (struct cw_batch_component){.name = o->outputs[i].name,
                                         .dtype = o->outputs[i].type.dtype,
                                         .ndim = 1 + t->ndim,
                                         .dims[0] = b->n,
                                         .size = t->size};
        memcpy(c->dims + 1, t->dims, (size_t)t->ndim * sizeof(t->dims[0]));
        if (c->dtype == CW_BYTES) {
            uint64_t *lengths = (uint64_t *)(void *)at;
            uint64_t before = 0;
            for (uint32_t j = 0; j < b->n; j++) {
                /* checked before, but a host process can still write to this memory */
                uint64_t end = __atomic_load_n(&result->offsets[k][j + 1], __ATOMIC_RELAXED);
                end = CW_MIN(CW_MAX(end, before), t->size);
                lengths[j] = end - before;
                before = end;
            }
            c->lengths = lengths;
            at += CW_ALIGN_UP(b->n * sizeof(uint64_t), (size_t)COMPONENT_ALIGN);
        }
        c->data = at;
        if (t->size)
            memcpy(at, t->data, t->size);
        at += CW_ALIGN_UP(t->size, (size_t)COMPONENT_ALIGN);
    }
    *ret = b;
    return 0;
}

static void add_note(struct cw_assembly *a, const char *note)
{
    struct cw_quarantined *q = *note && a->batch->n ? calloc(1, sizeof(*q)) : NULL;
    if (!q)
        return;
    *q = (struct cw_quarantined){
        .next = a->quarantined, .id = a->batch->ids[0], .op = "map_batches", .note = true};
    snprintf(q->message, sizeof(q->message), "%s", note);
    a->quarantined = q;
}

/* Replaces a->batch by `b`. */
static void replace_batch(struct cw_assembly *a, struct cw_batch *b, cw_batch_dropper drop, void *arg)
{
    struct cw_batch *old = a->batch;
    a->batch = b;
    if (drop)
        drop(old, arg);
    else
        cw_batch_free(old);
}

/* Replaces a->batch by the result of an operator. */
static int put_result(const struct cw_batch_op *o, struct cw_assembly *a,
                      const struct cw_batch_result *result, cw_slab_getter get, cw_batch_dropper drop,
                      void *get_arg, struct cw_error *err)
{
    struct cw_slab *slab = NULL;
    struct cw_batch *b = NULL;
    int status = get(result_bytes(o, result, a->batch), &slab, get_arg, err);
    if (status >= 0)
        status = make_batch(o, result, a->batch, slab, &b, err);
    if (status < 0) {
        if (slab)
            cw_slab_put(slab);
        return status;
    }
    replace_batch(a, b, drop, get_arg);
    add_note(a, result->note);
    a->n_applied++;
    return 0;
}

/* Replaces a->batch by the batch that a->tail made of it, and frees `made`. */
static void put_tail(struct cw_assembly *a, struct cw_assembly *made, cw_batch_dropper drop, void *arg)
{
    struct cw_batch *b = CW_STEAL(made->batch);
    b->epoch = a->batch->epoch;
    b->g = a->batch->g;
    b->index = a->batch->index;
    b->flags = a->batch->flags;
    cw_quarantined_move(&made->quarantined, &a->quarantined);
    cw_assembly_free(made);
    replace_batch(a, b, drop, arg);
    a->tail = NULL;
}

static void op_profile_count(struct cw_op_profile *p, const struct cw_batch *b)
{
    p->calls++;
    p->rows += b->n;
    p->live_rows += b->n;
}

static int apply_next(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                      int (*stopped)(void *arg), void *stop_arg, cw_slab_getter get, void *get_arg,
                      struct cw_error *err)
{
    const struct cw_batch_op *o = &c->batch_ops[a->n_applied];
    struct cw_batch_result result;
    uint64_t key[2];
    int status = batch_key(c, o->op, a->batch, seed, epoch, key, err);
    if (status >= 0)
        status = o->op->desc->batch(o->op, a->batch, key, stopped, stop_arg, &result, err);
    if (status < 0)
        return status;
    status = put_result(o, a, &result, get, NULL, get_arg, err);
    o->op->desc->batch_release(&result);
    return status;
}

int cw_batch_apply(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                   struct cw_op_profile *ops, int (*stopped)(void *arg), void *stop_arg, cw_slab_getter get,
                   void *get_arg, struct cw_error *err)
{
    int status = 0;
    while (status >= 0 && a->n_applied < c->n_batch_ops) {
        const struct cw_op *op = c->batch_ops[a->n_applied].op;
        struct cw_op_profile *p = &ops[op->index];
        uint64_t start_ns = cw_cost_now_ns(), start_cpu_ns = cw_cost_cpu_ns();
        op_profile_count(p, a->batch);
        cw_cost_operator(op->desc->name, a->batch->n);
        status = apply_next(c, a, seed, epoch, stopped, stop_arg, get, get_arg, err);
        p->ns += cw_cost_now_ns() - start_ns;
        p->cpu_ns += cw_cost_cpu_ns() - start_cpu_ns;
    }
    return status;
}

/* ---- one call on a thread of its own ---- */

struct cw_batch_call {
    const struct cw_compiled *compiled;
    struct cw_tail *tail;   /* NULL: the call is one of: */
    const struct cw_op *op; /* NULL: the call runs `tail` */
    const struct cw_batch *in;
    uint64_t key[2];
    uint64_t seed, epoch;
    void (*ended)(void *arg);
    void *arg;
    pthread_t thread;
    bool joined, counted;
    _Atomic bool over, unwanted;
    /* used by the call's thread until the call is over: */
    uint64_t took_ns;
    int status;
    struct cw_error err;
    struct cw_batch_result result;
    struct cw_assembly *made;  /* by `tail` */
    struct cw_op_profile *ops; /* [n_ops] of `tail` */
};

static int call_stopped(void *arg)
{
    struct cw_batch_call *call = arg;
    return atomic_load(&call->unwanted);
}

static void *call_main(void *arg)
{
    struct cw_batch_call *call = arg;
    uint64_t start_ns = cw_cost_now_ns();
    if (call->tail) {
        call->status = cw_tail_run(call->tail, call->in, call->seed, call->epoch, call_stopped, call,
                                   call->ops, &call->made, &call->err);
    } else {
        cw_cost_operator(call->op->desc->name, call->in->n);
        call->status = call->op->desc->batch(call->op, call->in, call->key, call_stopped, call, &call->result,
                                             &call->err);
    }
    call->took_ns = cw_cost_now_ns() - start_ns;
    atomic_store(&call->over, true);
    call->ended(call->arg);
    return NULL;
}

int cw_batch_call_begin(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                        void (*ended)(void *arg), void *arg, struct cw_error *err)
{
    struct cw_batch_call *call = calloc(1, sizeof(*call));
    if (!call)
        return cw_error_nomem(err, sizeof(*call), "a call");
    *call = (struct cw_batch_call){.compiled = c,
                                   .tail = a->tail,
                                   .op = a->tail ? NULL : c->batch_ops[a->n_applied].op,
                                   .in = a->batch,
                                   .seed = seed,
                                   .epoch = epoch,
                                   .ended = ended,
                                   .arg = arg};
    int status = 0;
    if (!call->tail)
        status = batch_key(c, call->op, a->batch, seed, epoch, call->key, err);
    else if (!(call->ops = calloc(c->pipeline->n_ops, sizeof(*call->ops))))
        status = cw_error_nomem(err, 0, "a call");
    if (status >= 0)
        status = cw_thread_start(&call->thread, call_main, call, err);
    if (status < 0) {
        free(call->ops);
        free(call);
        return status;
    }
    a->call = call;
    return 0;
}

bool cw_batch_call_over(const struct cw_assembly *a)
{
    return atomic_load(&a->call->over);
}

void cw_batch_call_count(struct cw_assembly *a, struct cw_op_profile *ops)
{
    struct cw_batch_call *call = a->call;
    if (call->counted)
        return;
    call->counted = true;
    for (unsigned i = 0; i < call->compiled->pipeline->n_ops && call->tail; i++) {
        ops[i].ns += call->ops[i].ns;
        ops[i].calls += call->ops[i].calls;
        ops[i].rows += call->ops[i].rows;
    }
    if (call->tail)
        return;
    op_profile_count(&ops[call->op->index], call->in);
    ops[call->op->index].call_ns += call->took_ns;
}

static void call_join(struct cw_batch_call *call)
{
    if (!call->joined)
        pthread_join(call->thread, NULL);
    call->joined = true;
}

static void call_free(struct cw_batch_call *call)
{
    if (call->status >= 0 && call->op)
        call->op->desc->batch_release(&call->result);
    cw_assembly_free(call->made);
    free(call->ops);
    free(call);
}

int cw_batch_call_end(const struct cw_compiled *c, struct cw_assembly *a, cw_slab_getter get,
                      cw_batch_dropper drop, void *arg, struct cw_error *err)
{
    struct cw_batch_call *call = a->call;
    call_join(call);
    int status = call->status;
    if (status < 0)
        *err = call->err;
    else if (call->tail)
        put_tail(a, CW_STEAL(call->made), drop, arg);
    else if ((status = put_result(&c->batch_ops[a->n_applied], a, &call->result, get, drop, arg, err)) < 0)
        return status;
    call_free(CW_STEAL(a->call));
    return status;
}

void cw_batch_call_drop(struct cw_assembly *a)
{
    struct cw_batch_call *call = CW_STEAL(a->call);
    if (!call)
        return;
    atomic_store(&call->unwanted, true);
    call_join(call);
    call_free(call);
}
