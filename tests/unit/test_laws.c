/* optimize/laws.h: both orders of each law over random data are the same, bit for bit; what no law speaks of
 * is refused; and the effects of every operator fit its kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "arrays_run.h"
#include "base/macro.h"
#include "ops/table.h"
#include "optimize/laws.h"
#include "pipeline/program.h"
#include "pipeline/roles.h"

#define IMAGES "{\"op\": \"synthetic\", \"count\": 150, \"shape\": [17, 13, 3], \"dtype\": \"uint8\"}, "
#define NUMBERS "{\"op\": \"range\", \"stop\": 1000}, "
#define FILTER "{\"op\": \"filter\", \"where\": \"value % 3 == 1\"}"
#define ASSIGN "{\"op\": \"assign\", \"set\": {\"x\": \"sqrt(value) + 0.1\"}}"
#define ASSIGN_ONE "{\"op\": \"assign\", \"set\": {\"k\": \"1 + 1\"}}"
#define ASSIGN_NUMBER "{\"op\": \"assign\", \"set\": {\"k\": \"max(data) % 4\"}}, "
#define NORMALIZE "{\"op\": \"normalize\", \"component\": \"data\", \"mean\": [1, 2, 3], \"std\": [4, 5, 6]}"
#define CAST "{\"op\": \"cast\", \"component\": \"data\", \"dtype\": \"float16\"}"
#define CENTER_CROP "{\"op\": \"center_crop\", \"component\": \"data\", \"size\": [7, 5]}"
#define RANDOM_CROP "{\"op\": \"random_crop\", \"component\": \"data\", \"size\": [7, 5]}"
#define FLIP "{\"op\": \"random_flip\", \"component\": \"data\", \"vertical\": 0.5}"
#define SOLARIZE "{\"op\": \"solarize\", \"component\": \"data\", \"threshold\": 99, \"p\": 0.5}"
#define AUTOCONTRAST "{\"op\": \"autocontrast\", \"component\": \"data\"}"
#define RESIZE "{\"op\": \"resize\", \"component\": \"data\", \"size\": [8, 9]}"
#define GRAYSCALE "{\"op\": \"grayscale\", \"component\": \"data\"}"
#define RANDOM_GRAYSCALE "{\"op\": \"random_grayscale\", \"component\": \"data\", \"p\": 0.5}"
#define FLATTEN "{\"op\": \"flatten\", \"component\": \"data\"}"
#define RESHAPE "{\"op\": \"reshape\", \"component\": \"data\", \"shape\": [13, -1]}"
#define TRANSPOSE "{\"op\": \"transpose_image\", \"component\": \"data\"}"

/* Two operators behind a source, the later of which may or may not stand first. */
struct pair {
    const char *source, *earlier, *later;
};

static struct cw_compiled *compiled(const struct pair *p, bool swapped)
{
    char text[1000];
    struct cw_pipeline *pipeline;
    struct cw_compiled *c = NULL;
    struct cw_error err = {0};
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s%s, %s]}", p->source,
             swapped ? p->later : p->earlier, swapped ? p->earlier : p->later);
    int r = cw_pipeline_parse(cw_ops(), text, strlen(text), NULL, &pipeline, &err);
    if (r == 0) {
        r = cw_compile(pipeline, &c, &err);
        cw_pipeline_unref(pipeline);
    }
    if (r < 0)
        fail_msg("%s: %s", text, err.message);
    return c;
}

/* The number of the law that lets the later operator pass the earlier one; -1: none. */
static int law_of(const struct pair *p, bool relaxed)
{
    size_t n;
    struct cw_compiled *c = compiled(p, false);
    const struct cw_program *g = &c->programs[0];
    const struct cw_law *law = cw_law_find(g->ops[g->n_ops - 2], g->ops[g->n_ops - 1], relaxed);
    cw_compiled_free(c);
    return law ? (int)(law - cw_laws(&n)) : -1;
}

