/* A fleet keeps as many workers as the dispatcher wants. Loop thread only; used by `cachew provision` and
 * `cachew up`. */
#include "service/fleet/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/patience.h"
#include "base/text.h"
#include "net/conn.h"
#include "net/limits.h"

#define RECONNECT_FIRST_NS UINT64_C(200000000)
#define RECONNECT_LAST_NS UINT64_C(5000000000)
/* A worker that ends at a younger age, or before it connected to the dispatcher, counts as failed. */
#define AGE_NS UINT64_C(1000000000)
/* After a failure, the next worker is started later: the wait doubles from the first value to the last. */
#define RETRY_FIRST_NS UINT64_C(200000000)
#define RETRY_LAST_NS UINT64_C(30000000000)
/* After this many failures in a row, the dispatcher is told that the present number of units is the maximum.
 */
#define HOPELESS 3
/* A worker that lost its dispatcher reconnects each second. One that is not back within this time counts as
 * hung. */
#define MISSING_NS UINT64_C(15000000000)
/* A worker that never connected counts as hung after this time. A worker that the dispatcher refuses ends
 * earlier, by itself. */
#define STARTING_NS UINT64_C(120000000000)
/* How long a fleet tries while another provisioner has its pool. If that one died, the dispatcher notices
 * after 3 s, and the pool is free. */
#define TAKEN_NS UINT64_C(10000000000)
#define AWAY_NS UINT64_C(60000000000) /* how often it is logged that the dispatcher can't be reached */
#define LATE_NS UINT64_C(1000000000)  /* how often units are checked, while one is missing or ending */

struct unit {
    struct cw_link link;
    struct cw_fleet *fleet;
    char name[112];
    void *handle; /* the provisioner's handle of the unit */
    uint64_t started_ns;
    /* since when the dispatcher has no connection with the unit; 0: it has one, or that is not known */
    uint64_t missing_ns;
    uint64_t kill_ns; /* of an ending unit: when to kill it; 0: it was killed */
    bool ending;
    bool came; /* the dispatcher has had a connection with the unit */
};

struct cw_fleet {
    struct cw_fleet_options o;
    struct cw_conn *conn; /* NULL: none */
    uint8_t incarnation[16];
    char prefix[80]; /* of the names of units; a number follows */
    bool open;       /* the connection is open */
    bool ending;
    bool presence_known; /* the dispatcher has sent Want.present on this connection; older versions do not */
    uint64_t open_ns;    /* when the connection was opened last; 0: never */
    uint64_t away_ns;  /* last log line that the dispatcher can't be reached; 0: none since it was reached */
    uint64_t taken_ns; /* since when another provisioner has the pool; 0: none has */
    struct cw_timer *reconnect, *settle;
    struct cw_link units;
    uint32_t wanted;
    uint32_t wanted_failing; /* most units wanted while they failed: the dispatcher wants no more than the
                                maximum */
    uint64_t n_started, next_start_ns, failed_ns, backoff_ns;
    unsigned n_failures; /* in a row */
    char why[300];       /* reason of the last failure */
    /* the last message Pool on this connection: */
    bool sent;
    uint32_t sent_units, sent_maximum;
    void (*empty)(void *arg);
    void *empty_arg;
};

static void _printf_(3, 4) fleet_log(struct cw_fleet *f, bool warning, const char *format, ...)
{
    char text[600];
    CW_FORMAT(text, format);
    if (f->o.log)
        f->o.log(f->o.log_arg, warning, text);
}

/* Returns the number of units; all: with those that are ending. */
static uint32_t fleet_n_units(const struct cw_fleet *f, bool all)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        n += all || !u->ending;
    return n;
}

/* ---- messages to the dispatcher ---- */

