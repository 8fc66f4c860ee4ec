/*
 * Declarations that the files of the extension module cachew._core share. The module uses only the library's
 * public C interface and Python's limited API of 3.10: no NumPy, and no internal functions of the library. It
 * does what concerns ownership, waiting and bytes; all else is written in Python.
 */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cachew/cachew.h>
#include <stdbool.h>
#include <sys/types.h>

#include "buffer.h"

/* The state of a module object, which owns the references. */
struct core_state {
    PyTypeObject *pipeline, *iterator, *slab, *buffer;
    PyObject *error; /* the function cachew._errors.from_core */
};

/* All functions need the interpreter's lock (the GIL), unless they say otherwise. */

/* module.c: returns the state of the module to which the type of self belongs. */
struct core_state *core_state_of(PyObject *self);

/* errors.c: sets the Python exception for e, which it frees. Returns NULL. */
void *core_raise(const struct core_state *st, struct cachew_error *e);
/* Sets the Python exception for an error that this module found itself. kind: a key of
 * cachew._errors.BY_KIND. Returns NULL. */
void *core_raise_kind(const struct core_state *st, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns a text of the library as a new str, and frees the text. text NULL means that there was no memory:
 * then it raises MemoryError and returns NULL. */
PyObject *core_text(char *text);

/* module.c: frees an object of one of the module's types, and its reference to the type. */
void core_free(PyObject *self);
/* Returns a new tuple of n items; item(arg, i) returns item i, a new reference. NULL: an exception is set. */
PyObject *core_tuple(size_t n, PyObject *(*item)(const void *arg, size_t i), const void *arg);

/* pipeline.c */
struct core_pipeline {
    PyObject ob_base;
    struct cachew_pipeline *p; /* owned; immutable after construction */
};

extern PyType_Spec core_pipeline_spec;
PyObject *core_pipeline_load(PyObject *module, PyObject *path);

/* A call of a library function that may take long. The function takes a pipeline and options. */
struct core_call {
    /* Calls the function. Sets r, and error or a result. Runs on another thread, without the interpreter's
     * lock. */
    void (*fn)(struct core_call *call);
    const struct cachew_pipeline *p; /* borrowed */
    struct cachew_options options;
    double seconds;            /* of explain: how long to run the pipeline; 0: not at all */
    int json;                  /* of explain: return JSON */
    const char *path, *format; /* of materialize; borrowed */
    uint64_t shard_bytes;      /* of materialize */
    PyObject *progress; /* called with the two numbers below while fn runs; borrowed. NULL or None: none */
    _Atomic uint64_t elements, bytes; /* of materialize: written so far; set by fn */
    /* Results. The caller owns text and it, also if core_call returns false. */
    char *text;
    uint64_t n;
    struct cachew_iterator *it;
    struct cachew_error *error; /* if r < 0; core_call frees it */
    int r;                      /* what the library's function returned */
};

/* wait.c: reads the options from the tuple that _options.py makes (the library checks their values), and runs
 * call->fn on a separate thread, while this thread handles signals. If a signal handler raises, the call is
 * interrupted. Returns false if an exception is set. */
bool core_call(struct core_call *call, const struct core_state *st, PyObject *pipeline, PyObject *options);

/* iterator.c */
extern PyType_Spec core_iterator_spec;
PyObject *core_iterator_open(PyObject *module, PyObject *args);

/* batch.c: a slab object owns a batch; a buffer object gives the memory of one component, and owns a
 * reference to the slab. */
extern PyType_Spec core_slab_spec, core_buffer_spec;
/* Returns a new slab. Takes over the batch, also on failure (NULL: an exception is set). */
PyObject *core_slab_new(const struct core_state *st, struct cachew_batch *b);

/* arrays.c: the Python functions arrays([(name, dtype, dims, data, offsets or None)], n) and arrow(capsule,
 * numbers of rows as uint64, or None for all rows). Both return (id of the data, number of elements, an
 * object that keeps the data registered). */
PyObject *core_arrays(PyObject *module, PyObject *args);
PyObject *core_arrow(PyObject *module, PyObject *args);

/* arrow.c: returns a new tuple of two capsules, arrow_schema and arrow_array. slab: owns b. batched:
 * components have a batch dimension. NULL: an exception is set. */
PyObject *core_arrow_capsules(PyObject *slab, const struct cachew_batch *b, bool batched);
