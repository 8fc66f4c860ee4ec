/*
 * How long this process waits for others. Environment variables lengthen that where healthy processes stand
 * still for seconds (an overloaded machine, a debugger), and shorten it in tests. Results never depend on
 * them. Any thread.
 */
#pragma once
#include <stdint.h>

#include "base/error.h"

/* CACHEW_SILENCE_S, default 3 s: a peer that sends nothing for this long is given up. Also the limit for
 * connecting and for the handshake. */
uint64_t cw_patience_silence_ns(void);
/* CACHEW_START_S, default 15 s: the limit for a daemon that is starting, or has not been reached yet. */
uint64_t cw_patience_start_ns(void);
/* CACHEW_RANGE_S, default 1 s: a worker that has computed a range for this long ends it early, so that others
 * get the rest. */
uint64_t cw_patience_range_ns(void);
/* CW_E_OPTION where one of the variables is set, but not to such a time. */
int cw_patience_check(struct cw_error *err);