/* Sends message Pool, if a field has changed since it was last sent. */
static void fleet_send_pool(struct cw_fleet *f)
{
    struct cw_error err = {0};
    uint32_t units = fleet_n_units(f, false),
             maximum = f->n_failures >= HOPELESS ? CW_MIN(units, f->o.maximum) : f->o.maximum;
    if (!f->open || f->ending || (f->sent && units == f->sent_units && maximum == f->sent_maximum))
        return;
    Cachew__Pool m = {CW_MESSAGE(pool),
                      .name = (char *)(uintptr_t)f->o.pool,
                      .minimum = CW_MIN(f->o.minimum, maximum),
                      .maximum = maximum,
                      .price_per_h = f->o.price_per_h,
                      .cpu_share = f->o.cpu_share,
                      .units = units,
                      .prefix = f->prefix,
                      .why = f->n_failures ? f->why : (char *)(uintptr_t)""};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_POOL, .pool = &m};
    f->sent = true;
    f->sent_units = units;
    f->sent_maximum = maximum;
    if (cw_conn_send(f->conn, &e, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        fleet_log(f, true, "%s", err.message); /* the connection ends; Pool is sent again on the next one */
}

/* ---- units ---- */

/* Notes that a unit ended before it served, or could not be started. */
static void fleet_note_failure(struct cw_fleet *f, const char *why)
{
    uint64_t wait = RETRY_FIRST_NS << CW_MIN(f->n_failures, 8u);
    f->n_failures++;
    f->wanted_failing = CW_MAX(f->wanted_failing, f->wanted);
    f->sent &= f->n_failures != HOPELESS;
    snprintf(f->why, sizeof(f->why), "%s", why);
    f->failed_ns = cw_now_ns();
    f->next_start_ns = f->failed_ns + CW_MIN(wait, RETRY_LAST_NS);
    if (f->n_failures == HOPELESS)
        fleet_log(f, true,
                  "%d workers in a row ended before they served, for the reasons above; the dispatcher is "
                  "notified that the pool can't provide more workers, and new workers are started at longer "
                  "and longer intervals until one of them serves",
                  HOPELESS);
}

static void unit_on_ended(void *arg, const char *why)
{
    struct unit *u = arg;
    struct cw_fleet *f = u->fleet;
    bool young = cw_now_ns() - u->started_ns < AGE_NS || (f->presence_known && !u->came);
    if (!u->ending)
        fleet_log(f, true, "worker %s: %s%s", u->name, why, f->ending ? "" : "; another worker replaces it");
    if (!u->ending && young)
        fleet_note_failure(f, why);
    cw_link_out(&u->link);
    free(u);
    cw_timer_start(f->settle, 1, 0);
}

static int unit_start(struct cw_fleet *f, struct cw_error *err)
{
    struct unit *u = calloc(1, sizeof(*u));
    if (!u)
        return cw_error_nomem(err, sizeof(*u), "a worker");
    u->fleet = f;
    u->missing_ns = u->started_ns = cw_now_ns();
    snprintf(u->name, sizeof(u->name), "%s%llu", f->prefix, (unsigned long long)++f->n_started);
    int r = f->o.provisioner->ops->start(f->o.provisioner, u->name, u, &u->handle, err);
    if (r < 0)
        free(u);
    else
        cw_list_add(&f->units, &u->link);
    return r;
}

static void unit_end(struct unit *u, bool now)
{
    const struct cw_fleet_options *o = &u->fleet->o;
    u->ending = true;
    u->kill_ns = now ? 0 : cw_now_ns() + o->drain_ns;
    o->provisioner->ops->end(o->provisioner, u->handle, now);
}

/* Ends a row of failures if a worker serves: it is old enough, was started after the last failure, and the
 * dispatcher has had a connection with it. Where the dispatcher names no units, the age decides alone. */
static void fleet_forgive(struct cw_fleet *f, uint64_t now)
{
    CW_LIST_EACH_OF (u, const struct unit, link, &f->units) {
        bool served = u->started_ns + AGE_NS <= now && (u->came || !f->presence_known);
        if (served && u->started_ns > f->failed_ns)
            f->n_failures = f->wanted_failing = 0;
    }
}

/* Returns after how many ns a missing worker counts as hung. */
static uint64_t unit_may_miss_ns(const struct unit *u)
{
    return u->came ? CW_MAX(MISSING_NS, cw_patience_silence_ns())
                   : CW_MAX(STARTING_NS, cw_patience_start_ns());
}

/* Kills a worker that hangs, or does not end. A worker hangs if it was missing at the dispatcher for
 * unit_may_miss_ns while this fleet was connected. Returns whether to check the unit again soon. */
static bool unit_end_late(struct unit *u, uint64_t now)
{
    struct cw_fleet *f = u->fleet;
    uint64_t since = CW_MAX(u->missing_ns, f->open_ns);
    bool hung = !u->ending && f->presence_known && u->missing_ns && now >= since + unit_may_miss_ns(u),
         slow = u->ending && u->kill_ns && now >= u->kill_ns;
    if (hung)
        fleet_log(f, true,
                  "worker %s: the dispatcher has received nothing from this worker for %llu s; the worker is "
                  "killed, and another one replaces it",
                  u->name, (unsigned long long)(unit_may_miss_ns(u) / 1000000000));
    if (slow)
        fleet_log(f, true, "worker %s has not ended %llu s after it was told to end; it is killed", u->name,
                  (unsigned long long)(f->o.drain_ns / 1000000000));
    if (hung || slow)
        unit_end(u, true);
    return u->ending ? u->kill_ns != 0 : u->missing_ns != 0;
}

/* Starts units until there are as many as wanted, and kills units that hang. Called after each change, and by
 * a timer while a unit is late. */
static void fleet_settle(void *arg)
{
    struct cw_fleet *f = arg;
    uint64_t now = cw_now_ns();
    bool late = false;
    if (f->ending) {
        if (cw_list_empty(&f->units) && !f->conn && f->empty)
            f->empty(f->empty_arg);
        return;
    }
    fleet_forgive(f, now);
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        late |= unit_end_late(u, now);
    while (fleet_n_units(f, false) < CW_MAX(f->wanted, f->wanted_failing) &&
           fleet_n_units(f, true) < f->o.maximum && now >= f->next_start_ns) {
        struct cw_error err = {0};
        if (unit_start(f, &err) < 0) {
            fleet_log(f, true, "%s", err.message);
            fleet_note_failure(f, err.message);
        } else if (f->n_failures) { /* after failures, one unit at a time until one serves */
            f->next_start_ns = now + AGE_NS;
        }
    }
    if (late || f->n_failures)
        cw_timer_start(f->settle, late ? LATE_NS : CW_MAX(f->next_start_ns, now + AGE_NS) - now, 0);
    fleet_send_pool(f);
}

/* ---- the dispatcher ---- */

static struct unit *fleet_find(struct cw_fleet *f, const char *name)
{
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        if (strcmp(u->name, name) == 0)
            return u;
    return NULL;
}

/* Handles the list of all workers of the pool that are connected to the dispatcher: other units are missing.
 */
static void fleet_on_present(struct cw_fleet *f, const Cachew__Present *m)
{
    uint64_t now = cw_now_ns();
    f->presence_known = true;
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        if (!u->missing_ns)
            u->missing_ns = now;
    for (size_t i = 0; i < m->n_names; i++) {
        struct unit *u = fleet_find(f, m->names[i]);
        if (u) {
            u->came = true;
            u->missing_ns = 0;
        }
    }
}

static void fleet_on_want(struct cw_fleet *f, const Cachew__Want *m)
{
    f->wanted = CW_MIN(m->workers, f->o.maximum);
    f->backoff_ns = RECONNECT_FIRST_NS;
    f->taken_ns = 0;
    for (size_t i = 0; i < m->n_release; i++) {
        struct unit *u = fleet_find(f, m->release[i]);
        if (u && !u->ending)
            unit_end(u, false);
    }
    if (m->present)
        fleet_on_present(f, m->present);
    cw_timer_start(f->settle, 1, 0);
}

static int fleet_on_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                            void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                            size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct cw_fleet *f = user;
    if (m->of_case == CACHEW__ENVELOPE__OF_WANT && !f->ending)
        fleet_on_want(f, m->want);
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        return cw_failure_error(m->failure, err);
    return 0;
}

