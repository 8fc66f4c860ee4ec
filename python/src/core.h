/*
 * What the files of the extension module cachew._core share. It knows the public C interface and Python's
 * limited API of 3.11, nothing else: no NumPy, nothing of the library's inside. Everything that is not about
 * ownership, waiting or bytes is written in Python.
 */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cachew/cachew.h>
#include <stdbool.h>
#include <sys/types.h>

/* One per module object. */
struct core_state {
    PyTypeObject *pipeline, *iterator, *slab, *buffer;
    PyObject *error; /* cachew._errors.from_core */
};

/* module.c: the state of the module that one of the types belongs to. */
struct core_state *core_state_of(PyObject *self);

/* errors.c: sets the Python exception for e, which it frees. Returns NULL. */
void *core_raise(const struct core_state *st, struct cachew_error *e);
/* The same for what this module finds itself: kind is one of cachew._errors. */
void *core_raise_kind(const struct core_state *st, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A text that the library returned new, as str; frees it. NULL (no memory) is passed on as MemoryError. */
PyObject *core_text(char *text);

/* module.c: frees an object of one of the types, and its reference to the type. */
void core_free(PyObject *self);
/* A new tuple of n items, new references that `item` returns. NULL: an exception is set. */
PyObject *core_tuple(size_t n, PyObject *(*item)(const void *arg, size_t i), const void *arg);

/* pipeline.c */
struct core_pipeline {
    PyObject ob_base;
    struct cachew_pipeline *p; /* immutable once the object is there */
};

extern PyType_Spec core_pipeline_spec;
PyObject *core_pipeline_load(PyObject *module, PyObject *path);

/* A call of the library that may take long: of a pipeline, with options. */
struct core_call {
    void (*fn)(
        struct core_call *call); /* sets r, and error or a result. It runs without the interpreter's lock */
    const struct cachew_pipeline *p;
    struct cachew_options options;
    double seconds; /* of explain */
    int json;
    /* results; the texts and the iterator are the caller's, also where core_call fails */
    char *text;
    uint64_t n;
    struct cachew_iterator *it;
    struct cachew_error *error;
    int r;
};

/* wait.c: reads the options from the tuple that _options.py makes (the library checks them), and runs
 * call->fn on a thread of its own while this thread handles signals. If a signal's handler raises, the call
 * is interrupted. False: an exception is set. */
bool core_call(struct core_call *call, const struct core_state *st, PyObject *pipeline, PyObject *options);

/* iterator.c */
extern PyType_Spec core_iterator_spec;
PyObject *core_iterator_open(PyObject *module, PyObject *args);

/* batch.c: a batch in Python's hands. The slab object owns it; buffers, one per component, keep the slab
 * object. */
extern PyType_Spec core_slab_spec, core_buffer_spec;
/* Takes the batch over, also on failure. */
PyObject *core_slab_new(const struct core_state *st, struct cachew_batch *b);

/* arrays.c: arrays([(name, dtype, dims, data, offsets or None)], n) and arrow(capsule), both -> (id, count,
 * what keeps the data) */
PyObject *core_arrays(PyObject *module, PyObject *args);
PyObject *core_arrow(PyObject *module, PyObject *capsule);

/* arrow.c: a new tuple of two capsules, arrow_schema and arrow_array. batched: components have a batch
 * dimension. */
PyObject *core_arrow_capsules(PyObject *slab, const struct cachew_batch *b, bool batched);
