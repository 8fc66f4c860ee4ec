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
/* A worker that ends younger, or before the dispatcher knew it, has not served: others are tried at
 * longer and longer intervals. */
#define AGE_NS UINT64_C(1000000000)
#define FIRST_RETRY_NS UINT64_C(200000000)
#define LAST_RETRY_NS UINT64_C(30000000000)
#define HOPELESS 3 /* so many failures in a row: there are no more than those that are there */
#define MISSING_NS \
    UINT64_C(15000000000) /* a worker that lost its dispatcher tries again each second: who does not come \
                             back within this hangs ... */
#define STARTING_NS \
    UINT64_C(120000000000) /* ... and so does who never came. One that is not let in ends by itself before \
                              that */
#define TAKEN_NS \
    UINT64_C(10000000000) /* a pool whose provisioner died is free once its connection is noticed to be \
                             dead: 3 s */
#define AWAY_NS UINT64_C(60000000000) /* how often is said that the dispatcher can't be reached */
#define LOOK_NS UINT64_C(1000000000)  /* how often is looked who is late, while somebody is */

struct unit {
    struct cw_link link;
    struct cw_fleet *fleet;
    char name[112];
    void *handle;
    uint64_t started_ns;
    /* since when the dispatcher has no connection with it; 0: it has, or that is not known */
    uint64_t missing_ns;
    uint64_t kill_ns;  /* ending: when it is killed; 0: it was */
    bool ending, came; /* came: the dispatcher has had a connection with it */
};

struct cw_fleet {
    struct cw_fleet_options o;
    struct cw_conn *conn;
    uint8_t incarnation[16];
    char prefix[80]; /* of the names of units: what comes after it is a number */
    bool open, ending;
    bool told;         /* who is present: not every dispatcher says so */
    uint64_t open_ns;  /* since when */
    uint64_t away_ns;  /* when it was said last that it can't be reached; 0: not since it was there */
    uint64_t taken_ns; /* since when it is refused, as another one has the pool; 0: it is not */
    struct cw_timer *reconnect, *retry;
    struct cw_post post; /* to look what is to be done */
    struct cw_link units;
    /* hoped: wanted while they failed: the dispatcher wants no more than it was told there can be */
    uint32_t wanted, hoped;
    uint64_t n_started, next_start_ns, failed_ns, backoff_ns;
    unsigned failures; /* in a row */
    char why[300];
    uint32_t said_units, said_maximum; /* to the dispatcher */
    bool said;
    void (*empty)(void *arg);
    void *empty_arg;
};

static void fleet_log(struct cw_fleet *f, bool warning, const char *format, ...) _printf_(3, 4);

static void fleet_log(struct cw_fleet *f, bool warning, const char *format, ...)
{
    char text[600];
    CW_FORMAT(text, format);
    if (f->o.log)
        f->o.log(f->o.log_arg, warning, text);
}

static uint32_t n_all(const struct cw_fleet *f)
{
    uint32_t n = 0;
    CW_LIST_EACH (at, &f->units)
        n++;
    return n;
}

/* Those that are to stay. */
static uint32_t n_units(const struct cw_fleet *f)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        n += !u->ending;
    return n;
}

/* ---- what is said ---- */

