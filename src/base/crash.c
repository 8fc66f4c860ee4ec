#include "base/crash.h"

#ifndef CW_CRASH_POINTS

const struct cw_crash_point *cw_crash_points(size_t *ret_n)
{
    *ret_n = 0;
    return NULL;
}

#else

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/notice.h"

static const struct cw_crash_point points[] = {
    {"client-attach", "client", "attach"},         /* it has said who it is */
    {"client-batch", "client", "mid-batch"},       /* a batch is there, and nobody has it yet */
    {"client-taken", "client", "mid-batch"},       /* a batch goes to the user */
    {"client-part", "client", "part"},             /* a part of a batch is there */
    {"client-progress", "client", "completion"},   /* it has said what it does not need any more */
    {"worker-prepared", "worker", "attach"},       /* it has seen the data, and said so */
    {"worker-lease", "worker", "lease"},           /* it has a lease, and nobody works on it yet */
    {"worker-batch", "worker", "mid-batch"},       /* a batch is about to be sent */
    {"worker-part", "worker", "part"},             /* a part of a batch is about to be sent */
    {"worker-completed", "worker", "completion"},  /* a range is finished, and it is about to say so */
    {"dispatcher-attach", "dispatcher", "attach"}, /* a client has said who it is, and has no answer yet */
    {"dispatcher-lease", "dispatcher", "lease"},   /* a lease is about to be sent */
    /* a range is finished, and nothing is written yet */
    {"dispatcher-completed", "dispatcher", "completion"},
    {"dispatcher-commit", "dispatcher", "commit"},    /* a transaction is about to become durable */
    {"cache-write", "run", "cache"},                  /* entries are about to be written */
    {"cache-publish", "run", "cache"},                /* a segment is about to get its table */
    {"cache-rename", "run", "cache"},                 /* a segment is complete, and has no name yet */
    {"cache-published", "run", "cache"},              /* others can find it */
    {"cache-evict", "run", "cache"},                  /* a segment is about to be removed */
    {"dispatcher-committed", "dispatcher", "commit"}, /* it is durable, and nobody was told */
};

const struct cw_crash_point *cw_crash_points(size_t *ret_n)
{
    *ret_n = CW_COUNT_OF(points);
    return points;
}

#define MAX_WANTED 16

static struct {
    char name[64];
    long n;
    bool stop;
    atomic_long passed;
} wanted[MAX_WANTED];

static size_t n_wanted;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *mutation; /* immutable once it is read */

static void crash_read_environment(void)
{
    mutation = getenv("CACHEW_MUTATE");
    for (const char *at = getenv("CACHEW_CRASH"), *colon;
         at && (colon = strchr(at, ':')) && n_wanted < MAX_WANTED; n_wanted++) {
        char *end;
        if ((size_t)(colon - at) >= sizeof(wanted->name))
            return;
        memcpy(wanted[n_wanted].name, at, (size_t)(colon - at));
        wanted[n_wanted].n = strtol(colon + 1, &end, 10);
        wanted[n_wanted].stop = strncmp(end, ":stop", strlen(":stop")) == 0;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
}

void cw_crash_point(const char *name)
{
    pthread_once(&once, crash_read_environment);
    for (size_t i = 0; i < n_wanted; i++) {
        if (strcmp(name, wanted[i].name) != 0 || atomic_fetch_add(&wanted[i].passed, 1) + 1 != wanted[i].n)
            continue;
        if (wanted[i].stop)
            cw_notice("crash point %s", name);
        kill(getpid(), wanted[i].stop ? SIGSTOP : SIGKILL);
    }
}

#define TURN_LOOK_MS 20 /* at whether it is over */

static struct {
    pthread_once_t once;
    int fd; /* negative: all are taken */
} turns = {.once = PTHREAD_ONCE_INIT};

static void turns_open(void)
{
    const char *path = getenv("CACHEW_TURNS");
    turns.fd = path ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
}

void cw_crash_turn(const atomic_int *over)
{
    pthread_once(&turns.once, turns_open);
    while (turns.fd >= 0 && !atomic_load(over)) {
        struct pollfd p = {.fd = turns.fd, .events = POLLIN};
        char turn;
        if (poll(&p, 1, TURN_LOOK_MS) <= 0 || read(turns.fd, &turn, 1) != 1)
            continue;
        if (turn == '.')
            return;
        close(turns.fd);
        turns.fd = -1;
    }
}

bool cw_mutated(const char *name)
{
    pthread_once(&once, crash_read_environment);
    return mutation && strcmp(name, mutation) == 0;
}

#endif