/* All elements, in batches of a size that divides no count. */
static struct cachew_iterator *opened(const struct pair *p, bool swapped, bool optimize, int64_t seed)
{
    char text[1000];
    struct cachew_pipeline *pipeline;
    struct cachew_iterator *it = NULL;
    struct cachew_error *err = NULL;
    struct cachew_options options = CACHEW_OPTIONS_INIT;
    options.optimize = optimize;
    options.seed = seed;
    options.threads = 2;
    snprintf(text, sizeof(text),
             "{\"cachew\": 1, \"order\": \"written\", \"pipeline\": [%s%s, %s, {\"op\": \"batch\", \"size\": "
             "37}]}",
             p->source, swapped ? p->later : p->earlier, swapped ? p->earlier : p->later);
    int r = cachew_pipeline_parse(text, NULL, &pipeline, &err);
    if (r == 0)
        r = cachew_iterator_open(pipeline, &options, &it, &err);
    if (r < 0)
        fail_msg("%s: %s", text, cachew_error_message(err));
    cachew_pipeline_free(pipeline);
    return it;
}

static void expect_same(const struct cachew_batch *a, const struct cachew_batch *b)
{
    assert_int_equal(cachew_batch_records(a), cachew_batch_records(b));
    assert_int_equal(cachew_batch_count(a), cachew_batch_count(b));
    for (size_t i = 0; i < cachew_batch_count(a); i++) {
        const struct cachew_component *x = cachew_batch_component(a, i);
        const struct cachew_component *y = cachew_batch_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->ndim, y->ndim);
        assert_memory_equal(x->dims, y->dims, (size_t)x->ndim * sizeof(x->dims[0]));
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->data, y->data, x->size);
    }
}

/* Both orders have the same batches, of which there are several. */
static void expect_exact(const struct pair *p, bool optimize, int64_t seed)
{
    struct cachew_iterator *written = opened(p, false, optimize, seed), *moved = opened(p, true, true, seed);
    struct cachew_batch *a, *b;
    struct cachew_error *err = NULL;
    for (unsigned n = 0;; n++) {
        int r = cachew_iterator_next(written, -1, &a, &err);
        assert_int_equal(cachew_iterator_next(moved, -1, &b, &err), r);
        if (r != 0) {
            assert_int_equal(r, 1);
            assert_true(n > 3);
            break;
        }
        expect_same(a, b);
        cachew_batch_release(a);
        cachew_batch_release(b);
    }
    cachew_iterator_free(written);
    cachew_iterator_free(moved);
}

/* By law. */
static const struct {
    struct pair pairs[12];
} EXACT[] = {
    {{{NUMBERS, ASSIGN, FILTER},
      {NUMBERS ASSIGN ", ", "{\"op\": \"drop\", \"components\": \"x\"}", FILTER},
      {NUMBERS ASSIGN ", ", "{\"op\": \"select\", \"components\": \"value\"}", FILTER},
      {NUMBERS, "{\"op\": \"delay\", \"us\": 1}", FILTER},
      {IMAGES ASSIGN_NUMBER, FLIP, "{\"op\": \"filter\", \"where\": \"k != 2\"}"}}},
    {{{IMAGES, NORMALIZE, CENTER_CROP},
      {IMAGES, NORMALIZE, RANDOM_CROP},
      {IMAGES, NORMALIZE, FLIP},
      {IMAGES, CAST, CENTER_CROP},
      {IMAGES, CAST, RANDOM_CROP},
      {IMAGES, CAST, FLIP},
      {IMAGES, GRAYSCALE, FLIP},
      {IMAGES, GRAYSCALE, RANDOM_CROP},
      {IMAGES, RANDOM_GRAYSCALE, CENTER_CROP},
      {IMAGES, SOLARIZE, FLIP}}},
    {{{IMAGES, CENTER_CROP, NORMALIZE},
      {IMAGES, RANDOM_CROP, CAST},
      {IMAGES, FLIP, CAST},
      {IMAGES, FLIP, GRAYSCALE},
      {IMAGES, CENTER_CROP, RANDOM_GRAYSCALE},
      {IMAGES, RANDOM_CROP, SOLARIZE}}},
    {{{IMAGES, CAST, TRANSPOSE}, {IMAGES, CAST, FLATTEN}, {IMAGES, CAST, RESHAPE}}},
    {{{IMAGES, TRANSPOSE, CAST}, {IMAGES, FLATTEN, CAST}, {IMAGES, RESHAPE, CAST}}},
    {{{IMAGES, ASSIGN_ONE, CENTER_CROP},
      {IMAGES, RANDOM_CROP, ASSIGN_ONE},
      {IMAGES ASSIGN_NUMBER, FLIP, "{\"op\": \"one_hot\", \"component\": \"k\", \"classes\": 4}"},
      {NUMBERS, ASSIGN, "{\"op\": \"assign\", \"set\": {\"y\": \"value * 2\"}}"}}},
};

