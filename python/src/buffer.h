/*
 * The buffer protocol, which the headers of the limited API declare only from Python 3.11 on. Python 3.10 has
 * the same struct and functions, and no later release of 3.10 can change them: it gets none.
 */
#pragma once
#include <Python.h>

typedef struct {
    void *buf;
    PyObject *obj; /* a reference, which PyBuffer_Release drops */
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

#define PyBUF_SIMPLE 0
#define Py_bf_getbuffer 1

PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *o, Py_buffer *view, int flags);
PyAPI_FUNC(int)
    PyBuffer_FillInfo(Py_buffer *view, PyObject *o, void *buf, Py_ssize_t len, int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
