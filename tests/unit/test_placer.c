/* Batches of a placed epoch (remote/placer.h): compared with a loop over its elements, for ranges cut
 * anywhere, told in any order that they may come in, cut again, and gone on from entries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/macro.h"
#include "remote/placer.h"
#include "sample.h"

#define MAX_KEYS 5
#define MAX_POSITIONS 60
#define MAX_ELEMENTS (2 * MAX_POSITIONS)

static const struct cw_grouping single = {.size = 1};

/* An epoch: element i comes of position[i], with key[i]. */
struct world {
    uint64_t draw, drawn;
    unsigned n_keys;
    uint64_t sizes[MAX_KEYS], n_positions;
    struct cw_grouping grouping;
    uint64_t take; /* the epoch ends behind so many elements; of one key */
    size_t n;
    uint64_t position[MAX_ELEMENTS];
    unsigned key[MAX_ELEMENTS];
};

/* What one thread makes of it: batches, as their elements. */
struct expected {
    size_t n;
    unsigned key[MAX_ELEMENTS];
    size_t n_elements[MAX_ELEMENTS], elements[MAX_ELEMENTS][MAX_ELEMENTS];
};

static uint64_t draw(struct world *x, uint64_t n)
{
    uint64_t v = (x->draw + 0x9e3779b97f4a7c15u * ++x->drawn);
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return (v ^ (v >> 31)) % n;
}

static void world_make(struct world *x, uint64_t seed)
{
    *x = (struct world){.draw = seed * 77777};
    x->n_keys = 1 + (unsigned)draw(x, 3) * (unsigned)draw(x, 3);
    x->take = x->n_keys == 1 && draw(x, 2) ? draw(x, MAX_POSITIONS) : UINT64_MAX;
    x->n_positions = draw(x, MAX_POSITIONS + 1);
    x->grouping = (struct cw_grouping){.size = 1, .remainder = draw(x, 3) ? 0 : CW_REMAINDER_DROP};
    if (x->n_keys > 1 && draw(x, 2)) {
        x->grouping.size = 2 + (unsigned)draw(x, 3);
        x->grouping.remainder = (enum cw_remainder)draw(x, 3);
    }
    x->grouping.full_only = x->grouping.remainder == CW_REMAINDER_DROP ||
                            (x->grouping.remainder == CW_REMAINDER_NEXT && draw(x, 2));
    uint64_t density = 1 + draw(x, 4);
    for (unsigned k = 0; k < x->n_keys; k++)
        x->sizes[k] = 1 + draw(x, 6);
    for (uint64_t p = 0; p < x->n_positions; p++)
        for (uint64_t i = draw(x, 4) < density ? draw(x, 3) : 0; i > 0; i--) {
            x->position[x->n] = p;
            x->key[x->n++] = x->n_keys == 1 || draw(x, 3) ? 0 : (unsigned)draw(x, x->n_keys);
        }
}

/* Makes a batch of the first m elements of a list of *n. */
static void naive_batch(struct expected *e, unsigned k, size_t *list, size_t *n, size_t m)
{
    e->key[e->n] = k;
    e->n_elements[e->n] = m;
    memcpy(e->elements[e->n++], list, m * sizeof(*list));
    *n -= m;
    memmove(list, list + m, *n * sizeof(*list));
}

/* The batches of the elements that wait at the end of the epoch. */
static void naive_rest(const struct world *x, struct expected *e, size_t waiting[][MAX_ELEMENTS], size_t *n)
{
    size_t group = x->grouping.size;
    for (unsigned k = 0; k < x->n_keys && x->grouping.remainder != CW_REMAINDER_DROP; k++) {
        while (n[k] >= group * x->sizes[k])
            for (size_t i = 0; i < group; i++)
                naive_batch(e, k, waiting[k], &n[k], x->sizes[k]);
        bool last = k + 1 == x->n_keys, few = x->grouping.remainder == CW_REMAINDER_PAD && n[k] >= group;
        if (!x->grouping.full_only && (last || few)) {
            size_t all = n[k], parts = CW_MIN(group, all);
            for (size_t i = 0; i < parts; i++)
                naive_batch(e, k, waiting[k], &n[k], all / parts + (i < all % parts));
        } else if (!last) {
            memcpy(waiting[k + 1] + n[k + 1], waiting[k], n[k] * sizeof(waiting[k][0]));
            n[k + 1] += n[k];
        }
    }
}

