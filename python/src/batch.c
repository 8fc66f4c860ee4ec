/*
 * The type Slab: owns a batch, and releases it when the last reference to the slab is dropped. The type
 * Buffer: gives the bytes of one component through the buffer protocol. It owns a reference to the slab, so
 * that an array over the buffer keeps the batch.
 *
 * A forked child has none of the engine's threads: it may read a batch of the parent, and never releases it.
 */
#include "core.h"

#include <unistd.h>

struct slab {
    PyObject ob_base;
    struct cachew_batch *b; /* owned */
    pid_t owner;            /* the process in which the engine runs: only there the batch is released */
};

struct buffer {
    PyObject ob_base;
    PyObject *slab;  /* a reference */
    void *data;      /* in the slab's batch; may be NULL if size is 0 */
    Py_ssize_t size; /* bytes */
};

static struct cachew_batch *get(PyObject *self)
{
    return ((struct slab *)self)->b;
}

PyObject *core_slab_new(const struct core_state *st, struct cachew_batch *b)
{
    struct slab *s = (struct slab *)PyType_GenericAlloc(st->slab, 0);
    if (!s) {
        cachew_batch_release(b);
        return NULL;
    }
    s->b = b;
    s->owner = getpid();
    return (PyObject *)s;
}

static void slab_dealloc(PyObject *self)
{
    struct slab *s = (struct slab *)self;
    if (s->b && s->owner == getpid()) {
        Py_BEGIN_ALLOW_THREADS /* may wait: the last batch of a freed iterator ends the engine's threads */
            cachew_batch_release(s->b);
        Py_END_ALLOW_THREADS
    }
    core_free(self);
}

/* Returns a new buffer over memory of the slab's batch. */
static PyObject *buffer_over(PyObject *slab, const void *data, size_t size)
{
    struct buffer *o = (struct buffer *)PyType_GenericAlloc(core_state_of(slab)->buffer, 0);
    if (!o)
        return NULL;
    o->slab = Py_NewRef(slab);
    o->data = (void *)(uintptr_t)data;
    o->size = (Py_ssize_t)size;
    return (PyObject *)o;
}

static PyObject *dim(const void *component, size_t k)
{
    return PyLong_FromLongLong(((const struct cachew_component *)component)->dims[k]);
}

static PyObject *component(const void *slab, size_t i)
{
    PyObject *self = (PyObject *)(uintptr_t)slab;
    const struct cachew_component *c = cachew_batch_component(get(self), i);
    size_t lengths = cachew_batch_records(get(self)) * sizeof(c->lengths[0]);
    /* if one of the new objects is NULL, Py_BuildValue releases the others, and the exception stays set */
    return Py_BuildValue("(ssNNN)", c->name, cachew_dtype_name(c->dtype), core_tuple((size_t)c->ndim, dim, c),
                         buffer_over(self, c->data, c->size),
                         c->lengths ? buffer_over(self, c->lengths, lengths) : Py_NewRef(Py_None));
}

static PyObject *slab_components(PyObject *self, PyObject *unused)
{
    return core_tuple(cachew_batch_count(get(self)), component, self);
}

static PyObject *slab_place(PyObject *self, PyObject *unused)
{
    const struct cachew_batch *b = get(self);
    return Py_BuildValue("(KKII)", (unsigned long long)cachew_batch_epoch(b),
                         (unsigned long long)cachew_batch_g(b), cachew_batch_flags(b),
                         cachew_batch_records(b));
}

static PyObject *record_id(const void *batch, size_t i)
{
    char id[128];
    cachew_batch_record_id(batch, (uint32_t)i, id, sizeof(id));
    return PyUnicode_FromString(id);
}

static PyObject *slab_records(PyObject *self, PyObject *unused)
{
    return core_tuple(cachew_batch_records(get(self)), record_id, get(self));
}

static PyObject *record_flags(const void *batch, size_t i)
{
    return PyLong_FromUnsignedLong(cachew_batch_record_flags(batch, (uint32_t)i));
}

static PyObject *slab_record_flags(PyObject *self, PyObject *unused)
{
    return core_tuple(cachew_batch_records(get(self)), record_flags, get(self));
}

/* Returns a hash of the batch as a Python int. Other threads run meanwhile: hashing reads the whole batch. */
static PyObject *hash_as_int(PyObject *self, struct cachew_hash (*hash)(const struct cachew_batch *b))
{
    char text[33];
    struct cachew_hash h;
    Py_BEGIN_ALLOW_THREADS h = hash(get(self));
    Py_END_ALLOW_THREADS cachew_hash_print(h, text);
    return PyLong_FromString(text, NULL, 16);
}

static PyObject *slab_hash(PyObject *self, PyObject *unused)
{
    return hash_as_int(self, cachew_batch_hash);
}

static PyObject *slab_set_hash(PyObject *self, PyObject *unused)
{
    return hash_as_int(self, cachew_batch_set_hash);
}

static PyObject *slab_arrow(PyObject *self, PyObject *batched)
{
    int yes = PyObject_IsTrue(batched);
    return yes < 0 ? NULL : core_arrow_capsules(self, get(self), yes);
}

static PyMethodDef slab_methods[] = {
    {"arrow", slab_arrow, METH_O, "arrow(batched) -> capsules arrow_schema and arrow_array over the batch"},
    {"components", slab_components, METH_NOARGS, "((name, dtype, shape, data, lengths or None), ...)"},
    {"place", slab_place, METH_NOARGS, "(epoch, g, flags, records)"},
    {"records", slab_records, METH_NOARGS, "the ids of the records"},
    {"record_flags", slab_record_flags, METH_NOARGS, "the flags of the records"},
    {"hash", slab_hash, METH_NOARGS, "a hash of 128 bits; the sum over all batches is the digest"},
    {"set_hash", slab_set_hash, METH_NOARGS,
     "a hash of 128 bits; the sum over all batches is the set digest"},
    {0},
};

static PyType_Slot slab_slots[] = {
    {Py_tp_doc, "A batch in the engine's memory, which is freed with the last reference"},
    {Py_tp_dealloc, slab_dealloc},
    {Py_tp_methods, slab_methods},
    {0},
};

PyType_Spec core_slab_spec = {
    "cachew._core.Slab", sizeof(struct slab), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slab_slots};

/* ---- buffers ---- */

static void buffer_dealloc(PyObject *self)
{
    Py_XDECREF(((struct buffer *)self)->slab);
    core_free(self);
}

static int buffer_get(PyObject *self, Py_buffer *view, int flags)
{
    static char nothing; /* an empty component may have no address */
    struct buffer *o = (struct buffer *)self;
    return PyBuffer_FillInfo(view, self, o->data ? o->data : &nothing, o->size, 0, flags);
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, "The bytes of a component; owns a reference to the slab"},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_get},
    {0},
};

PyType_Spec core_buffer_spec = {
    "cachew._core.Buffer", sizeof(struct buffer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};