static void say(struct cw_fleet *f)
{
    struct cw_error err = {0};
    uint32_t units = n_units(f),
             maximum = f->failures >= HOPELESS ? CW_MIN(units, f->o.maximum) : f->o.maximum;
    if (!f->open || f->ending || (f->said && units == f->said_units && maximum == f->said_maximum))
        return;
    Cachew__Pool m = {CW_MESSAGE(pool),
                      .name = (char *)(uintptr_t)f->o.pool,
                      .minimum = CW_MIN(f->o.minimum, maximum),
                      .maximum = maximum,
                      .price_per_h = f->o.price_per_h,
                      .cpu_share = f->o.cpu_share,
                      .units = units,
                      .prefix = f->prefix,
                      .why = f->failures ? f->why : (char *)(uintptr_t)""};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_POOL, .pool = &m};
    f->said = true;
    f->said_units = units;
    f->said_maximum = maximum;
    if (cw_conn_send(f->conn, &e, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        fleet_log(f, true, "%s", err.message); /* the connection ends, and it is said on the next one */
}

/* ---- units ---- */

static void failed(struct cw_fleet *f, const char *why)
{
    uint64_t wait = FIRST_RETRY_NS << CW_MIN(f->failures, 8u);
    f->failures++;
    f->hoped = CW_MAX(f->hoped, f->wanted);
    f->said &= f->failures != HOPELESS;
    snprintf(f->why, sizeof(f->why), "%s", why);
    f->failed_ns = cw_now_ns();
    f->next_start_ns = f->failed_ns + CW_MIN(wait, LAST_RETRY_NS);
    if (f->failures == HOPELESS)
        fleet_log(
            f, true,
            "%d workers in a row ended before they served, and said why above: the dispatcher is told that "
            "there are no more, and they are tried at longer and longer intervals, until one serves",
            HOPELESS);
}

static void on_ended(void *arg, const char *why)
{
    struct unit *u = arg;
    struct cw_fleet *f = u->fleet;
    bool young = cw_now_ns() - u->started_ns < AGE_NS || (f->told && !u->came);
    if (!u->ending)
        fleet_log(f, true, "worker %s: %s%s", u->name, why, f->ending ? "" : "; another one takes its place");
    if (!u->ending && young)
        failed(f, why);
    cw_link_out(&u->link);
    free(u);
    cw_loop_post(f->o.loop, &f->post);
}

static int start_one(struct cw_fleet *f, struct cw_error *err)
{
    struct unit *u = calloc(1, sizeof(*u));
    if (!u)
        return cw_error_nomem(err, sizeof(*u), "a worker");
    *u = (struct unit){.fleet = f, .started_ns = cw_now_ns()};
    u->missing_ns = u->started_ns;
    snprintf(u->name, sizeof(u->name), "%s%llu", f->prefix, (unsigned long long)++f->n_started);
    int r = f->o.provisioner->ops->start(f->o.provisioner, u->name, u, &u->handle, err);
    if (r < 0) {
        free(u);
        return r;
    }
    cw_list_add(&f->units, &u->link);
    return 0;
}

/* A worker ends a row of failures if it is old enough and the dispatcher has had a connection with it.
 * Where the dispatcher does not say that, its age decides alone. */
static void forgive(struct cw_fleet *f, uint64_t now)
{
    CW_LIST_EACH_OF (u, const struct unit, link, &f->units) {
        bool served = u->started_ns + AGE_NS <= now && (u->came || !f->told);
        if (f->failures && served && u->started_ns > f->failed_ns)
            f->failures = f->hoped = 0;
    }
}

static void end_unit(struct cw_fleet *f, struct unit *u, bool now)
{
    u->ending = true;
    u->kill_ns = now ? 0 : cw_now_ns() + f->o.drain_ns;
    f->o.provisioner->ops->end(f->o.provisioner, u->handle, now);
}

/* How long a worker may be missing. */
static uint64_t may_miss_ns(const struct unit *u)
{
    return u->came ? CW_MAX(MISSING_NS, cw_patience_silence_ns())
                   : CW_MAX(STARTING_NS, cw_patience_start_ns());
}

/* Whether the dispatcher has waited in vain for it, as long as it could be asked. */
static bool hangs(const struct cw_fleet *f, const struct unit *u, uint64_t now)
{
    return f->told && u->missing_ns && now >= CW_MAX(u->missing_ns, f->open_ns) + may_miss_ns(u);
}

/* Kills who hangs, and who does not end. Returns whether to look again soon: somebody is missing, or ending.
 */
static bool end_late(struct cw_fleet *f, uint64_t now)
{
    bool late = false;
    CW_LIST_EACH_OF (u, struct unit, link, &f->units) {
        bool hung = !u->ending && hangs(f, u, now), slow = u->ending && u->kill_ns && now >= u->kill_ns;
        if (hung)
            fleet_log(f, true,
                      "worker %s: the dispatcher has heard nothing of it for %llu s; it is killed, and "
                      "another one takes its place",
                      u->name, (unsigned long long)(may_miss_ns(u) / 1000000000));
        if (slow)
            fleet_log(f, true, "worker %s was to end %llu s ago; it is killed", u->name,
                      (unsigned long long)(f->o.drain_ns / 1000000000));
        if (hung || slow)
            end_unit(f, u, true);
        late |= u->ending ? u->kill_ns != 0 : u->missing_ns != 0;
    }
    return late;
}

static void look(void *arg)
{
    struct cw_fleet *f = arg;
    uint64_t now = cw_now_ns();
    if (f->ending) {
        if (cw_list_empty(&f->units) && !f->conn && f->empty)
            f->empty(f->empty_arg);
        return;
    }
    forgive(f, now);
    bool late = end_late(f, now);
    while (n_units(f) < CW_MAX(f->wanted, f->hoped) && n_all(f) < f->o.maximum && now >= f->next_start_ns) {
        struct cw_error err = {0};
        if (start_one(f, &err) < 0) {
            fleet_log(f, true, "%s", err.message);
            failed(f, err.message);
        } else if (f->failures) /* one by one, until one serves */
            f->next_start_ns = now + AGE_NS;
    }
    if (late)
        cw_timer_start(f->retry, LOOK_NS, 0);
    else if (f->failures)
        cw_timer_start(f->retry, CW_MAX(f->next_start_ns, now + AGE_NS) - now, 0);
    say(f);
}

/* ---- the dispatcher ---- */

static struct unit *find_unit(struct cw_fleet *f, const char *name)
{
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        if (strcmp(u->name, name) == 0)
            return u;
    return NULL;
}

/* All that the dispatcher has connections with: since when the others are missing. */
static void on_present(struct cw_fleet *f, const Cachew__Present *m)
{
    uint64_t now = cw_now_ns();
    f->told = true;
    for (size_t i = 0; i < m->n_names; i++) {
        struct unit *u = find_unit(f, m->names[i]);
        if (u) {
            u->came = true;
            u->missing_ns = UINT64_MAX; /* marked */
        }
    }
    CW_LIST_EACH_OF (u, struct unit, link, &f->units)
        u->missing_ns = u->missing_ns == UINT64_MAX ? 0 : u->missing_ns ? u->missing_ns : now;
}

static void on_want(struct cw_fleet *f, const Cachew__Want *m)
{
    f->wanted = CW_MIN(m->workers, f->o.maximum);
    f->backoff_ns = RECONNECT_FIRST_NS;
    f->taken_ns = 0;
    for (size_t i = 0; i < m->n_release; i++) {
        struct unit *u = find_unit(f, m->release[i]);
        if (u && !u->ending)
            end_unit(f, u, false);
    }
    if (m->present)
        on_present(f, m->present);
    cw_loop_post(f->o.loop, &f->post);
}

static int on_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                      void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                      size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct cw_fleet *f = user;
    if (m->of_case == CACHEW__ENVELOPE__OF_WANT && !f->ending)
        on_want(f, m->want);
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        return cw_failure_error(m->failure, err);
    return 0;
}

