/* Decides how many positions a new range gets: a pure function of measurements and counts. lease_fill.c calls
 * it. */
#include "service/dispatcher/cut.h"

#include "base/macro.h"

/* long against the cost of a lease and a report, short if a worker is lost with its two ranges */
#define RANGE_S 0.5
#define PER_WORKER_S 1e-4 /* all workers together ask for at most 10,000 ranges a second */
#define LEAST_S 0.02      /* shorter ranges leave workers waiting for leases */
/* batches that take longer are divided among workers; the client then copies the parts once more */
#define DIVIDED_S 1.0
/* completions that let ranges grow: four times each, and 4^31 positions are more than any range has */
#define MOST_GROWTH 31
#define MOST_POSITIONS ((uint64_t)1 << 62)

/* Returns a number of positions, limited to MOST_POSITIONS. */
static uint64_t cut_positions(double n)
{
    return n < (double)MOST_POSITIONS ? (uint64_t)n : MOST_POSITIONS;
}

/* Returns n, or a number near it with which the range ends at the end of a window. */
static uint64_t cut_window(const struct cw_cut *c, uint64_t n)
{
    uint64_t rest = c->window ? c->window - c->position % c->window : 0;
    if (rest == 0 || n < rest / 2)
        return n;
    return n < rest ? rest : n - (n - rest) % c->window;
}

uint64_t cw_cut_size(const struct cw_cut *c)
{
    uint64_t n = c->first, least = 1, growth = 2 * CW_MIN(c->n_measured, (uint64_t)MOST_GROWTH);
    if (c->positions_per_s > 0) {
        uint64_t bound = c->first <= MOST_POSITIONS >> growth ? c->first << growth : MOST_POSITIONS;
        double seconds = CW_MAX(RANGE_S, PER_WORKER_S * (double)c->n_workers);
        n = CW_MIN(bound, cut_positions(c->positions_per_s * seconds));
        least = CW_MIN(bound, cut_positions(c->positions_per_s * LEAST_S));
    }
    n = cut_window(c, CW_MIN(n, CW_MAX(c->left / (2 * c->n_workers), least)));
    bool divided = c->divides && c->positions_per_s * DIVIDED_S < (double)c->align;
    uint64_t align = divided ? 1 : c->align, before = c->position % align;
    n = CW_MAX(n, divided ? (c->align + CW_CUT_PARTS - 1) / CW_CUT_PARTS : 1);
    n = before + CW_MIN(n + align - 1, CW_MIN(c->most, MOST_POSITIONS));
    return CW_MAX(n - n % align, align) - before;
}