static void naive(const struct world *x, struct expected *e)
{
    size_t waiting[MAX_KEYS][MAX_ELEMENTS], n[MAX_KEYS] = {0}, all = CW_MIN(x->n, x->take);
    e->n = 0;
    for (size_t i = 0; i < all; i++) {
        unsigned k = x->key[i];
        waiting[k][n[k]++] = i;
        if (n[k] == x->grouping.size * x->sizes[k])
            for (size_t j = 0; j < x->grouping.size; j++)
                naive_batch(e, k, waiting[k], &n[k], x->sizes[k]);
    }
    naive_rest(x, e, waiting, n);
}

/* Element number `ordinal` of a key from a position on. */
static size_t element_at(const struct world *x, uint64_t begin, unsigned key, uint64_t ordinal)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->position[i] >= begin && x->key[i] == key && ordinal-- == 0)
            return i;
    return SIZE_MAX;
}

static uint64_t count(const struct world *x, uint64_t begin, uint64_t end, unsigned key)
{
    uint64_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        n += x->position[i] >= begin && x->position[i] < end && x->key[i] == key;
    return n;
}

static void check_batch(const struct world *x, const struct placer_range *ranges, size_t n_ranges,
                        const struct expected *e, size_t g, const struct cw_placer_batch *b)
{
    size_t at = 0;
    assert_true(g < e->n);
    assert_int_equal(b->key, e->key[g]);
    assert_int_equal(b->n, e->n_elements[g]);
    for (size_t i = 0; i < b->n_parts; i++) {
        const struct cw_placer_part *part = &b->parts[i];
        assert_in_range(part->n, 1, x->sizes[part->key]);
        for (uint64_t j = 0; j < part->n; j++)
            assert_int_equal(element_at(x, part->begin, part->key, part->from + j), e->elements[g][at++]);
        for (size_t k = 0; k < n_ranges; k++) /* all of it lies in that range */
            if (ranges[k].begin == part->begin)
                assert_true(part->from + part->n <= count(x, part->begin, ranges[k].end, part->key));
    }
    assert_int_equal(at, b->n);
}

static int plan(struct cw_placer *w)
{
    const struct cw_placer_batch *b = NULL;
    struct cw_error err = {0};
    int r = cw_placer_plan(w, &b, &err);
    assert_true(r != 0 || (b && !b->next && w->last == &((struct cw_placer_batch *)(uintptr_t)b)->next));
    assert_true((r == 1) == cw_placer_over(w) || r == 0);
    return r;
}

/* The next n keys of a range; fewer where it ends. */
static void tell_keys(const struct world *x, struct placer_range *range, size_t n)
{
    uint16_t keys[MAX_ELEMENTS];
    size_t all = 0;
    struct cw_error err = {0};
    for (size_t i = 0; i < x->n; i++)
        if (x->position[i] >= range->begin && x->position[i] < range->end)
            keys[all++] = (uint16_t)x->key[i];
    assert_int_equal(cw_placer_keys(range, keys + range->n, CW_MIN(n, all - range->n), &err), 0);
}

static void tell(const struct world *x, struct cw_placer *w, struct placer_range *range)
{
    if (x->n_keys > 1)
        tell_keys(x, range, MAX_ELEMENTS);
    size_t had = w->n_batches, left = cw_placer_known(w, range, count(x, range->begin, range->end, 0), false);
    assert_true(left <= had && left == w->n_batches);
}

static void check_entry(const struct world *x, const struct cw_placer *w, struct cw_entry *ret,
                        const struct expected *e, size_t g)
{
    uint64_t taken[MAX_KEYS] = {0};
    cw_placer_entry(w, ret);
    for (size_t i = 0; i < g; i++)
        for (size_t j = 0; j < e->n_elements[i]; j++)
            taken[x->key[e->elements[i][j]]]++;
    for (unsigned k = 0; k < x->n_keys; k++)
        assert_int_equal(count(x, 0, ret->position, k) + ret->skip[k], taken[k]);
    if (x->take != UINT64_MAX)
        assert_int_equal(ret->limits[0].count, count(x, 0, ret->position, 0));
}

/* Ends a range early: not one that is known, or of which keys are. */
static void shorten(struct world *x, struct cw_placer *w, const struct placer_range *range)
{
    bool untold = !range->known && range->n == 0;
    uint64_t end = range->begin + 1 + draw(x, range->end - range->begin);
    if (end < range->end)
        assert_true(cw_placer_shorten(w, range->begin, end) == untold);
}

/* Goes on from an entry with other ranges, to the end or for some batches. Returns the number of the next
 * batch. */
