/*
 * The type Iterator: a running pipeline. It waits for a batch in slices, without the interpreter's lock, and
 * checks for signals after each slice.
 *
 * One thread at a time may use the iterator (`busy`; the interpreter's lock guards all fields). close() from
 * another thread ends that thread's wait. While a signal handler runs, no thread is using the iterator, so
 * the handler may take the state or close the iterator. In a forked child, which has none of the engine's
 * threads, nothing of the engine is used.
 *
 * A batch is offered until Python accepts it: each call of next() gives the same batch. So no batch is lost
 * if a signal handler raises before the batch has reached the user.
 */
#include "core.h"

#include <time.h>
#include <unistd.h>

/* The longest time between two checks for signals, in seconds. */
#define SLICE_S 0.05

struct iterator {
    PyObject ob_base;
    struct cachew_iterator *it; /* owned; NULL: closed */
    pid_t owner;                /* the process that opened it */
    bool busy;                  /* a thread is using it */
    bool closing;               /* the thread that is using it frees it afterwards */
    PyObject *offered;          /* a reference to the slab that is offered; NULL: none is */
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

/* Sets busy, and returns true; or, if the iterator can't be used now, sets an exception and returns false. */
static bool enter(struct iterator *self)
{
    const struct core_state *st = core_state_of((PyObject *)self);
    if (self->owner != getpid())
        core_raise_kind(st, "usage",
                        "this iterator belongs to process %d; in a forked child (process %d) make a new one "
                        "from the dataset",
                        (int)self->owner, (int)getpid());
    else if (self->busy)
        core_raise_kind(st, "usage",
                        "another thread is using this iterator; make one iterator for each thread, or let "
                        "one thread take the batches and pass them on");
    else if (!self->it)
        core_raise_kind(st, "usage", "this iterator is closed");
    else
        return self->busy = true;
    return false;
}

/* Closes the iterator. */
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

/* Whether the wait ended because an administrator paused the service's job (`cachew jobs --pause`). */
static bool is_paused(const struct cachew_error *e)
{
    const char *attribute = cachew_error_attribute(e), *value = cachew_error_value(e);
    return attribute && value && strcmp(attribute, "job") == 0 && strcmp(value, "paused") == 0;
}

/* Decides after a slice that gave no batch. status, e: what ended the slice; frees e. late: the time limit
 * has passed. Returns true to wait for another slice; else an exception is set. */
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
    /* runs signal handlers, and raises exceptions that note_failed (wait.c) kept */
    return status == CACHEW_E_DEADLINE && !late && Py_MakePendingCalls() >= 0;
}

/* Waits for a batch, at most timeout_s seconds (negative: without limit). Returns a new reference to the slab
 * that is offered, or to None at the end; NULL: an exception is set. */
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
        if (r == CACHEW_E_DEADLINE && deadline >= 0 && is_paused(e)) /* the time of a pause does not count */
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

/* Accepts the offered batch. It is called by setting the attribute `accepted`, because after a method call
 * Python may run signal handlers, and an exception of a handler would lose the batch. If the iterator is
 * closed, it does nothing. */
static int iterator_accept(PyObject *o, PyObject *slab, void *unused)
{
    struct iterator *self = (struct iterator *)o;
    if (!self->it)
        return 0;
    if (self->busy || !slab || slab != self->offered) {
        core_raise_kind(
            core_state_of(o), "usage",
            "another thread requested a batch of this iterator at the same time, and got this one; "
            "make one iterator for each thread, or let one thread take the batches and pass "
            "them on");
        return -1;
    }
    cachew_iterator_accept(self->it);
    Py_CLEAR(self->offered);
    return 0;
}

/* Returns a text that a function of the library gives for the iterator. */
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

/* Closes the iterator. If another thread is using it, interrupts that thread, which then closes it (leave).
 */
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
    {"accepted", NULL, iterator_accept,
     "set to the slab that next() gave, to accept it: the position moves past its batch", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"next", iterator_next, METH_VARARGS,
     "next(timeout_s=-1) -> Slab, the same until it is accepted; None at the end"},
    {"state", iterator_state, METH_NOARGS, "the position after the last batch that was accepted, as JSON"},
    {"profile", iterator_profile, METH_NOARGS, "where the time goes, as JSON"},
    {"quarantine", iterator_quarantine, METH_NOARGS, "(skipped, replaced, JSON list of records)"},
    {"held", iterator_held, METH_NOARGS, "number of batches that were given and are not released yet"},
    {"close", iterator_close, METH_NOARGS, "ends the iterator; may be called from any thread"},
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
