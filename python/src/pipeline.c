/* The type Pipeline: a pipeline that the library has parsed and checked. It is immutable. */
#include "core.h"

static struct cachew_pipeline *get(PyObject *self)
{
    return ((struct core_pipeline *)self)->p;
}

/* Returns a new object that owns p. On failure p is freed. */
static PyObject *wrap(PyTypeObject *type, struct cachew_pipeline *p)
{
    PyObject *self = PyType_GenericAlloc(type, 0);
    if (self)
        ((struct core_pipeline *)self)->p = p;
    else
        cachew_pipeline_free(p);
    return self;
}

/* Pipeline(json, base_dir): parses and checks a pipeline, types included. Reads no data. */
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
    cachew_pipeline_free(get(self));
    core_free(self);
}

static PyObject *pipeline_json(PyObject *self, PyObject *unused)
{
    return core_text(cachew_pipeline_json(get(self)));
}

struct place { /* a component of a schema */
    const struct cachew_schema *schema;
    size_t i; /* the component's index */
};

/* Returns dimension k of a component; None if it varies. */
static PyObject *dim(const void *place, size_t k)
{
    const struct place *p = place;
    int64_t d = cachew_schema_dim(p->schema, p->i, (int)k);
    return d < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(d);
}

/* Returns (name, dtype, dimensions) of component i. dimensions is None if even their number varies. */
static PyObject *component(const void *schema, size_t i)
{
    const struct place p = {schema, i};
    int n = cachew_schema_ndim(schema, i);
    return Py_BuildValue("(ssN)", cachew_schema_name(schema, i),
                         cachew_dtype_name(cachew_schema_dtype(schema, i)),
                         n < 0 ? Py_NewRef(Py_None) : core_tuple((size_t)n, dim, &p));
}

static PyObject *pipeline_schema(PyObject *self, PyObject *unused)
{
    struct cachew_schema *s;
    struct cachew_error *e;
    if (cachew_pipeline_schema(get(self), &s, &e) < 0)
        return core_raise(core_state_of(self), e);
    PyObject *result = Py_BuildValue("(NK)", core_tuple(cachew_schema_count(s), component, s),
                                     (unsigned long long)cachew_schema_batch_size(s));
    cachew_schema_free(s);
    return result;
}

static void count_batches(struct core_call *c)
{
    c->r = cachew_pipeline_batches(c->p, &c->options, &c->n, &c->error);
}

static void count_elements(struct core_call *c)
{
    c->r = cachew_pipeline_elements(c->p, &c->options, &c->n, &c->error);
}

static PyObject *call_for_count(void (*fn)(struct core_call *), PyObject *self, PyObject *options)
{
    struct core_call c = {.fn = fn};
    if (!core_call(&c, core_state_of(self), self, options))
        return NULL;
    return c.r == 1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(c.n == UINT64_MAX ? -1 : (long long)c.n);
}

static PyObject *pipeline_batches(PyObject *self, PyObject *options)
{
    return call_for_count(count_batches, self, options);
}

static PyObject *pipeline_elements(PyObject *self, PyObject *options)
{
    return call_for_count(count_elements, self, options);
}

static PyObject *call_for_text(struct core_call *c, PyObject *self, PyObject *options)
{
    if (core_call(c, core_state_of(self), self, options))
        return core_text(c->text);
    cachew_free(c->text);
    return NULL;
}

static void place(struct core_call *c)
{
    c->r = cachew_pipeline_state(c->p, &c->options, &c->text, &c->error);
}

static PyObject *pipeline_state(PyObject *self, PyObject *options)
{
    struct core_call c = {.fn = place};
    return call_for_text(&c, self, options);
}

static void explain(struct core_call *c)
{
    c->r = cachew_pipeline_explain(c->p, &c->options, c->seconds, c->json, &c->text, &c->error);
}

static PyObject *pipeline_explain(PyObject *self, PyObject *args)
{
    struct core_call c = {.fn = explain};
    PyObject *options;
    if (!PyArg_ParseTuple(args, "O!dp:explain", &PyTuple_Type, &options, &c.seconds, &c.json))
        return NULL;
    return call_for_text(&c, self, options);
}

static void written(void *call, uint64_t elements, uint64_t bytes)
{
    struct core_call *c = call;
    c->elements = elements;
    c->bytes = bytes;
}

static void materialize(struct core_call *c)
{
    c->r = cachew_pipeline_materialize(c->p, &c->options, c->path, c->format, c->shard_bytes, written, c,
                                       &c->text, &c->error);
}

static PyObject *pipeline_materialize(PyObject *self, PyObject *args)
{
    struct core_call c = {.fn = materialize};
    PyObject *options, *path;
    unsigned long long shard_bytes;
    if (!PyArg_ParseTuple(args, "O!O&sKO:materialize", &PyTuple_Type, &options, PyUnicode_FSConverter, &path,
                          &c.format, &shard_bytes, &c.progress))
        return NULL;
    c.path = PyBytes_AsString(path);
    c.shard_bytes = shard_bytes;
    PyObject *result = call_for_text(&c, self, options);
    Py_DECREF(path);
    return result;
}

static PyMethodDef methods[] = {
    {"materialize", pipeline_materialize, METH_VARARGS,
     "materialize(options, path, format, shard_bytes, progress) -> the result as JSON"},
    {"explain", pipeline_explain, METH_VARARGS,
     "explain(options, seconds, json) -> what `cachew explain` prints"},
    {"batches", pipeline_batches, METH_O,
     "batches(options) -> number of batches of an epoch for each rank; -1: endless; None: not known "
     "beforehand"},
    {"elements", pipeline_elements, METH_O,
     "elements(options) -> number of elements of an epoch; -1: endless; None: not known beforehand"},
    {"state", pipeline_state, METH_O,
     "state(options) -> the state of an iterator before its first batch; computes nothing"},
    {"json", pipeline_json, METH_NOARGS, "the pipeline as JSON, without attributes that have their default"},
    {"schema", pipeline_schema, METH_NOARGS, "(((name, dtype, shape of an element), ...), batch size or 0)"},
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