static void both_orders_of_a_law_are_the_same(void **state)
{
    (void)state;
    for (size_t k = 0; k < CW_COUNT_OF(EXACT); k++)
        for (size_t i = 0; EXACT[k].pairs[i].source; i++) {
            assert_int_equal(law_of(&EXACT[k].pairs[i], false), k);
            for (int64_t seed = 0; seed < 3; seed++)
                expect_exact(&EXACT[k].pairs[i], seed != 1, seed);
        }
}

#define BLUR "{\"op\": \"gaussian_blur\", \"component\": \"data\", \"kernel_size\": 3}"
#define ROTATION "{\"op\": \"random_rotation\", \"component\": \"data\", \"degrees\": 30}"
#define JITTER "{\"op\": \"color_jitter\", \"component\": \"data\", \"contrast\": 0.5}"

/* By law of the order `relaxed`. */
static const struct {
    struct pair pairs[5];
} RELAXED[] = {
    {{{IMAGES, FLIP, RESIZE},
      {IMAGES, ROTATION, RANDOM_CROP},
      {IMAGES, FLIP, ROTATION},
      {IMAGES, BLUR, RESIZE}}},
    {{{IMAGES, NORMALIZE, RESIZE}, {IMAGES, JITTER, BLUR}, {IMAGES, AUTOCONTRAST, RESIZE}}},
    {{{IMAGES, RESIZE, NORMALIZE}, {IMAGES, BLUR, GRAYSCALE}}},
    {{{IMAGES, JITTER, CENTER_CROP}, {IMAGES, GRAYSCALE, ROTATION}}},
    {{{IMAGES, ROTATION, JITTER}, {IMAGES, FLIP, AUTOCONTRAST}}},
    {{{IMAGES, JITTER, GRAYSCALE}}},
};

static void relaxed_laws_speak_of_augmentations(void **state)
{
    (void)state;
    size_t n, exact = CW_COUNT_OF(EXACT);
    cw_laws(&n);
    assert_int_equal(n, exact + CW_COUNT_OF(RELAXED)); /* a new law needs pairs */
    for (size_t k = 0; k < n - exact; k++)
        for (size_t i = 0; RELAXED[k].pairs[i].source; i++) {
            assert_int_equal(law_of(&RELAXED[k].pairs[i], true), exact + k);
            assert_int_equal(law_of(&RELAXED[k].pairs[i], false), -1);
        }
    static const struct pair refused[] = {
        /* both change the size; values that are filled in would be normalised, or not; erased values too */
        {IMAGES, RESIZE, CENTER_CROP},
        {IMAGES, NORMALIZE, ROTATION},
        {IMAGES, NORMALIZE, "{\"op\": \"random_erasing\", \"component\": \"data\"}"},
        {IMAGES, CAST, NORMALIZE},
        {IMAGES, SOLARIZE, JITTER},
        {IMAGES, TRANSPOSE, "{\"op\": \"filter\", \"where\": \"max(data) > 9\"}"},
    };
    for (size_t i = 0; i < CW_COUNT_OF(refused); i++)
        assert_int_equal(law_of(&refused[i], true), -1);
}

