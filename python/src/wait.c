/*
 * Calls that may take long, because they open sources and make indexes. The call runs on a separate thread,
 * so that the calling thread can check for signals: Python runs signal handlers only on the main thread.
 */
#include "core.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The longest time between two checks for signals, in nanoseconds. */
#define SLICE_NS 20000000L
/* A call reports its progress once in so many slices: five times a second. */
#define PROGRESS_SLICES 10

static void *start(void *p)
{
    struct core_call *c = p;
    c->fn(c);
    return NULL;
}

/* Waits for the thread, at most SLICE_NS. Returns whether the thread has ended. */
static bool join(pthread_t thread)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += SLICE_NS;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    int r;
    Py_BEGIN_ALLOW_THREADS r = pthread_timedjoin_np(thread, NULL, &t);
    Py_END_ALLOW_THREADS return r == 0;
}

/* Calls c->progress, if there is one. Returns false if it raised. */
static bool call_progress(struct core_call *c)
{
    if (!c->progress || c->progress == Py_None)
        return true;
    PyObject *result = PyObject_CallFunction(c->progress, "KK", (unsigned long long)c->elements,
                                             (unsigned long long)c->bytes);
    Py_XDECREF(result);
    return result != NULL;
}

/* Runs c->fn. Returns false if a signal handler or c->progress raised. */
static bool call_run(struct core_call *c)
{
    volatile int interrupt = 0;
    pthread_t thread;
    c->options.interrupt = &interrupt;
    if (pthread_create(&thread, NULL, start, c) != 0) { /* on this thread, where signals can't interrupt it */
        Py_BEGIN_ALLOW_THREADS c->fn(c);
        Py_END_ALLOW_THREADS return true;
    }
    for (unsigned slice = 1; !join(thread); slice++)
        if (!interrupt && (PyErr_CheckSignals() < 0 || (slice % PROGRESS_SLICES == 0 && !call_progress(c))))
            interrupt = 1;
    return !interrupt && (c->r < 0 || call_progress(c));
}

/* A converter for PyArg_ParseTuple: sets *ret to a path as bytes (a new reference), or to NULL for None. */
static int optional_path(PyObject *value, void *ret)
{
    PyObject **path = ret;
    if (value == Py_None) {
        *path = NULL;
        return 1;
    }
    return PyUnicode_FSConverter(value, path);
}

/* A pending call (Py_AddPendingCall): raises the exception arg, whose reference it owns. */
static int raise_again(void *arg)
{
    PyObject *e = arg;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return -1;
}

/* Handles the exception that logging a note raised; the library, which called note, can't raise it. If a
 * signal handler raised it (KeyboardInterrupt, SystemExit), it is raised later, when Python or goes_on
 * (iterator.c) makes pending calls. Any other exception is printed. */
static void note_failed(PyObject *logger)
{
    PyObject *type, *e, *traceback;
    /* signal handlers and pending calls run only on the main thread */
    bool of_signal = !PyErr_ExceptionMatches(PyExc_Exception) && gettid() == getpid();
    PyErr_Fetch(&type, &e, &traceback);
    PyErr_NormalizeException(&type, &e, &traceback);
    if (of_signal && (!traceback || PyException_SetTraceback(e, traceback) == 0) &&
        Py_AddPendingCall(raise_again, e) == 0) {
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, e, traceback);
        PyErr_WriteUnraisable(logger);
    }
}

/* Logs a note of the library (cachew_options.note) to the logger "cachew", as a warning. Called on any
 * thread, without the interpreter's lock. */
static void note(void *unused, const char *text)
{
    (void)unused;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "cachew") : NULL;
    /* the library may have cut a long text within a UTF-8 character, so errors are replaced */
    PyObject *said = logger ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace") : NULL;
    PyObject *done = said ? PyObject_CallMethod(logger, "warning", "sO", "%s", said) : NULL;
    if (!done)
        note_failed(logger);
    Py_XDECREF(done);
    Py_XDECREF(said);
    Py_XDECREF(logger);
    Py_XDECREF(logging);
    PyGILState_Release(gil);
}

/* Reads a _options.Options. The texts of *ret are borrowed from the tuple. *ret_index and *ret_cache, new
 * references or NULL, own the paths. Returns false if an exception is set. */
static bool call_read_options(PyObject *tuple, struct cachew_options *ret, PyObject **ret_index,
                              PyObject **ret_cache)
{
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    _Static_assert(sizeof(long) == sizeof(int64_t), "the formats l and k are 64-bit numbers");
    if (!PyArg_ParseTuple(tuple, "lllIkIIpzO&zzzzdzzzzzO&zkz:options", &o.seed, &o.epochs, &o.first_epoch,
                          &o.threads, &o.memory, &o.rank, &o.world_size, &o.optimize, &o.state, optional_path,
                          ret_index, &o.service, &o.job, &o.token, &o.transport, &o.open_timeout_s, &o.order,
                          &o.guarantee, &o.tls_ca, &o.tls_cert, &o.tls_key, optional_path, ret_cache,
                          &o.cache, &o.cache_bytes, &o.cut))
        return false;
    o.index_dir = *ret_index ? PyBytes_AsString(*ret_index) : NULL;
    o.cache_dir = *ret_cache ? PyBytes_AsString(*ret_cache) : NULL;
    o.note = note;
    *ret = o;
    return true;
}

bool core_call(struct core_call *call, const struct core_state *st, PyObject *pipeline, PyObject *options)
{
    PyObject *index_dir = NULL, *cache_dir = NULL;
    call->p = ((struct core_pipeline *)pipeline)->p;
    bool good = call_read_options(options, &call->options, &index_dir, &cache_dir) && call_run(call);
    Py_XDECREF(index_dir);
    Py_XDECREF(cache_dir);
    if (good && call->r < 0)
        core_raise(st, call->error);
    else if (call->r < 0)
        cachew_error_free(call->error);
    return good && call->r >= 0;
}
