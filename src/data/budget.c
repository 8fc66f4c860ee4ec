/* Counts charged bytes with atomics, without locks. */
#include "data/budget.h"

#include "base/text.h"

void cw_budget_init(struct cw_budget *b, size_t limit)
{
    *b = (struct cw_budget){.limit = limit};
}

static void budget_note_peak(struct cw_budget *b, size_t used)
{
    size_t peak = atomic_load_explicit(&b->peak, memory_order_relaxed);
    while (used > peak && !atomic_compare_exchange_weak_explicit(&b->peak, &peak, used, memory_order_relaxed,
                                                                 memory_order_relaxed))
        ;
}

int cw_budget_take(struct cw_budget *b, size_t bytes, const char *what, struct cw_error *err)
{
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed),
           limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
    do {
        if (bytes > limit || used > limit - bytes) {
            atomic_store_explicit(&b->wanted, bytes > SIZE_MAX - used ? SIZE_MAX : used + bytes,
                                  memory_order_relaxed);
            char texts[3][32];
            return cw_error_set(
                err, CW_E_BUDGET, "%s needs %s, but of the memory budget (%s) %s are in use already", what,
                cw_text_bytes((double)bytes, texts[0]), cw_text_bytes((double)limit, texts[1]),
                cw_text_bytes((double)used, texts[2]));
        }
    } while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    budget_note_peak(b, used + bytes);
    return 0;
}

void cw_budget_force(struct cw_budget *b, size_t bytes)
{
    budget_note_peak(b, atomic_fetch_add_explicit(&b->used, bytes, memory_order_relaxed) + bytes);
}

size_t cw_budget_left(const struct cw_budget *b)
{
    size_t limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    return limit > used ? limit - used : 0;
}

void cw_budget_give(struct cw_budget *b, size_t bytes)
{
    atomic_fetch_sub_explicit(&b->used, bytes, memory_order_relaxed);
}
