/* Crash points, mutations and turns. Their environment variables are read once. */
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
    {"client-attach", "client", "attach"},         /* the client has sent Attach */
    {"client-batch", "client", "mid-batch"},       /* a batch has arrived and was not handed on */
    {"client-taken", "client", "mid-batch"},       /* a batch is about to be handed to the user */
    {"client-part", "client", "part"},             /* a part of a batch has arrived */
    {"client-progress", "client", "completion"},   /* the client has sent its progress */
    {"worker-prepared", "worker", "attach"},       /* the worker has opened the data and reported the plan */
    {"worker-lease", "worker", "lease"},           /* a lease has arrived, and its range is not begun */
    {"worker-batch", "worker", "mid-batch"},       /* a batch is about to be sent */
    {"worker-part", "worker", "part"},             /* a part of a batch is about to be sent */
    {"worker-shard", "worker", "shard"},           /* a shard is complete and not reported */
    {"worker-completed", "worker", "completion"},  /* a range is finished and about to be reported */
    {"dispatcher-attach", "dispatcher", "attach"}, /* a client has sent Attach and has no answer yet */
    {"dispatcher-lease", "dispatcher", "lease"},   /* a lease is about to be sent */
    /* a finished range was reported and is not written yet */
    {"dispatcher-completed", "dispatcher", "completion"},
    {"dispatcher-commit", "dispatcher", "commit"},    /* a transaction is about to become durable */
    {"cache-write", "run", "cache"},                  /* entries are about to be written */
    {"cache-publish", "run", "cache"},                /* a segment is about to get its table */
    {"cache-rename", "run", "cache"},                 /* a segment is complete and has no final name */
    {"cache-published", "run", "cache"},              /* other processes can find the segment */
    {"cache-evict", "run", "cache"},                  /* a segment is about to be removed */
    {"materialize-write", "run", "materialize"},      /* elements are about to be written to a shard */
    {"materialize-rename", "run", "materialize"},     /* a shard is complete and has its temporary name */
    {"materialize-renamed", "run", "materialize"},    /* a shard has its name and is not in the journal */
    {"materialize-journal", "run", "materialize"},    /* a shard is in the journal */
    {"materialize-published", "run", "materialize"},  /* the manifest is there, and the journal too */
    {"dispatcher-committed", "dispatcher", "commit"}, /* a transaction is durable and not acknowledged */
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

#define TURN_LOOK_MS 20 /* ms between two checks of *over */

static struct {
    pthread_once_t once;
    int fd; /* negative: all batches may be taken */
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
