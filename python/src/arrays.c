/* Data sets in memory: registers buffers of Python objects, or an Arrow stream, as data of the operator
 * `arrays`. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* The Python buffers of one data set; they keep the objects alive. */
struct held {
    size_t n;
    Py_buffer buffers[]; /* at most two per component: data and offsets */
};

static void release(void *arg)
{
    struct held *h = arg;
    if (!Py_IsInitialized())
        return; /* the interpreter has ended, and its objects no longer exist */
    PyGILState_STATE state = PyGILState_Ensure();
    for (size_t i = 0; i < h->n; i++)
        if (h->buffers[i].obj)
            PyBuffer_Release(&h->buffers[i]);
    PyGILState_Release(state);
    free(h);
}

static void capsule_free(PyObject *capsule)
{
    struct cachew_arrays *a = PyCapsule_GetPointer(capsule, "cachew_arrays");
    Py_BEGIN_ALLOW_THREADS cachew_arrays_free(a);
    Py_END_ALLOW_THREADS
}

/* Returns (id, number of elements, a capsule that owns a). Takes over a. */
static PyObject *registered(struct cachew_arrays *a)
{
    PyObject *capsule = PyCapsule_New(a, "cachew_arrays", capsule_free);
    if (!capsule) {
        cachew_arrays_free(a);
        return NULL;
    }
    return Py_BuildValue("(sKN)", cachew_arrays_id(a), (unsigned long long)cachew_arrays_count(a), capsule);
}

/* Reads a component from the tuple (name, dtype, dims of an element, data, offsets or None). Adds its buffers
 * to h. *ret borrows from item, dims and h. Returns false if an exception is set. */
static bool read_component(PyObject *item, unsigned long long n_elements, struct cachew_array *ret,
                           int64_t dims[CACHEW_MAX_NDIM], struct held *h)
{
    const char *dtype;
    PyObject *shape, *data, *offsets;
    if (!PyArg_ParseTuple(item, "ssO!OO:arrays", &ret->name, &dtype, &PyTuple_Type, &shape, &data, &offsets))
        return false;
    for (ret->dtype = CACHEW_BOOL;
         cachew_dtype_name(ret->dtype) && strcmp(cachew_dtype_name(ret->dtype), dtype) != 0; ret->dtype++)
        ;
    if (!cachew_dtype_name(ret->dtype) || PyTuple_Size(shape) > CACHEW_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError,
                     "component %s: the dtype %s is unknown, or it has more than %d dimensions", ret->name,
                     dtype, CACHEW_MAX_NDIM);
        return false;
    }
    ret->ndim = (int)PyTuple_Size(shape);
    for (int i = 0; i < ret->ndim; i++)
        if ((dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i))) < 0 && PyErr_Occurred())
            return false;
    ret->dims = dims;
    if (PyObject_GetBuffer(data, &h->buffers[h->n], PyBUF_SIMPLE) < 0)
        return false;
    unsigned long long has = (unsigned long long)h->buffers[h->n].len,
                       needs = n_elements * cachew_dtype_size(ret->dtype);
    ret->data = h->buffers[h->n++].buf;
    for (int i = 0; i < ret->ndim; i++)
        needs *= (unsigned long long)dims[i];
    if (offsets != Py_None) {
        if (PyObject_GetBuffer(offsets, &h->buffers[h->n], PyBUF_SIMPLE) < 0)
            return false;
        ret->offsets = h->buffers[h->n].buf;
        bool whole = (unsigned long long)h->buffers[h->n++].len / sizeof(uint64_t) == n_elements + 1;
        for (unsigned long long i = 0; whole && i < n_elements; i++)
            whole = ret->offsets[i] <= ret->offsets[i + 1];
        /* has + 1: the offsets are wrong, and the check below must fail */
        needs = whole ? ret->offsets[n_elements] : has + 1;
    }
    if ((ret->dtype == CACHEW_BYTES) != (offsets != Py_None) || has < needs) {
        PyErr_Format(
            PyExc_ValueError,
            "component %s: its data or offsets are too short for %llu elements, or the offsets decrease",
            ret->name, n_elements);
        return false;
    }
    return true;
}

PyObject *core_arrays(PyObject *module, PyObject *args)
{
    PyObject *list;
    unsigned long long n_elements;
    if (!PyArg_ParseTuple(args, "O!K:arrays", &PyList_Type, &list, &n_elements))
        return NULL;
    size_t n = (size_t)PyList_Size(list);
    struct held *h = calloc(1, sizeof(*h) + 2 * n * sizeof(h->buffers[0]));
    struct cachew_array *arrays = calloc(n + 1, sizeof(*arrays));
    int64_t (*dims)[CACHEW_MAX_NDIM] = calloc(n + 1, sizeof(*dims));
    struct cachew_arrays *a = NULL;
    struct cachew_error *err = NULL;
    bool good = h && arrays && dims;
    int r = -1;
    if (!good)
        PyErr_NoMemory();
    for (size_t i = 0; good && i < n; i++)
        good = read_component(PyList_GetItem(list, (Py_ssize_t)i), n_elements, &arrays[i], dims[i], h);
    if (good) {
        Py_BEGIN_ALLOW_THREADS r = cachew_arrays_new(arrays, n, n_elements, release, h, &a,
                                                     &err); /* takes long: it hashes all data */
        Py_END_ALLOW_THREADS if (r < 0) core_raise(PyModule_GetState(module), err);
    }
    free(arrays);
    free(dims);
    if (r >= 0)
        return registered(a);
    if (h) /* cachew_arrays_new takes h over only if it succeeds */
        release(h);
    return NULL;
}

PyObject *core_arrow(PyObject *module, PyObject *args)
{
    PyObject *capsule, *rows;
    Py_buffer numbers = {0}; /* of the rows; its obj stays NULL if all rows are taken */
    if (!PyArg_ParseTuple(args, "OO:arrow", &capsule, &rows))
        return NULL;
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    struct cachew_arrays *a = NULL;
    struct cachew_error *err = NULL;
    int r;
    if (!stream || (rows != Py_None && PyObject_GetBuffer(rows, &numbers, PyBUF_SIMPLE) < 0))
        return NULL;
    Py_BEGIN_ALLOW_THREADS /* a stream that Python code produces takes the interpreter's lock itself */
        r = rows == Py_None ? cachew_arrays_from_arrow(stream, &a, &err)
                            : cachew_arrays_from_arrow_rows(
                                  stream, numbers.buf, (uint64_t)numbers.len / sizeof(uint64_t), &a, &err);
    Py_END_ALLOW_THREADS if (numbers.obj) PyBuffer_Release(&numbers);
    return r < 0 ? core_raise(PyModule_GetState(module), err) : registered(a);
}
