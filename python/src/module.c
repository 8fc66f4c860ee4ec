/* The module cachew._core: its types and functions. */
#include "core.h"

static struct PyModuleDef definition;

struct core_state *core_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

void core_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *core_tuple(size_t n, PyObject *(*item)(const void *arg, size_t i), const void *arg)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; i < n && tuple; i++) {
        PyObject *o = item(arg, i);
        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *operators_json(PyObject *module, PyObject *unused)
{
    return core_text(cachew_operators_json());
}

static PyObject *version(PyObject *module, PyObject *unused)
{
    return PyUnicode_FromString(cachew_version());
}

static PyObject *set_python(PyObject *module, PyObject *args)
{
    const char *python, *program;
    struct cachew_error *err = NULL;
    if (!PyArg_ParseTuple(args, "ss", &python, &program))
        return NULL;
    return cachew_set_python(python, program, &err) < 0 ? core_raise(PyModule_GetState(module), err)
                                                        : Py_NewRef(Py_None);
}

static PyObject *load_plugin(PyObject *module, PyObject *path)
{
    struct cachew_error *err = NULL;
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    int r = cachew_load_plugin(PyBytes_AsString(bytes), &err);
    Py_DECREF(bytes);
    return r < 0 ? core_raise(PyModule_GetState(module), err) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"arrays", core_arrays, METH_VARARGS, "arrays(components, n) -> (id, count, keeper): data in memory"},
    {"arrow", core_arrow, METH_VARARGS,
     "arrow(capsule, rows) -> (id, count, keeper): data of an Arrow stream"},
    {"load", core_pipeline_load, METH_O, "load(path) -> Pipeline: reads and checks a pipeline file"},
    {"open", core_iterator_open, METH_VARARGS, "open(pipeline, options) -> Iterator"},
    {"load_plugin", load_plugin, METH_O, "load_plugin(path): adds the operators of a shared object"},
    {"operators_json", operators_json, METH_NOARGS,
     "the operators and their attributes, as `cachew ops --json`"},
    {"set_python", set_python, METH_VARARGS,
     "set_python(python, program): the interpreter and the program of host processes, which run Python "
     "functions"},
    {"version", version, METH_NOARGS, "the library's version"},
    {0},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret)
{
    *ret = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *ret ? PyModule_AddType(module, *ret) : -1;
}

static int execute(PyObject *module)
{
    struct core_state *st = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("cachew._errors");
    st->error = errors ? PyObject_GetAttrString(errors, "from_core") : NULL;
    Py_XDECREF(errors);
    if (!st->error || add_type(module, &core_pipeline_spec, &st->pipeline) < 0 ||
        add_type(module, &core_iterator_spec, &st->iterator) < 0 ||
        add_type(module, &core_slab_spec, &st->slab) < 0)
        return -1;
    return add_type(module, &core_buffer_spec, &st->buffer);
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct core_state *st = PyModule_GetState(module);
    Py_VISIT(st->pipeline);
    Py_VISIT(st->iterator);
    Py_VISIT(st->slab);
    Py_VISIT(st->buffer);
    Py_VISIT(st->error);
    return 0;
}

static int clear(PyObject *module)
{
    struct core_state *st = PyModule_GetState(module);
    Py_CLEAR(st->pipeline);
    Py_CLEAR(st->iterator);
    Py_CLEAR(st->slab);
    Py_CLEAR(st->buffer);
    Py_CLEAR(st->error);
    return 0;
}

static void module_free(void *module)
{
    clear(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cachew._core",
    .m_doc = "The C interface of Cachew as Python objects. Internal: use the package cachew.",
    .m_size = sizeof(struct core_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
