/*
 * As many workers as the dispatcher wants: asks it, starts and ends units of a provisioner, makes up for
 * those that die or hang, and says what became of that. While the dispatcher is away everything stays as it
 * is. Loop thread only.
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
    /* its name; units are called POOL-RANDOM-1 ...: those of a provisioner before this one may still be
     * there, and are not ours to end */
    const char *pool;
    uint32_t minimum, maximum; /* never more than the maximum, those included that are ending */
    uint64_t drain_ns;         /* who was to end and has not by then is killed */
    double price_per_h, cpu_share;
    const char *token;  /* NULL: none */
    struct cw_tls *tls; /* NULL: plain; stays the caller's */
    void (*log)(void *arg, bool warning, const char *text);
    /* Its dispatcher will have none of it: another one has the pool, or the token is wrong. It may be ended
     * from within. NULL: it goes on trying. */
    void (*refused)(void *arg, const struct cw_error *why);
    void *log_arg; /* of log and refused */
};

/* Starts nobody before a dispatcher has accepted it. Everything in o stays the caller's; the provisioner is
 * freed with the fleet. */
int cw_fleet_new(const struct cw_fleet_options *o, struct cw_fleet **ret, struct cw_error *err) _must_check_;
/* Ends all units, and says no more; empty(arg) is called once there are none. Again, or with now: without
 * letting them finish. */
void cw_fleet_end(struct cw_fleet *f, bool now, void (*empty)(void *arg), void *arg);
/* When it is empty. */
struct cw_fleet *cw_fleet_free(struct cw_fleet *f);
