/*
 * A fleet keeps as many workers as the dispatcher wants. It connects to the dispatcher, starts and ends units
 * of a provisioner (one worker each), replaces units that die or hang, and reports failures to the
 * dispatcher. While the dispatcher can't be reached, no unit is started or ended. Loop thread only; used by
 * `cachew provision` and `cachew up`.
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
    /* name of the pool. Units are named POOL-RANDOM-1 and so on; the random part keeps them apart from units
     * of an earlier provisioner, which may still run and which this fleet does not end */
    const char *pool;
    uint32_t minimum, maximum; /* number of units; the maximum includes units that are ending */
    uint64_t drain_ns;         /* a unit that has not ended this long after it was told to is killed */
    double price_per_h, cpu_share;
    const char *token;  /* NULL: none */
    struct cw_tls *tls; /* NULL: no TLS; stays the caller's */
    void (*log)(void *arg, bool warning, const char *text);
    /* Called when the dispatcher refuses the fleet and trying again is of no use: another provisioner has the
     * pool, or the token is wrong. The callback may end the fleet. NULL: the fleet goes on trying. */
    void (*refused)(void *arg, const struct cw_error *why);
    void *log_arg; /* of log and refused */
};

/* Makes a fleet, which starts no unit before a dispatcher has accepted it. The fleet owns the provisioner and
 * frees it at its end; all else in o stays the caller's. */
int cw_fleet_new(const struct cw_fleet_options *o, struct cw_fleet **ret, struct cw_error *err) _must_check_;
/* Ends all units, and closes the connection. empty(arg) is called once no unit is left. now: kills the units
 * instead of letting them finish. May be called a second time, with now. */
void cw_fleet_end(struct cw_fleet *f, bool now, void (*empty)(void *arg), void *arg);
/* Frees a fleet without units: after `empty`, or if it never had any. Returns NULL. */
struct cw_fleet *cw_fleet_free(struct cw_fleet *f);
