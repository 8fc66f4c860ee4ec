/*
 * How long this process waits for other processes. Environment variables make the times longer, where healthy
 * processes may not respond for seconds (an overloaded machine, a debugger), or shorter, in tests. Results
 * never depend on them. Any thread.
 */
#pragma once
#include <stdint.h>

#include "base/error.h"

/* CACHEW_SILENCE_S, default 3 s: a peer that sends nothing for this long counts as lost. Also the limit for
 * connecting and for the handshake. */
uint64_t cw_patience_silence_ns(void);
/* CACHEW_START_S, default 15 s: the limit for a daemon that is starting, or has not been reached yet. */
uint64_t cw_patience_start_ns(void);
/* CACHEW_RANGE_S, default 1 s: a worker that has computed a range for this long ends it early, so that other
 * workers get the rest. */
uint64_t cw_patience_range_ns(void);
/* CACHEW_STORAGE_S, default 120 s: how long a server's file is requested again and again, while its server
 * does not answer, or fails. */
uint64_t cw_patience_storage_ns(void);
/* Returns CW_E_OPTION if one of the variables is set to something that is not an allowed time. */
int cw_patience_check(struct cw_error *err);
