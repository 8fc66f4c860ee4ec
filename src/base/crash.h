/*
 * Named points at which a test build (-Dcrash_points=true) ends itself as kill -9 does: CACHEW_CRASH=NAME:N
 * at the N-th passing of NAME, or, with CACHEW_CRASH=NAME:N:stop, stops as SIGSTOP does, for a test that has
 * something else in mind; which point it is stands on stderr then. Several of them are separated by commas.
 * Elsewhere they are nothing. Any thread.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cw_crash_point {
    const char *name, *role, *phase; /* role: the program that passes it; phase: of a range's life */
};
/* All there are; *ret_n is 0 where the build has none. */
const struct cw_crash_point *cw_crash_points(size_t *ret_n);

/*
 * Mutations: with CACHEW_MUTATE=NAME a test build leaves something out that delivery rests on. The delivery
 * oracle must notice (tests/service/mutations.py).
 *
 *   dedup    client: a batch that came before, or is not wanted any more, is taken for one that is
 *   g        client: which batch it is that comes is not looked at
 *   part  client: the cursor passes parts of batches that have not come yet
 *   sync     dispatcher: what is to be durable is acknowledged, and only written down at the end
 *
 * and some that change no result, so that the oracle must not notice them:
 *
 *   cut      dispatcher: many ranges of exact order end anywhere, batches of counted pipelines or not
 *   not-here worker: of each fourth lease it says that it has it not
 *   cache point   engine: which cache point is used, if any, changes from block to block
 *   packed   connections: payloads that may be compressed are, where they become smaller, however fast the
 * link is no_page_cache engine: there is no memory for the page cache late     engine: who fills up the last
 * round of an epoch asks for a batch only a while after it began to uncounted engine: what is always counted
 * is not, for who measures what that takes (bench/counting.py)
 */
/*
 * Turns: with CACHEW_TURNS=PATH a run takes a batch for each byte "." that it reads from this pipe, which the
 * test writes, and from a byte "g" on all of them. So a test holds a job where it wants it, on a machine of
 * any speed, while all of its connections stay alive. cw_crash_turn waits for the next turn, or until *over
 * is not 0.
 */
#ifdef CW_CRASH_POINTS
void cw_crash_point(const char *name);
bool cw_mutated(const char *name);
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