static int on_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct cw_fleet *f = user;
    if (!peer->welcome || peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(err, CW_E_SERVICE, "%s is no dispatcher", cw_conn_peer(c));
    f->open = true;
    f->open_ns = cw_now_ns();
    f->away_ns = 0;
    f->said = false;
    say(f);
    return 0;
}

static void connect_later(struct cw_fleet *f)
{
    cw_timer_start(f->reconnect, f->backoff_ns, 0);
    f->backoff_ns = CW_MIN(2 * f->backoff_ns, RECONNECT_LAST_NS);
}

/* For good: what was wrong stays so until somebody changes it. Who was accepted before waits for that. */
static bool is_refused(struct cw_fleet *f, const struct cw_error *why)
{
    uint64_t now = cw_now_ns();
    if (strcmp(why->attribute, "pool") != 0)
        return cw_failure_is_final(why) && !f->open_ns;
    if (!f->taken_ns)
        f->taken_ns = now;
    f->backoff_ns = RECONNECT_FIRST_NS; /* it may be free any moment */
    return now - f->taken_ns >= TAKEN_NS;
}

static void say_away(struct cw_fleet *f, const char *why)
{
    uint64_t now = cw_now_ns();
    if (f->away_ns && now - f->away_ns < AWAY_NS)
        return;
    f->away_ns = now;
    fleet_log(f, true, "waiting for the dispatcher at %s: %s", f->o.dispatcher, why);
}

static void on_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct cw_fleet *f = user;
    if (f->open && !f->ending)
        fleet_log(f, false, "the dispatcher's connection ended: %s",
                  why->status ? why->message : "it closed it");
    if (!f->open && !f->ending)
        say_away(f, why->status ? why->message : "it closed the connection");
    f->conn = NULL;
    f->open = f->told = false;
    if (f->ending) {
        cw_loop_post(f->o.loop, &f->post);
        return;
    }
    bool refused = is_refused(f, why);
    connect_later(f);
    if (refused && f->o.refused)
        f->o.refused(f->o.log_arg, why);
}

static const struct cw_conn_ops conn_ops = {.open = on_open, .message = on_message, .closed = on_closed};

static void connect_now(void *arg)
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
    if (cw_conn_connect(f->o.loop, f->o.dispatcher, &o, &conn_ops, f, &f->conn, &err) < 0) {
        say_away(f, err.message);
        connect_later(f);
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
        return cw_error_errno(err, CW_E_IO, errno, "no random bytes");
    }
    snprintf(f->prefix, sizeof(f->prefix), "%.64s-%02x%02x%02x%02x-", o->pool, f->incarnation[0],
             f->incarnation[1], f->incarnation[2], f->incarnation[3]);
    f->backoff_ns = RECONNECT_FIRST_NS;
    f->post = (struct cw_post){.fn = look, .arg = f};
    cw_list_init(&f->units);
    o->provisioner->ended = on_ended;
    int r = cw_timer_new(o->loop, connect_now, f, &f->reconnect, err);
    if (r >= 0)
        r = cw_timer_new(o->loop, look, f, &f->retry, err);
    if (r < 0) {
        if (f->reconnect)
            cw_timer_free(f->reconnect);
        free(f);
        return r;
    }
    connect_now(f);
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
    cw_loop_post(f->o.loop, &f->post);
}

struct cw_fleet *cw_fleet_free(struct cw_fleet *f)
{
    if (!f)
        return NULL;
    cw_timer_free(f->reconnect);
    cw_timer_free(f->retry);
    cw_loop_unpost(f->o.loop, &f->post);
    f->o.provisioner->ops->free(f->o.provisioner);
    free(f);
    return NULL;
}
