/* The consumer's waits for the service, and the notes that the user gets when a wait is long. The loop's
 * thread stores the reason why the job makes no progress, as the dispatcher says it. Part of struct remote,
 * whose mutex guards it. */
#include "remote/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "remote/internal.h"

/* The user gets a note after a wait of NOTE_FIRST_NS, and then whenever the wait has doubled, at least every
 * NOTE_MAX_NS. If a worker is computing what is waited for, the first note comes after NOTE_COMPUTES_NS. */
#define NOTE_FIRST_NS UINT64_C(5000000000)
#define NOTE_MAX_NS UINT64_C(600000000000)
#define NOTE_COMPUTES_NS UINT64_C(30000000000)
/* After a pause, a job has this time to catch up, whatever the deadline is. */
#define RESUMED_NS UINT64_C(5000000000)

static uint64_t waiting_worker(const struct remote *r, const struct epoch_position *at)
{
    const struct known_range *x = at ? cw_range_table_find(&r->ranges, at->epoch, at->position) : NULL;
    return x ? x->worker : 0;
}

/* Writes a text that says why the range at a position (at NULL: the whole job) makes no progress. Returns
 * whether the only reason is that a worker is still computing. The mutex must be held. */
static bool waiting_describe(const struct remote *r, const struct epoch_position *at, char *buf, size_t size)
{
    const struct waiting *w = &r->waiting;
    const struct cw_error *down = &r->run.service_down;
    uint64_t worker = waiting_worker(r, at);
    const struct link *l = worker ? cw_link_find(r, worker) : NULL;
    bool held = w->paused || (*w->held && !worker);
    if (down->status)
        snprintf(buf, size, "the dispatcher at %s can't be reached (%.200s)", r->job.options.service,
                 down->message);
    else if (held)
        snprintf(buf, size, "%s", w->held);
    else if (!at)
        snprintf(buf, size, "the dispatcher has not answered the request to join the job yet");
    else if (!worker)
        snprintf(buf, size, "the dispatcher has given that position to no worker yet%s", w->lagging);
    else if (!l)
        snprintf(buf, size,
                 "worker %" PRIu64 " is to compute that position, but its address is not known yet", worker);
    else if (l->why.status)
        snprintf(buf, size, "worker %" PRIu64 " is to compute that position, but can't be reached (%.200s)",
                 worker, l->why.message);
    else
        snprintf(buf, size, "worker %" PRIu64 " is computing that position", worker);
    if (*w->held && !down->status && !held)
        snprintf(buf + strlen(buf), size - strlen(buf), "; %s", w->held);
    return l && !l->why.status && !down->status && !*w->held;
}

static void waiting_name(const struct epoch_position *at, const char *what, char *buf, size_t size)
{
    if (at)
        snprintf(buf, size, "%s at position %" PRIu64 " of epoch %" PRIu64, what, at->position, at->epoch);
    else
        snprintf(buf, size, "%s", what);
}

/* Sends the user a note. The mutex must be held; it is released during the user's callback. */
static void waiting_note(struct remote *r, const struct epoch_position *at, const char *what)
{
    char text[1400], why[1000], name[160];
    struct waiting *w = &r->waiting;
    bool computes = waiting_describe(r, at, why, sizeof(why));
    if (computes && w->this_ns < NOTE_COMPUTES_NS) {
        w->note_ns = NOTE_COMPUTES_NS;
        return;
    }
    w->note_ns = CW_MIN(2 * w->this_ns, w->this_ns + NOTE_MAX_NS);
    waiting_name(at, what, name, sizeof(name));
    snprintf(text, sizeof(text), "job %s has waited %.0f s for %s: %s", r->job.options.job,
             (double)w->this_ns / 1e9, name, why);
    pthread_mutex_unlock(&r->mutex);
    r->job.options.note(r->job.options.note_arg, text);
    pthread_mutex_lock(&r->mutex);
}

void cw_waiting_done(struct waiting *w)
{
    /* After a short wait, the time until the first note begins anew. After a long one it does not, because
     * the next wait may be as long, and would give a note again after NOTE_FIRST_NS each time. */
    if (w->this_ns < NOTE_FIRST_NS)
        w->note_ns = 0;
    w->this_ns = 0;
}

static void waiting_set_paused(struct waiting *w, bool paused)
{
    if (w->paused && !paused)
        w->resumed_ns = cw_now_ns();
    w->paused = paused;
}

void cw_waiting_hold(struct waiting *w, const Cachew__Held *m)
{
    waiting_set_paused(w, m->paused);
    cw_text_show(w->held, sizeof(w->held), m->why);
}

void cw_waiting_unhold(struct waiting *w)
{
    waiting_set_paused(w, false);
    w->held[0] = '\0';
}

bool cw_remote_is_paused(const struct cw_error *err)
{
    return err->status == CW_E_DEADLINE && strcmp(err->attribute, "job") == 0 &&
           strcmp(err->value, "paused") == 0;
}

static int waiting_late(const struct remote *r, const struct epoch_position *at, const char *what,
                        struct cw_error *err)
{
    char why[1000], name[160];
    const struct waiting *w = &r->waiting;
    waiting_describe(r, at, why, sizeof(why));
    waiting_name(at, what, name, sizeof(name));
    *err = (struct cw_error){0};
    int status = cw_error_set(err, CW_E_DEADLINE, "%s did not come before the deadline: %s", name, why);
    if (w->paused || (w->resumed_ns && cw_now_ns() - w->resumed_ns < RESUMED_NS))
        cw_error_attribute(err, "job", "paused", "running");
    return status;
}

/* Waits until something changes, the deadline (0: none) passes, or it is time for a note. Returns ETIMEDOUT
 * at the deadline, else 0. */
static int waiting_sleep(struct remote *r, uint64_t deadline_ns)
{
    struct waiting *w = &r->waiting;
    uint64_t start = cw_now_ns(), until_ns = deadline_ns;
    w->note_ns = w->note_ns ? w->note_ns : NOTE_FIRST_NS;
    if (r->job.options.note) {
        uint64_t note_ns = start + (w->note_ns > w->this_ns ? w->note_ns - w->this_ns : 0);
        until_ns = until_ns ? CW_MIN(until_ns, note_ns) : note_ns;
    }
    w->active = true;
    int e = cw_cond_wait(&r->changed, &r->mutex, until_ns);
    w->active = false;
    uint64_t now = cw_now_ns();
    w->total_ns += now - start;
    w->this_ns += now - start;
    return deadline_ns && now >= deadline_ns ? e : 0;
}

int cw_waiting_wait(struct remote *r, uint64_t deadline_ns, const struct epoch_position *at, const char *what,
                    struct cw_error *err)
{
    struct waiting *w = &r->waiting;
    if (r->run.failed.status)
        return cw_error_copy(err, &r->run.failed);
    int e = w->interrupted ? 0 : waiting_sleep(r, deadline_ns);
    if (!w->interrupted && r->job.options.note && w->this_ns >= w->note_ns)
        waiting_note(r, at, what);
    if (w->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return e == ETIMEDOUT ? waiting_late(r, at, what, err) : 0;
}

int cw_waiting_wait_here(struct remote *r, uint64_t deadline_ns, const char *what, struct cw_error *err)
{
    bool *interrupted = &r->waiting.interrupted;
    int e = *interrupted ? 0 : cw_cond_wait(&r->changed, &r->mutex, deadline_ns);
    if (*interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return e == ETIMEDOUT ? cw_error_set(err, CW_E_DEADLINE, "%s did not come before the deadline", what) : 0;
}