static int fleet_on_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct cw_fleet *f = user;
    if (!peer->welcome || peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(err, CW_E_SERVICE, "%s is not a dispatcher", cw_conn_peer(c));
    f->open = true;
    f->open_ns = cw_now_ns();
    f->away_ns = 0;
    f->sent = false;
    fleet_send_pool(f);
    return 0;
}

static void fleet_connect_later(struct cw_fleet *f)
{
    cw_timer_start(f->reconnect, f->backoff_ns, 0);
    f->backoff_ns = CW_MIN(2 * f->backoff_ns, RECONNECT_LAST_NS);
}

/* Returns whether trying again is of no use: the reason stays until a person changes it. A fleet that was
 * accepted before goes on trying, unless another provisioner has its pool for TAKEN_NS. */
static bool fleet_is_refused(struct cw_fleet *f, const struct cw_error *why)
{
    uint64_t now = cw_now_ns();
    if (strcmp(why->attribute, "pool") != 0)
        return cw_failure_is_final(why) && !f->open_ns;
    if (!f->taken_ns)
        f->taken_ns = now;
    f->backoff_ns = RECONNECT_FIRST_NS; /* the pool may become free at any moment */
    return now - f->taken_ns >= TAKEN_NS;
}

static void fleet_log_away(struct cw_fleet *f, const char *why)
{
    uint64_t now = cw_now_ns();
    if (f->away_ns && now - f->away_ns < AWAY_NS)
        return;
    f->away_ns = now;
    fleet_log(f, true, "waiting for the dispatcher at %s: %s", f->o.dispatcher, why);
}

