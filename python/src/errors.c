/* Raises errors of the library as Python exceptions; cachew._errors.from_core makes the exception objects. */
#include "core.h"

#include <stdarg.h>

/* Raises the exception error, whose reference it takes. error NULL: an exception is set already. Returns
 * NULL. */
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
    PyObject *error = PyObject_CallFunction(
        st->error, "yyiyyyyyyy", cachew_error_kind(e), cachew_error_message(e), cachew_error_errno(e),
        cachew_error_operator(e), cachew_error_attribute(e), cachew_error_value(e), cachew_error_expected(e),
        cachew_error_file(e), cachew_error_record(e),
        cachew_error_detail(e)); /* facts that do not apply are NULL, which becomes None */
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
    return raise_made(PyObject_CallFunction(st->error, "yy", kind, message));
}

PyObject *core_text(char *text)
{
    PyObject *s = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace")
                       : PyErr_NoMemory();
    cachew_free(text);
    return s;
}
