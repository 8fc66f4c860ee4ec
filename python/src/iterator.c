/*
 * Iterator: a running pipeline. Waits are cut into slices, so that signals are seen soon; the interpreter's
 * lock is not held meanwhile.
 *
 * One thread at a time may be inside (`busy`, guarded by the interpreter's lock); close() from another thread
 * ends its wait. While a handler of a signal runs no thread is inside: the handler may ask for the state, or
 * close. In a forked child nothing of the engine is touched: its threads are not there.
 *
 * A batch is offered until it is accepted: what a handler raises meanwhile, in here or in Python, loses
 * nothing. The next call gives it again.
 */
#include "core.h"

#include <time.h>
#include <unistd.h>

/* How long a signal may wait for its handler. */
#define SLICE_S 0.05

struct iterator {
    PyObject ob_base;
    struct cachew_iterator *it; /* NULL: closed */
    pid_t owner;
    bool busy, closing;
    PyObject *offered; /* the slab that was given last, until it is accepted; else NULL */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void open_iterator(struct core_call *c)
{
    c->r = cachew_iterator_open(c->p, &c->options, &c->it, &c->error);
}

PyObject *core_iterator_open(PyObject *module, PyObject *args)
{
    struct core_state *st = PyModule_GetState(module);
    struct core_call c = {.fn = open_iterator};
    PyObject *pipeline, *options;
    if (!PyArg_ParseTuple(args, "O!O!:open", st->pipeline, &pipeline, &PyTuple_Type, &options))
        return NULL;
    struct iterator *self = (struct iterator *)PyType_GenericAlloc(st->iterator, 0);
    if (!self)
        return NULL;
    bool good = core_call(&c, st, pipeline, options);
    self->owner = getpid();
    self->it = c.it;
    if (!good)
        Py_DECREF(self);
    return good ? (PyObject *)self : NULL;
}

/* Whether it may be used here and now; else an exception is set. */
static bool enter(struct iterator *self)
{
    const struct core_state *st = core_state_of((PyObject *)self);
    if (self->owner != getpid())
        core_raise_kind(st, "usage",
                        "this iterator belongs to process %d; in a forked child (process %d) make a new one "
                        "from the dataset",
                        (int)self->owner, (int)getpid());
    else if (self->busy)
        core_raise_kind(
            st, "usage",
            "this iterator is in use by another thread; make one per thread, or hand the batches on");
    else if (!self->it)
        core_raise_kind(st, "usage", "this iterator is closed");
    else
        return self->busy = true;
    return false;
}

static void end(struct iterator *self)
{
    struct cachew_iterator *it = self->it;
    self->it = NULL;
    Py_CLEAR(self->offered);
    Py_BEGIN_ALLOW_THREADS cachew_iterator_free(it);
    Py_END_ALLOW_THREADS
}

static void leave(struct iterator *self)
{
    self->busy = false;
    if (self->closing)
        end(self);
}

/* The job was paused on request. */
static bool is_paused(const struct cachew_error *e)
{
    const char *attribute = cachew_error_attribute(e), *value = cachew_error_value(e);
    return attribute && value && strcmp(attribute, "job") == 0 && strcmp(value, "paused") == 0;
}

/* The last slice of a wait ended with e, which is freed. Whether there is to be another one; else an
 * exception is set. */
static bool goes_on(const struct iterator *self, int status, struct cachew_error *e, double timeout_s,
                    bool late)
{
    const struct core_state *st = core_state_of((PyObject *)(uintptr_t)self);
    if (status != CACHEW_E_DEADLINE && status != CACHEW_E_INTERRUPTED) {
        core_raise(st, e);
        return false;
    }
    if (status == CACHEW_E_INTERRUPTED)
        core_raise_kind(st, "usage", "this iterator was closed by another thread");
    else if (late)
        core_raise_kind(st, "deadline", "no batch came within %g s: %s", timeout_s, cachew_error_message(e));
    cachew_error_free(e);
    /* signals, and what came of one within a note */
    return status == CACHEW_E_DEADLINE && !late && Py_MakePendingCalls() >= 0;
}

/* What is offered, a new reference, waiting for it in slices: NULL with an exception set. */
static PyObject *wait_for_batch(struct iterator *self, double timeout_s)
{
    double deadline = timeout_s < 0 ? -1 : now_s() + timeout_s;
    while (enter(self)) {
        struct cachew_error *e;
        struct cachew_batch *b;
        double start = now_s(), left = deadline < 0 ? SLICE_S : deadline - start,
               slice = left < SLICE_S ? left : SLICE_S;
        int r = 0;
        if (!self->offered) {
            Py_BEGIN_ALLOW_THREADS r = cachew_iterator_offer(self->it, slice > 0 ? slice : 0, &b, &e);
            Py_END_ALLOW_THREADS if (r == 0)
                self->offered = core_slab_new(core_state_of((PyObject *)self), b);
        }
        PyObject *given = r == 0 ? Py_XNewRef(self->offered) : r > 0 ? Py_NewRef(Py_None) : NULL;
        leave(self);
        if (r >= 0)
            return given;
        if (r == CACHEW_E_DEADLINE && deadline >= 0 && is_paused(e)) /* the time does not count */
            deadline += now_s() - start;
        if (!goes_on(self, r, e, timeout_s, deadline >= 0 && now_s() >= deadline))
            return NULL;
    }
    return NULL;
}

static PyObject *iterator_next(PyObject *o, PyObject *args)
{
    double timeout_s = -1;
    return PyArg_ParseTuple(args, "|d", &timeout_s) ? wait_for_batch((struct iterator *)o, timeout_s) : NULL;
}

/* An attribute that is set, not a method: after a call Python looks for signals, and the batch may be lost.
 * One that is closed needs to know no more. */
static int iterator_accept(PyObject *o, PyObject *slab, void *unused)
{
    struct iterator *self = (struct iterator *)o;
    if (!self->it)
        return 0;
    if (self->busy || !slab || slab != self->offered) {
        core_raise_kind(core_state_of(o), "usage",
                        "this batch was given to another thread, which asked this iterator at the same time; "
                        "make one per thread, or hand the batches on");
        return -1;
    }
    cachew_iterator_accept(self->it);
    Py_CLEAR(self->offered);
    return 0;
}

static PyObject *iterator_text(PyObject *o, char *(*text_of)(const struct cachew_iterator *))
{
    struct iterator *self = (struct iterator *)o;
    if (!enter(self))
        return NULL;
    char *text = text_of(self->it);
    leave(self);
    return core_text(text);
}

static PyObject *iterator_state(PyObject *o, PyObject *unused)
{
    return iterator_text(o, cachew_iterator_state);
}

static PyObject *iterator_profile(PyObject *o, PyObject *unused)
{
    return iterator_text(o, cachew_iterator_profile);
}

static PyObject *iterator_quarantine(PyObject *o, PyObject *unused)
{
    struct iterator *self = (struct iterator *)o;
    uint64_t skipped, replaced;
    if (!enter(self))
        return NULL;
    char *text = cachew_iterator_quarantine(self->it, &skipped, &replaced);
    leave(self);
    return Py_BuildValue("(KKN)", (unsigned long long)skipped, (unsigned long long)replaced, core_text(text));
}

static PyObject *iterator_held(PyObject *o, PyObject *unused)
{
    struct iterator *self = (struct iterator *)o;
    if (!enter(self))
        return NULL;
    size_t n = cachew_iterator_held(self->it);
    leave(self);
    return PyLong_FromSize_t(n);
}

/* A thread that waits inside frees it on its way out. */
static PyObject *iterator_close(PyObject *o, PyObject *unused)
{
    struct iterator *self = (struct iterator *)o;
    if (self->it && self->owner == getpid()) {
        if (self->busy) {
            self->closing = true;
            cachew_iterator_interrupt(self->it, 1);
        } else {
            end(self);
        }
    }
    return Py_NewRef(Py_None);
}

static void iterator_dealloc(PyObject *o)
{
    struct iterator *self = (struct iterator *)o;
    if (self->it && self->owner == getpid())
        end(self);
    Py_CLEAR(self->offered);
    core_free(o);
}

static PyGetSetDef attributes[] = {
    {"accepted", NULL, iterator_accept, "set to the slab that next() gave: the position moves behind it",
     NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"next", iterator_next, METH_VARARGS,
     "next(timeout_s=-1) -> Slab, the same until it is accepted; None at the end"},
    {"state", iterator_state, METH_NOARGS, "the position after the last batch that was accepted, as JSON"},
    {"profile", iterator_profile, METH_NOARGS, "where the time goes, as JSON"},
    {"quarantine", iterator_quarantine, METH_NOARGS, "(skipped, replaced, JSON list of records)"},
    {"held", iterator_held, METH_NOARGS, "batches handed out and not given back"},
    {"close", iterator_close, METH_NOARGS, "ends it; from any thread"},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A running pipeline"},
    {Py_tp_dealloc, iterator_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0},
};

PyType_Spec core_iterator_spec = {
    "cachew._core.Iterator", sizeof(struct iterator), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
