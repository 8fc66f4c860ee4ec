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
    PyObject *errors; /* dict: kind of an error (a text) -> its class, of cachew._errors */
};

/* module.c: the state of the module that one of the types belongs to. */
struct core_state *core_state_of(PyObject *self);

/* errors.c: sets the Python exception for e, which it frees. Returns NULL. */
void *core_raise(const struct core_state *st, struct cachew_error *e);
/* The same for what this module finds itself: kind is a key of core_state.errors. */
void *core_raise_kind(const struct core_state *st, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A text that the library returned new, as str; frees it. NULL (no memory) is passed on as MemoryError. */
PyObject *core_text(char *text);

/* pipeline.c */
struct core_pipeline {
    PyObject ob_base;
    struct cachew_pipeline *p; /* immutable once the object is there */
};

extern PyType_Spec core_pipeline_spec;
PyObject *core_pipeline_load(PyObject *module, PyObject *path);

/* wait.c: for calls that may take long. fn runs on a thread of its own while signals are looked for; a signal
 * whose handler raises sets *interrupt, on which fn has to end soon. Called with the interpreter's lock,
 * which fn does not have. False: an exception is set, and what fn made is to be freed. */
bool core_call_interruptibly(void (*fn)(void *), void *arg, volatile int *interrupt);

/* Options from the tuple that _options.py makes; they are checked by the library. Texts are borrowed from the
 * tuple, but for the paths, which are released once the options are not needed any more. */
struct core_paths {
    PyObject *index_dir, *cache_dir;
};

bool core_options(PyObject *tuple, struct cachew_options *ret, struct core_paths *ret_paths);
void core_paths_release(struct core_paths *paths);

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