static void no_law_speaks_of_the_others(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        /* it reads what the other computes */
        {NUMBERS, ASSIGN, "{\"op\": \"filter\", \"where\": \"x > 9\"}"},
        /* pinned; renamed; two filters, which would gain nothing */
        {NUMBERS, "{\"op\": \"autocache\"}", FILTER},
        {NUMBERS, "{\"op\": \"cache\"}", FILTER},
        {NUMBERS, "{\"op\": \"count\"}", FILTER},
        {NUMBERS, "{\"op\": \"assign\", \"set\": {\"x\": \"value + 1\"}, \"keep_position\": true}", FILTER},
        {NUMBERS, ASSIGN, "{\"op\": \"filter\", \"where\": \"value > 9\", \"keep_position\": true}"},
        {NUMBERS, "{\"op\": \"rename\", \"names\": {\"value\": \"v\"}}",
         "{\"op\": \"filter\", \"where\": \"v > 9\"}"},
        {NUMBERS, FILTER, FILTER},
        /* it would be renamed or removed, or have another value */
        {NUMBERS, ASSIGN, "{\"op\": \"assign\", \"set\": {\"value\": \"2\"}}"},
        {NUMBERS, ASSIGN, "{\"op\": \"assign\", \"set\": {\"x\": \"2\"}}"},
        {NUMBERS ASSIGN ", ", "{\"op\": \"drop\", \"components\": \"x\"}", ASSIGN_ONE},
        {NUMBERS ASSIGN ", ", "{\"op\": \"drop\", \"components\": \"x\"}", ASSIGN},
        {NUMBERS, FILTER, ASSIGN},
        /* the cast has nothing to do there, but would have elsewhere */
        {IMAGES, "{\"op\": \"cast\", \"component\": \"data\", \"dtype\": \"uint8\"}", NORMALIZE},
        {IMAGES, NORMALIZE, "{\"op\": \"cast\", \"component\": \"data\", \"dtype\": \"float32\"}"},
        {NUMBERS, "{\"op\": \"fail\", \"where\": \"value < 0\"}", FILTER},
        /* a crop reads the layout that the transposition changes; interpolation mixes neighbours */
        {IMAGES, TRANSPOSE, "{\"op\": \"center_crop\", \"component\": \"data\", \"size\": [2, 5]}"},
        {IMAGES, NORMALIZE, RESIZE},
        {IMAGES, RESIZE, CENTER_CROP},
        {IMAGES, AUTOCONTRAST, CENTER_CROP},
        {IMAGES, RANDOM_CROP, RANDOM_CROP},
        {IMAGES, NORMALIZE, TRANSPOSE},
        {IMAGES, GRAYSCALE, TRANSPOSE},
        {IMAGES, CAST, NORMALIZE},
        {IMAGES, GRAYSCALE, CAST},
    };
    for (size_t i = 0; i < CW_COUNT_OF(pairs); i++)
        if (law_of(&pairs[i], false) >= 0)
            fail_msg("there is a law for %s, %s", pairs[i].earlier, pairs[i].later);
}

/* ---- descriptors ---- */

static void effects_fit_the_kind(void **state)
{
    (void)state;

    static const enum cw_op_count counts[] = {
        [CW_OP_SOURCE] = CW_COUNT_KNOWN,   [CW_OP_MAP] = CW_COUNT_SAME,    [CW_OP_FILTER] = CW_COUNT_FEWER,
        [CW_OP_FLAT_MAP] = CW_COUNT_ANY,   [CW_OP_INDEX] = CW_COUNT_KNOWN, [CW_OP_BATCHER] = CW_COUNT_GROUPS,
        [CW_OP_BATCH_MAP] = CW_COUNT_SAME,
    };

    for (size_t i = 0; i < cw_ops()->n; i++) {
        const struct cw_op_desc *d = cw_ops()->ops[i];
        const struct cw_op_effects *e = &d->effects;
        print_message("%s\n", d->name);
        assert_int_equal(e->count, cw_op_is_stream(d) ? CW_COUNT_ANY : counts[d->kind]);
        /* a filter may have a limit */
        assert_int_equal(d->index != NULL, d->kind == CW_OP_INDEX || (d->kind == CW_OP_FILTER && e->state));
        assert_int_equal(d->batcher != NULL, d->kind == CW_OP_BATCHER);
        assert_true(!d->index || !d->index->build == (d->kind == CW_OP_FILTER));
        assert_true(!d->index || (e->state == CW_STATE_COUNTED) == (d->index->limit != CW_LIMIT_NONE));
        assert_true(!d->batcher || (d->batcher->sizes && d->batcher->keyed == (d->run != NULL)));
        assert_true(d->kind != CW_OP_MAP || e->state == CW_STATE_NONE);
        assert_true(!e->projects || e->renames);
        if (e->renames || d->cache_point)
            assert_true(d->kind == CW_OP_MAP && !d->run && !e->random);
        else if (e->pinned)
            assert_true(d->kind == CW_OP_MAP && !e->random);
        else
            assert_true(d->kind != CW_OP_MAP || d->run);
        assert_true(d->cache_point == CW_CACHE_NEVER || e->pinned);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_orders_of_a_law_are_the_same),
        cmocka_unit_test(relaxed_laws_speak_of_augmentations),
        cmocka_unit_test(no_law_speaks_of_the_others),
        cmocka_unit_test(effects_fit_the_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