static void fleet_on_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct cw_fleet *f = user;
    const char *reason = why->status ? why->message : "the dispatcher closed the connection";
    if (f->open && !f->ending)
        fleet_log(f, false, "the connection to the dispatcher ended: %s", reason);
    if (!f->open && !f->ending)
        fleet_log_away(f, reason);
    f->conn = NULL;
    f->open = f->presence_known = false;
    if (f->ending) {
        cw_timer_start(f->settle, 1, 0);
        return;
    }
    bool refused = fleet_is_refused(f, why);
    fleet_connect_later(f);
    if (refused && f->o.refused)
        f->o.refused(f->o.log_arg, why);
}

static const struct cw_conn_ops fleet_ops = {
    .open = fleet_on_open, .message = fleet_on_message, .closed = fleet_on_closed};

static void fleet_connect(void *arg)
{
    struct cw_fleet *f = arg;
    struct cw_error err = {0};
    Cachew__Hello hello;
    char host[80];
    if (f->ending)
        return;
    cw_host_identity(host);
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_PROVISIONER, f->o.pool, f->incarnation, host);
    struct cw_conn_options o = {
        .hello = &hello, .limits = CW_LIMITS_PROVISIONER, .token = f->o.token, .tls = f->o.tls};
    if (cw_conn_connect(f->o.loop, f->o.dispatcher, &o, &fleet_ops, f, &f->conn, &err) < 0) {
        fleet_log_away(f, err.message);
        fleet_connect_later(f);
    }
}

/* ---- life ---- */

int cw_fleet_new(const struct cw_fleet_options *o, struct cw_fleet **ret, struct cw_error *err)
{
    struct cw_fleet *f = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "a fleet");
    f->o = *o;
    if (getrandom(f->incarnation, sizeof(f->incarnation), 0) != sizeof(f->incarnation)) {
        free(f);
        return cw_error_errno(err, CW_E_IO, errno, "the operating system gives no random bytes");
    }
    snprintf(f->prefix, sizeof(f->prefix), "%.64s-%02x%02x%02x%02x-", o->pool, f->incarnation[0],
             f->incarnation[1], f->incarnation[2], f->incarnation[3]);
    f->backoff_ns = RECONNECT_FIRST_NS;
    cw_list_init(&f->units);
    o->provisioner->ended = unit_on_ended;
    int r = cw_timer_new(o->loop, fleet_connect, f, &f->reconnect, err);
    if (r >= 0)
        r = cw_timer_new(o->loop, fleet_settle, f, &f->settle, err);
    if (r < 0) {
        cw_timer_free(f->reconnect);
        free(f);
        return r;
    }
    fleet_connect(f);
    *ret = f;
    return 0;
}

void cw_fleet_end(struct cw_fleet *f, bool now, void (*empty)(void *arg), void *arg)
{
    f->ending = true;
    f->empty = empty;
    f->empty_arg = arg;
    CW_LIST_EACH_OF (u, struct unit, link, &f->units) {
        if (!u->ending || now)
            f->o.provisioner->ops->end(f->o.provisioner, u->handle, now);
        u->ending = true;
    }
    if (f->conn)
        cw_conn_close(f->conn, NULL);
    cw_timer_start(f->settle, 1, 0);
}

struct cw_fleet *cw_fleet_free(struct cw_fleet *f)
{
    if (!f)
        return NULL;
    cw_timer_free(f->reconnect);
    cw_timer_free(f->settle);
    f->o.provisioner->ops->free(f->o.provisioner);
    free(f);
    return NULL;
}