static size_t go_on(struct world *x, const struct expected *e, size_t g, struct cw_entry *entry,
                    bool to_the_end)
{
    struct cw_placer w;
    struct cw_error err = {0};
    uint64_t size = 1 + draw(x, MAX_POSITIONS / 2);
    unsigned cuts = 5;
    size_t stop = to_the_end ? SIZE_MAX : g + draw(x, 8);
    assert_int_equal(cw_placer_init(&w, x->n_keys, x->sizes, &x->grouping, entry, x->n_positions, &err), 0);
    if (x->take != UINT64_MAX)
        cw_placer_limit(&w, entry, 1, x->take);
    for (;;) {
        int r = 2;
        switch (draw(x, 7)) {
        case 0:
            if (cw_placer_position(&w) < x->n_positions)
                assert_int_equal(
                    cw_placer_add(&w, CW_MIN(cw_placer_position(&w) + 1 + draw(x, size), x->n_positions),
                                  &err),
                    0);
            break;
        case 1: /* any of them */
            if (w.n_ranges) {
                struct placer_range *range = &w.ranges[draw(x, w.n_ranges)];
                if (!range->known && x->n_keys > 1 && draw(x, 2))
                    tell_keys(x, range, draw(x, 4));
                else if (!range->known)
                    tell(x, &w, range);
            }
            break;
        case 2:
            if (cuts && w.n_ranges && draw(x, 4) == 0 && cuts--)
                (void)cw_placer_cut(&w, w.ranges[draw(x, w.n_ranges)].begin + draw(x, 2));
            break;
        case 4:
            if (w.at < w.n_ranges)
                shorten(x, &w, &w.ranges[w.at + draw(x, w.n_ranges - w.at)]);
            break;
        case 3:
            if (w.n_batches && cw_placer_certain(&w) &&
                (x->n_keys > 1 || w.at == w.n_ranges || w.ranges[w.at].known || draw(x, 2))) {
                check_batch(x, w.ranges, w.n_ranges, e, g, w.batches);
                cw_placer_take(&w);
                check_entry(x, &w, entry, e, ++g);
            }
            break;
        default:
            r = w.n_batches > 20 ? 2 : plan(&w);
            assert_in_range(r, 0, 2);
        }
        if (r == 1 && w.n_batches == 0) {
            for (unsigned k = 0; k < x->n_keys; k++) {
                uint64_t n = w.seen[k] - w.planned[k];
                assert_true(n == 0 || x->grouping.full_only || x->take != UINT64_MAX);
                assert_true(n < x->grouping.size * x->sizes[k] || x->take != UINT64_MAX);
            }
            assert_int_equal(g, e->n);
            break;
        }
        if (g >= stop)
            break;
    }
    cw_placer_deinit(&w);
    return g;
}

static void test_batches_are_those_of_one_thread(void **state)
{
    (void)state;
    static struct expected e;
    for (uint64_t seed = 0; seed < sample_size(30000); seed++) {
        struct world x;
        uint64_t skip[MAX_KEYS] = {0};
        struct cw_limit_count limit = {0};
        struct cw_entry entry = {.skip = skip, .limits = &limit};
        size_t g = 0;
        world_make(&x, seed);
        naive(&x, &e);
        for (unsigned i = 0; i < 6 && g < e.n; i++)
            g = go_on(&x, &e, g, &entry, i == 5);
        (void)go_on(&x, &e, g, &entry, true);
    }
}

/* Elements that are not there after all: what was planned with them is planned anew, and what was taken
 * stands. */
static void test_a_range_that_has_less_than_planned(void **state)
{
    (void)state;
    const uint64_t sizes[] = {4};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan(&w), 0);
    assert_false(cw_placer_certain(&w));
    cw_placer_take(&w);
    assert_int_equal(cw_placer_known(&w, &w.ranges[0], 6, false), 0);
    assert_int_equal(plan(&w), 2);
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->n_parts, 2);
    assert_int_equal(w.batches->parts[0].from, 4);
    assert_int_equal(w.batches->parts[0].n, 2);
    assert_int_equal(w.batches->parts[1].begin, 10);
    assert_int_equal(w.batches->parts[1].n, 2);
    assert_int_equal(cw_placer_known(&w, &w.ranges[1], 1, false), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->n, 3);
    cw_placer_take(&w);
    assert_int_equal(plan(&w), 1);
    cw_placer_deinit(&w);
}

