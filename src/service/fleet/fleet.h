/*
 * Keeps as many workers as the dispatcher wants: queries it, starts and ends units of a provisioner, replaces
 * those that die or hang, and reports what became of them. While the dispatcher is away everything stays as
 * it is. The loop's thread only; called by `cachew provision` and `cachew up`.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "service/fleet/provisioner.h"

struct cw_loop;
struct cw_tls;
struct cw_fleet;

struct cw_fleet_options {
    struct cw_loop *loop;
    struct cw_provisioner *provisioner;
    const char *dispatcher; /* HOST:PORT, [IPV6]:PORT or unix:PATH */
    /* its name; units are called POOL-RANDOM-1 ...: units of an earlier provisioner may still be there, and
     * this one does not end them */
    const char *pool;
    uint32_t minimum, maximum; /* never more than the maximum, with units that are ending */
    uint64_t drain_ns;         /* a unit that does not end within this is killed */
    double price_per_h, cpu_share;
    const char *token;  /* NULL: none */
    struct cw_tls *tls; /* NULL: plain; stays the caller's */
    void (*log)(void *arg, bool warning, const char *text);
    /* The dispatcher refuses the fleet for good: another one has the pool, or the token is wrong. The fleet
     * may be ended from within. NULL: it goes on trying. */
    void (*refused)(void *arg, const struct cw_error *why);
    void *log_arg; /* of log and refused */
};

/* Starts no unit before a dispatcher has accepted the fleet. Everything in o stays the caller's but the
 * provisioner, which is freed with the fleet. */
int cw_fleet_new(const struct cw_fleet_options *o, struct cw_fleet **ret, struct cw_error *err) _must_check_;
/* Ends all units, and sends nothing more; empty(arg) is called once there are none. now: without letting them
 * finish. May be called again, with now. */
void cw_fleet_end(struct cw_fleet *f, bool now, void (*empty)(void *arg), void *arg);
/* Once it is empty, or never had a unit. Returns NULL. */
struct cw_fleet *cw_fleet_free(struct cw_fleet *f);
