/* Errors of the library as Python exceptions: the class by the error's kind, its facts as attributes. */
#include "core.h"

#include <stdarg.h>

static PyObject *class_of(const struct core_state *st, const char *kind)
{
    PyObject *found = PyDict_GetItemString(st->errors, kind);
    return found ? found : PyDict_GetItemString(st->errors, "internal");
}

/* An instance with its message and kind. NULL with an exception set. */
static PyObject *make(const struct core_state *st, const char *kind, const char *message)
{
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "backslashreplace");
    PyObject *error = text ? PyObject_CallFunctionObjArgs(class_of(st, kind), text, NULL) : NULL;
    PyObject *name = error ? PyUnicode_FromString(kind) : NULL;
    Py_XDECREF(text);
    if (name && PyObject_SetAttrString(error, "kind", name) < 0)
        Py_CLEAR(name);
    if (!name)
        Py_CLEAR(error);
    Py_XDECREF(name);
    return error;
}

static int set_fact(PyObject *error, const char *name, const char *value)
{
    if (!value)
        return 0;
    PyObject *text = PyUnicode_DecodeUTF8(value, (Py_ssize_t)strlen(value), "backslashreplace");
    int r = text ? PyObject_SetAttrString(error, name, text) : -1;
    Py_XDECREF(text);
    return r;
}

static void *raise_made(PyObject *error)
{
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

void *core_raise(const struct core_state *st, struct cachew_error *e)
{
    const struct {
        const char *name, *value;
    } facts[] = {
        {"operator", cachew_error_operator(e)}, {"attribute", cachew_error_attribute(e)},
        {"value", cachew_error_value(e)},       {"expected", cachew_error_expected(e)},
        {"file", cachew_error_file(e)},         {"record", cachew_error_record(e)},
    };

    PyObject *error = make(st, cachew_error_kind(e), cachew_error_message(e));
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]) && error; i++)
        if (set_fact(error, facts[i].name, facts[i].value) < 0)
            Py_CLEAR(error);
    cachew_error_free(e);
    return raise_made(error);
}

void *core_raise_kind(const struct core_state *st, const char *kind, const char *fmt, ...)
{
    char message[1200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    return raise_made(make(st, kind, message));
}

PyObject *core_text(char *text)
{
    PyObject *s = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace")
                       : PyErr_NoMemory();
    cachew_free(text);
    return s;
}