/* Batches that were completed before the error come, and the error then, as often as it is asked. */
static void test_an_error_stands_behind_the_batches_before_it(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2, 3};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    static const uint16_t keys[] = {1, 0, 1, 0};
    assert_int_equal(cw_placer_init(&w, 2, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    assert_int_equal(plan(&w), 2);
    assert_int_equal(cw_placer_keys(&w.ranges[0], keys, 4, &err), 0);
    cw_placer_known(&w, &w.ranges[0], 0, true);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(plan(&w), 3);
    assert_int_equal(plan(&w), 3);
    assert_int_equal(w.n_batches, 1);
    cw_placer_deinit(&w);
}

/* What an entry leaves out need not lie in the first range. */
static void test_an_entry_that_leaves_out_more_than_a_range_has(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2};
    uint64_t skip[] = {5};
    struct cw_entry entry = {.position = 3, .skip = skip};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(cw_placer_known(&w, &w.ranges[0], 2, false), 0);
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->n_parts, 1);
    assert_int_equal(w.batches->parts[0].begin, 10);
    assert_int_equal(w.batches->parts[0].from, 3);
    cw_placer_deinit(&w);
}

/* Ranges that are cut again: what needs none of them stays planned; what was taken of them can't be undone.
 */
static void test_cut_again(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 30, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    cw_placer_known(&w, &w.ranges[0], 3, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan(&w), 0);
    assert_int_equal(cw_placer_differs(&w, 10, 20), UINT64_MAX);
    assert_int_equal(cw_placer_differs(&w, 20, 30), UINT64_MAX);
    assert_int_equal(cw_placer_differs(&w, 10, 15), 10);
    assert_int_equal(cw_placer_differs(&w, 5, 12), 0);
    assert_true(cw_placer_cut(&w, 15));
    assert_int_equal(w.n_batches, 1);
    assert_int_equal(cw_placer_position(&w), 10);
    assert_int_equal(plan(&w), 2);
    cw_placer_take(&w);
    assert_false(cw_placer_cut(&w, 5));
    cw_placer_deinit(&w);
}

/* A range that is lost ends behind the elements that are planned of it; one that the plan has not come to has
 * none. */
static void test_a_range_that_is_lost(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 30, &err), 0);
    for (uint64_t end = 10; end <= 30; end += 10)
        assert_int_equal(cw_placer_add(&w, end, &err), 0);
    cw_placer_known(&w, &w.ranges[0], 3, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan(&w), 0);
    assert_int_equal(cw_placer_planned(&w, &w.ranges[1]), 3);
    assert_int_equal(cw_placer_planned(&w, &w.ranges[2]), 0);
    for (int i = 1; i < 3; i++)
        assert_int_equal(cw_placer_known(&w, &w.ranges[i], cw_placer_planned(&w, &w.ranges[i]), false), 3);
    assert_int_equal(plan(&w), 1);
    cw_placer_deinit(&w);
}

/* It may be the last one, with elements that an entry leaves out: then nothing waits. */
static void test_what_an_entry_leaves_out_is_lost(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2};
    uint64_t skip[] = {5};
    struct cw_entry entry = {.position = 3, .skip = skip};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    for (int i = 1; i >= 0; i--)
        cw_placer_known(&w, &w.ranges[i], i ? 0 : 3, false);
    assert_int_equal(plan(&w), 1);
    assert_true(cw_placer_over(&w));
    cw_placer_deinit(&w);
}

/* A range of another rank: none of its elements is planned, and those behind it only once it is over. */
static void test_a_foreign_range(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 1, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 10, &err), 0);
    w.ranges[0].foreign = true;
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    assert_int_equal(plan(&w), 2);
    assert_int_equal(cw_placer_known(&w, &w.ranges[0], 0, false), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->parts[0].begin, 10);
    cw_placer_deinit(&w);
}

/* Batches are planned from the keys that are known of a range, before it is over; one that goes beyond them
 * is not. */
static void test_batches_of_a_range_that_is_not_over(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2, 3};
    static const uint16_t keys[] = {0, 1, 0, 0, 1, 1};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    assert_int_equal(cw_placer_init(&w, 2, sizes, &single, &entry, 20, &err), 0);
    assert_int_equal(cw_placer_add(&w, 20, &err), 0);
    assert_int_equal(plan(&w), 2);
    assert_int_equal(cw_placer_keys(&w.ranges[0], keys, 4, &err), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->key, 0);
    assert_int_equal(w.batches->n, 2);
    assert_int_equal(plan(&w), 2);
    cw_placer_take(&w);
    assert_int_equal(cw_placer_keys(&w.ranges[0], keys + 4, 2, &err), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->key, 1);
    assert_int_equal(plan(&w), 2); /* the third element of key 0 may not be the last */
    cw_placer_known(&w, &w.ranges[0], 0, false);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(w.batches->next->n, 1);
    assert_int_equal(plan(&w), 1);
    cw_placer_deinit(&w);
}

