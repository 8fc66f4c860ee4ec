/*
 * Crash points, mutations and turns: ways for tests to disturb a test build (-Dcrash_points=true). Other
 * builds contain none of this. Any thread.
 *
 * A crash point is a named place in the code. CACHEW_CRASH=NAME:N ends the process, as kill -9 does, when it
 * passes point NAME for the N-th time. CACHEW_CRASH=NAME:N:stop stops the process instead, as SIGSTOP does,
 * and gives the notice "crash point NAME". Several points are separated by commas.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cw_crash_point {
    /* role: the program that passes the point; phase: which phase in the life of a range it is in */
    const char *name, *role, *phase;
};
/* Returns all crash points; *ret_n is 0 where the build has none. */
const struct cw_crash_point *cw_crash_points(size_t *ret_n);

/*
 * Mutations: with CACHEW_MUTATE=NAME a test build behaves differently in one way. The first four leave out a
 * step that exactly-once delivery needs, and the delivery oracle must notice them
 * (tests/service/mutations.py):
 *
 *   dedup          client: accepts a batch that it received before, or does not need any more
 *   g              client: does not check the number of a received batch
 *   part           client: the cursor passes parts of batches that have not arrived yet
 *   sync           dispatcher: acknowledges data that must be durable before the data are on disk
 *
 * The others change no result, so the oracle must not notice them:
 *
 *   cut            dispatcher: many ranges of exact order end anywhere, even inside batches
 *   not-here       worker: rejects every fourth lease as unknown
 *   cache_point    engine: the cache point in use, if any, changes from block to block
 *   packed         connections: payloads are compressed if that makes them smaller, even on fast links
 *   no_page_cache  engine: there is no memory for the page cache
 *   late           engine: in the last round of an epoch, a rank requests its repeated batch late
 *   uncounted      engine: nothing is counted, to measure what counting costs (bench/counting.py)
 *
 * Turns: with CACHEW_TURNS=PATH a run takes one batch for each byte "." that it reads from this pipe, and all
 * further batches after a byte "g". So a test can hold a job at a batch, on a machine of any speed, while the
 * job's connections stay alive.
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
