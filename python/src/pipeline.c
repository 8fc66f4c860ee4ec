/* Pipeline: a checked pipeline. Immutable. */
#include "core.h"

static struct cachew_pipeline *get(PyObject *self)
{
    return ((struct core_pipeline *)self)->p;
}

static PyObject *wrap(PyTypeObject *type, struct cachew_pipeline *p)
{
    allocfunc alloc = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = alloc(type, 0);
    if (self)
        ((struct core_pipeline *)self)->p = p;
    else
        cachew_pipeline_free(p);
    return self;
}

/* Pipeline(json, base_dir): checked in full, types included; no data are touched. */
static PyObject *pipeline_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *json;
    PyObject *base_dir;
    struct cachew_pipeline *p;
    struct cachew_error *e;
    if (!PyArg_ParseTuple(args, "sO&", &json, PyUnicode_FSConverter, &base_dir))
        return NULL;
    int r = cachew_pipeline_parse(json, PyBytes_AsString(base_dir), &p, &e);
    Py_DECREF(base_dir);
    return r < 0 ? core_raise(PyType_GetModuleState(type), e) : wrap(type, p);
}

PyObject *core_pipeline_load(PyObject *module, PyObject *path)
{
    struct core_state *st = PyModule_GetState(module);
    struct cachew_pipeline *p;
    struct cachew_error *e;
    PyObject *file;
    if (!PyUnicode_FSConverter(path, &file))
        return NULL;
    int r = cachew_pipeline_load(PyBytes_AsString(file), &p, &e);
    Py_DECREF(file);
    return r < 0 ? core_raise(st, e) : wrap(st->pipeline, p);
}

static void pipeline_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = PyType_GetSlot(type, Py_tp_free);
    cachew_pipeline_free(get(self));
    free_object(self);
    Py_DECREF(type);
}

static PyObject *pipeline_json(PyObject *self, PyObject *unused)
{
    return core_text(cachew_pipeline_json(get(self)));
}

/* A tuple with None for what varies; None: not even the number of dimensions is known. */
static PyObject *dims(const struct cachew_schema *s, size_t i)
{
    int n = cachew_schema_ndim(s, i);
    if (n < 0)
        return Py_NewRef(Py_None);
    PyObject *shape = PyTuple_New(n);
    for (int k = 0; k < n && shape; k++) {
        int64_t d = cachew_schema_dim(s, i, k);
        PyObject *value = d < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(d);
        if (!value || PyTuple_SetItem(shape, k, value) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *pipeline_schema(PyObject *self, PyObject *unused)
{
    struct cachew_schema *s;
    struct cachew_error *e;
    if (cachew_pipeline_schema(get(self), &s, &e) < 0)
        return core_raise(core_state_of(self), e);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < cachew_schema_count(s) && list; i++) {
        PyObject *shape = dims(s, i);
        PyObject *item = shape ? Py_BuildValue("(ssN)", cachew_schema_name(s, i),
                                               cachew_dtype_name(cachew_schema_dtype(s, i)), shape)
                               : NULL;
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyObject *result = list ? Py_BuildValue("(NK)", list, (unsigned long long)cachew_schema_batch_size(s))
                            : NULL;
    cachew_schema_free(s);
    return result;
}

struct counting {
    const struct cachew_pipeline *p;
    struct cachew_options options;
    uint64_t n;
    struct cachew_error *error;
    int r;
};

static void count_batches(void *arg)
{
    struct counting *x = arg;
    x->r = cachew_pipeline_batches(x->p, &x->options, &x->n, &x->error);
}

static PyObject *pipeline_batches(PyObject *self, PyObject *options)
{
    struct counting x = {.p = get(self)};
    struct core_paths paths;
    volatile int interrupt = 0;
    if (!core_options(options, &x.options, &paths))
        return NULL;
    x.options.interrupt = &interrupt;
    bool good = core_call_interruptibly(count_batches, &x, &interrupt);
    core_paths_release(&paths);
    if (good && x.r < 0)
        return core_raise(core_state_of(self), x.error);
    if (x.r < 0)
        cachew_error_free(x.error);
    if (!good)
        return NULL;
    return x.r == 1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(x.n == UINT64_MAX ? -1 : (long long)x.n);
}

struct placing {
    const struct cachew_pipeline *p;
    struct cachew_options options;
    char *text;
    struct cachew_error *error;
    int r;
};

static void place(void *arg)
{
    struct placing *x = arg;
    x->r = cachew_pipeline_state(x->p, &x->options, &x->text, &x->error);
}

static PyObject *pipeline_state(PyObject *self, PyObject *options)
{
    struct placing x = {.p = get(self)};
    struct core_paths paths;
    volatile int interrupt = 0;
    if (!core_options(options, &x.options, &paths))
        return NULL;
    x.options.interrupt = &interrupt;
    bool good = core_call_interruptibly(place, &x, &interrupt);
    core_paths_release(&paths);
    if (good)
        return x.r < 0 ? core_raise(core_state_of(self), x.error) : core_text(x.text);
    if (x.r < 0)
        cachew_error_free(x.error);
    else
        cachew_free(x.text);
    return NULL;
}

struct explaining {
    const struct cachew_pipeline *p;
    struct cachew_options options;
    double seconds;
    int json;
    char *text;
    struct cachew_error *error;
    int r;
};

static void explain(void *arg)
{
    struct explaining *x = arg;
    x->r = cachew_pipeline_explain(x->p, &x->options, x->seconds, x->json, &x->text, &x->error);
}

static PyObject *pipeline_explain(PyObject *self, PyObject *args)
{
    struct explaining x = {.p = get(self)};
    PyObject *options;
    struct core_paths paths;
    volatile int interrupt = 0;
    if (!PyArg_ParseTuple(args, "O!dp:explain", &PyTuple_Type, &options, &x.seconds, &x.json) ||
        !core_options(options, &x.options, &paths))
        return NULL;
    x.options.interrupt = &interrupt;
    bool good = core_call_interruptibly(explain, &x, &interrupt);
    core_paths_release(&paths);
    if (good)
        return x.r < 0 ? core_raise(core_state_of(self), x.error) : core_text(x.text);
    if (x.r < 0)
        cachew_error_free(x.error);
    else
        cachew_free(x.text);
    return NULL;
}

static PyMethodDef methods[] = {
    {"explain", pipeline_explain, METH_VARARGS,
     "explain(options, seconds, json) -> what `cachew explain` prints"},
    {"batches", pipeline_batches, METH_O,
     "batches(options) -> of an epoch, for each rank; -1: endless; None: not known beforehand"},
    {"state", pipeline_state, METH_O,
     "state(options) -> that of an iterator before its first batch; nothing is computed"},
    {"json", pipeline_json, METH_NOARGS, "the pipeline as JSON, with what is not a default"},
    {"schema", pipeline_schema, METH_NOARGS, "([(name, dtype, shape), ...], batch size or 0), of elements"},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Pipeline(json, base_dir): a checked pipeline"},
    {Py_tp_new, pipeline_new},
    {Py_tp_dealloc, pipeline_dealloc},
    {Py_tp_methods, methods},
    {0},
};

PyType_Spec core_pipeline_spec = {"cachew._core.Pipeline", sizeof(struct core_pipeline), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