/* What waits for a batch can be asked for before that is planned, part by part; what was asked for is needed
 * no more from there. */
static void test_what_waits_is_asked_for(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2, 5};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    struct cw_placer_part part;
    static const uint16_t keys[2][4] = {{1, 0, 1, 0}, {0, 1, 0, 0}};
    assert_int_equal(cw_placer_init(&w, 2, sizes, &single, &entry, 30, &err), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(cw_placer_add(&w, 10 * i + 10, &err), 0);
        assert_int_equal(cw_placer_keys(&w.ranges[i], keys[i], 4, &err), 0);
        cw_placer_known(&w, &w.ranges[i], 0, false);
    }
    assert_int_equal(plan(&w), 0);
    assert_int_equal(plan(&w), 0);
    assert_int_equal(plan(&w), 2);
    assert_int_equal(cw_placer_needed(&w, true), 0);
    assert_int_equal(cw_placer_needed(&w, false), 20);
    assert_true(cw_placer_request(&w, 0, &part));
    assert_int_equal(part.begin, 10);
    assert_int_equal(part.from, 2);
    assert_int_equal(part.n, 1);
    assert_false(cw_placer_request(&w, 0, &part));
    assert_true(cw_placer_request(&w, 1, &part));
    assert_int_equal(part.begin, 0);
    assert_int_equal(part.n, 2);
    assert_int_equal(cw_placer_needed(&w, true), 10);
    assert_true(cw_placer_request(&w, 1, &part));
    assert_int_equal(part.begin, 10);
    assert_int_equal(part.from, 0);
    assert_int_equal(part.n, 1);
    assert_false(cw_placer_request(&w, 1, &part));
    assert_int_equal(cw_placer_needed(&w, true), 20);
    assert_true(cw_placer_cut(&w, 10)); /* what the second range had is to be asked for again */
    assert_int_equal(cw_placer_needed(&w, true), 10);
    assert_false(cw_placer_request(&w, 1, &part));
    cw_placer_deinit(&w);
}

/* The plan stops inside a range of which only some keys are known. What waits in that range is not asked for;
 * asking for it never ended. */
static void test_what_waits_is_asked_for_up_to_the_range_that_the_plan_is_in(void **state)
{
    (void)state;
    const uint64_t sizes[] = {4, 5};
    struct cw_entry entry = {0};
    struct cw_error err = {0};
    struct cw_placer w;
    struct cw_placer_part part;
    static const uint16_t keys[2][3] = {{0, 1, 0}, {1, 0, 1}};
    assert_int_equal(cw_placer_init(&w, 2, sizes, &single, &entry, 40, &err), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cw_placer_add(&w, 10 * i + 10, &err), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(cw_placer_keys(&w.ranges[i], keys[i], 3, &err), 0);
    cw_placer_known(&w, &w.ranges[0], 0, false);
    assert_int_equal(plan(&w), 2);
    for (unsigned k = 0; k < 2; k++) {
        assert_true(cw_placer_request(&w, k, &part));
        assert_int_equal(part.begin, 0);
        assert_int_equal(part.from, 0);
        assert_int_equal(part.n, k ? 1 : 2);
        assert_false(cw_placer_request(&w, k, &part));
    }
    cw_placer_known(&w, &w.ranges[1], 0, false);
    assert_int_equal(plan(&w), 2);
    assert_true(cw_placer_request(&w, 1, &part));
    assert_int_equal(part.begin, 10);
    assert_int_equal(part.n, 2);
    cw_placer_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_are_those_of_one_thread),
        cmocka_unit_test(test_a_range_that_has_less_than_planned),
        cmocka_unit_test(test_an_error_stands_behind_the_batches_before_it),
        cmocka_unit_test(test_an_entry_that_leaves_out_more_than_a_range_has),
        cmocka_unit_test(test_cut_again),
        cmocka_unit_test(test_a_range_that_is_lost),
        cmocka_unit_test(test_what_an_entry_leaves_out_is_lost),
        cmocka_unit_test(test_a_foreign_range),
        cmocka_unit_test(test_batches_of_a_range_that_is_not_over),
        cmocka_unit_test(test_what_waits_is_asked_for),
        cmocka_unit_test(test_what_waits_is_asked_for_up_to_the_range_that_the_plan_is_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
