/*
 * Calls that may take long: opening sources, which makes indexes. They run on a thread of their own, so that
 * this one can look for signals; what Python does with a signal happens on the main thread and nowhere else.
 */
#include "core.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a signal may wait for its handler. */
#define SLICE_NS 20000000L

struct call {
    void (*fn)(void *);
    void *arg;
};

static void *start(void *p)
{
    struct call *c = p;
    c->fn(c->arg);
    return NULL;
}

/* Waits for a slice. Whether the thread is done. */
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

bool core_call_interruptibly(void (*fn)(void *), void *arg, volatile int *interrupt)
{
    struct call c = {fn, arg};
    pthread_t thread;
    bool good = true;
    if (pthread_create(&thread, NULL, start, &c) != 0) { /* then it can't be interrupted */
        Py_BEGIN_ALLOW_THREADS fn(arg);
        Py_END_ALLOW_THREADS return true;
    }
    while (!join(thread))
        if (good && PyErr_CheckSignals() < 0) {
            good = false;
            *interrupt = 1;
        }
    return good;
}

/* For PyArg_ParseTuple: a path as bytes, or NULL for None. */
static int optional_path(PyObject *value, void *ret)
{
    PyObject **path = ret;
    if (value == Py_None) {
        *path = NULL;
        return 1;
    }
    return PyUnicode_FSConverter(value, path);
}

void core_paths_release(struct core_paths *paths)
{
    Py_CLEAR(paths->index_dir);
    Py_CLEAR(paths->cache_dir);
}

/* A pending call: raises the exception, which it owns. */
static int raise_again(void *arg)
{
    PyObject *e = arg;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return -1;
}

/* Who waits can't raise what a note ends with. What a handler of a signal raised meanwhile (Ctrl-C,
 * sys.exit()) is not lost: it is raised once the note's caller, or Python itself, makes pending calls.
 * Everything else is printed. */
static void note_failed(PyObject *logger)
{
    PyObject *type, *e, *traceback;
    /* handlers, and pending calls, run on the main thread only */
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

/* What a service is waited for, and what can't be cached, goes to the logger "cachew", as a warning. On any
 * thread, with nothing held. */
static void note(void *unused, const char *text)
{
    (void)unused;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "cachew") : NULL;
    /* what was too long was cut, perhaps within a letter */
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

bool core_options(PyObject *tuple, struct cachew_options *ret, struct core_paths *ret_paths)
{
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    long long seed, epochs, first_epoch;
    unsigned long long memory, cache_bytes;
    *ret_paths = (struct core_paths){0};
    if (!PyArg_ParseTuple(tuple, "LLLIKIIpzO&zzzzdzzzzzO&zK:options", &seed, &epochs, &first_epoch,
                          &o.threads, &memory, &o.rank, &o.world_size, &o.optimize, &o.state, optional_path,
                          &ret_paths->index_dir, &o.service, &o.job, &o.token, &o.transport,
                          &o.open_timeout_s, &o.order, &o.guarantee, &o.tls_ca, &o.tls_cert, &o.tls_key,
                          optional_path, &ret_paths->cache_dir, &o.cache, &cache_bytes)) {
        core_paths_release(ret_paths);
        return false;
    }
    o.seed = seed;
    o.epochs = epochs;
    o.first_epoch = first_epoch;
    o.memory = memory;
    o.index_dir = ret_paths->index_dir ? PyBytes_AsString(ret_paths->index_dir) : NULL;
    o.cache_dir = ret_paths->cache_dir ? PyBytes_AsString(ret_paths->cache_dir) : NULL;
    o.cache_bytes = cache_bytes;
    o.note = note;
    *ret = o;
    return true;
}
