/*
 * Crash points, mutations and turns of test builds (-Dcrash_points=true); other builds contain nothing of
 * them. Any thread.
 *
 * A crash point is a named place at which a test build can be ended as by kill -9. CACHEW_CRASH=NAME:N ends
 * the process when it passes NAME for the N-th time. CACHEW_CRASH=NAME:N:stop stops it instead, as by
 * SIGSTOP, and gives the notice "crash point NAME". Several are separated by commas.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cw_crash_point {
    const char *name, *role,
        *phase; /* role: the program that passes the point; phase: of the life of a range */
};
/* Returns all crash points; *ret_n is 0 where the build has none. */
const struct cw_crash_point *cw_crash_points(size_t *ret_n);

/*
 * Mutations: with CACHEW_MUTATE=NAME a test build leaves out something that exactly-once delivery rests on.
 * The delivery oracle must notice these (tests/service/mutations.py):
 *
 *   dedup        client: a batch that came before, or is not wanted any more, is accepted
 *   g            client: the number of a received batch is not checked
 *   part         client: the cursor passes parts of batches that have not come yet
 *   sync         dispatcher: what must be durable is acknowledged, and only written at the end
 *
 * These change no result, so the oracle must not notice them:
 *
 *   cut          dispatcher: many ranges of exact order end anywhere, even inside batches of counted
 * pipelines not-here     worker: rejects every fourth lease as unknown cache_point  engine: the cache point
 * in use, if any, changes from block to block packed       connections: payloads are compressed where they
 * shrink, however fast the link is no_page_cache  engine: there is no memory for the page cache late engine:
 * the last round of an epoch asks for its repeated batch only a while after it began uncounted    engine:
 * what is always counted is not, to measure what counting costs (bench/counting.py)
 *
 * Turns: with CACHEW_TURNS=PATH a run takes one batch per byte "." that it reads from this pipe, and all
 * batches after a byte "g". A test thus holds a job at a batch, on a machine of any speed, while its
 * connections stay alive.
 */
#ifdef CW_CRASH_POINTS
/* Passes a crash point. */
void cw_crash_point(const char *name);
/* Returns whether this mutation is active. */
bool cw_mutated(const char *name);
/* Waits for the next turn, or until *over is not 0. */
void cw_crash_turn(const atomic_int *over);
#else
static inline void cw_crash_turn(const atomic_int *over)
{
}

static inline void cw_crash_point(const char *name)
{
}

static inline bool cw_mutated(const char *name)
{
    return false;
}
#endif
