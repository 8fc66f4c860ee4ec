/* Waiting for the service: until when, what for, and who is told that it takes long. The consumer's thread,
 * but for cw_remote_hold. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "remote/remote_impl.h"

/* Somebody is told what is waited for after so long, and then after twice as long each time; a worker that
 * computes is no reason to worry for longer. */
#define NOTE_FIRST_NS UINT64_C(5000000000)
#define NOTE_MAX_NS UINT64_C(600000000000)
#define NOTE_COMPUTES_NS UINT64_C(30000000000)
/* A job that goes on again has so long for what it did not compute while it was paused, whatever the deadline
 * was. */
#define RESUMED_NS UINT64_C(5000000000)

static uint64_t worker_at(const struct remote *r, const struct place *at)
{
    const struct known_range *x = at ? cw_remote_range(r, at->epoch, at->position) : NULL;
    return x ? x->worker : 0;
}

/* Writes what keeps the range at a place (NULL: the job) from answering, for people; of a range that a worker
 * has, also what keeps the job. Returns whether the worker just takes long. Mutex held. */
static bool describe(const struct remote *r, const struct place *at, char *buf, size_t size)
{
    uint64_t worker = worker_at(r, at);
    const struct link *l = worker ? cw_remote_link((struct remote *)(uintptr_t)r, worker) : NULL;
    bool held = r->paused || (*r->held && !worker);
    if (r->service_down.status)
        snprintf(buf, size, "the dispatcher at %s is not there (%.200s)", r->service,
                 r->service_down.message);
    else if (held)
        snprintf(buf, size, "%s", r->held);
    else if (!at)
        snprintf(buf, size, "nobody has answered yet");
    else if (!worker)
        snprintf(buf, size, "no worker has it yet%s", r->lagging);
    else if (!l)
        snprintf(buf, size, "worker %" PRIu64 " has it, whose address is not known", worker);
    else if (l->why.status)
        snprintf(buf, size, "worker %" PRIu64 " has it, which can't be reached (%.200s)", worker,
                 l->why.message);
    else
        snprintf(buf, size, "worker %" PRIu64 " computes it", worker);
    if (*r->held && !r->service_down.status && !held)
        snprintf(buf + strlen(buf), size - strlen(buf), "; %s", r->held);
    return l && !l->why.status && !r->service_down.status && !*r->held;
}

static void what_of(const struct place *at, const char *what, char *buf, size_t size)
{
    if (at)
        snprintf(buf, size, "%s at position %" PRIu64 " of epoch %" PRIu64, what, at->position, at->epoch);
    else
        snprintf(buf, size, "%s", what);
}

/* The mutex is given up meanwhile. */
static void note(struct remote *r, const struct place *at, const char *what)
{
    char text[1400], why[1000], of[160];
    bool computes = describe(r, at, why, sizeof(why));
    uint64_t waited_ns = r->waited_ns;
    if (computes && waited_ns < NOTE_COMPUTES_NS) {
        r->note_ns = NOTE_COMPUTES_NS;
        return;
    }
    r->note_ns = CW_MIN(2 * waited_ns, waited_ns + NOTE_MAX_NS);
    what_of(at, what, of, sizeof(of));
    snprintf(text, sizeof(text), "job %s waits for %s since %.0f s: %s", r->job, of, (double)waited_ns / 1e9,
             why);
    pthread_mutex_unlock(&r->mutex);
    r->options.note(r->options.note_arg, text);
    pthread_mutex_lock(&r->mutex);
}

void cw_remote_waited(struct remote *r)
{
    if (r->waited_ns < NOTE_FIRST_NS) /* else it may go on like this: not each time after 5 s */
        r->note_ns = 0;
    r->waited_ns = 0;
}

void cw_remote_hold(struct remote *r, const Cachew__Held *m)
{
    if (r->paused && !m->paused)
        r->resumed_ns = cw_now_ns();
    r->paused = m->paused;
    cw_text_show(r->held, sizeof(r->held), m->why);
}

void cw_remote_unhold(struct remote *r)
{
    if (r->paused)
        r->resumed_ns = cw_now_ns();
    r->paused = false;
    r->held[0] = '\0';
}

bool cw_remote_is_paused(const struct cw_error *err)
{
    return err->status == CW_E_DEADLINE && strcmp(err->attribute, "job") == 0 &&
           strcmp(err->value, "paused") == 0;
}

static int missed(const struct remote *r, const struct place *at, const char *what, struct cw_error *err)
{
    char why[1000], of[160];
    describe(r, at, why, sizeof(why));
    what_of(at, what, of, sizeof(of));
    *err = (struct cw_error){0};
    int status = cw_error_set(err, CW_E_DEADLINE, "%s did not come before the deadline: %s", of, why);
    if (r->paused || (r->resumed_ns && cw_now_ns() - r->resumed_ns < RESUMED_NS))
        cw_error_attribute(err, "job", "paused", "running");
    return status;
}

/* Waits until then (0: for ever), or until it is time for a note. */
static int sleep_until(struct remote *r, uint64_t deadline_ns)
{
    uint64_t start = cw_now_ns(), until_ns = deadline_ns;
    r->note_ns = r->note_ns ? r->note_ns : NOTE_FIRST_NS;
    if (r->options.note) {
        uint64_t note_ns = start + (r->note_ns > r->waited_ns ? r->note_ns - r->waited_ns : 0);
        until_ns = until_ns ? CW_MIN(until_ns, note_ns) : note_ns;
    }
    r->waiting = true;
    int e = cw_cond_wait(&r->changed, &r->mutex, until_ns);
    r->waiting = false;
    uint64_t now = cw_now_ns();
    r->wait_ns += now - start;
    r->waited_ns += now - start;
    return deadline_ns && now >= deadline_ns ? e : 0;
}

int cw_remote_wait(struct remote *r, uint64_t deadline_ns, const struct place *at, const char *what,
                   struct cw_error *err)
{
    int e = 0;
    if (r->failed.status)
        return cw_error_copy(err, &r->failed);
    if (!r->interrupted)
        e = sleep_until(r, deadline_ns);
    if (!r->interrupted && r->options.note && r->waited_ns >= r->note_ns)
        note(r, at, what);
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return e == ETIMEDOUT ? missed(r, at, what, err) : 0;
}

int cw_remote_wait_here(struct remote *r, uint64_t deadline_ns, const char *what, struct cw_error *err)
{
    int e = r->interrupted ? 0 : cw_cond_wait(&r->changed, &r->mutex, deadline_ns);
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return e == ETIMEDOUT ? cw_error_set(err, CW_E_DEADLINE, "%s did not come before the deadline", what) : 0;
}
