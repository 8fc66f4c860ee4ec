/* Every instruction set's resize equals the portable one, bit for bit; reads and writes stay within what the
 * contract gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/kernels/isa.h"
#include "ops/kernels/resize.h"
#include "sample.h"

static uint64_t seed = 0x9E3779B97F4A7C15u;

static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % n);
}

struct collect {
    uint8_t *out;
    size_t row;
};

static void put(void *arg, int64_t y, const void *row)
{
    const struct collect *c = arg;
    memcpy(c->out + (size_t)y * c->row, row, c->row);
}

/* The result in memory of exactly its size (so that a sanitizer sees every byte too many). */
static uint8_t *resized(const struct cw_resize_spec *s, const struct cw_pixel_isa *isa, const uint8_t *image,
                        bool direct, size_t *ret_size)
{
    struct cw_budget budget;
    struct cw_arena arena;
    cw_budget_init(&budget, (size_t)1 << 30);
    cw_arena_init(&arena, &budget);
    struct cw_resize r;
    assert_int_equal(cw_resize_plan_isa(&r, s, isa, &arena, NULL), 0);
    size_t stride = (size_t)s->in_w * r.pixel, size = (size_t)r.out_h * r.row;
    const uint8_t *first = image + (size_t)r.y.first * stride + (size_t)r.x.first * r.pixel;
    const uint8_t *last = first + (size_t)(r.y.used - 1) * stride + (size_t)r.x.used * r.pixel;
    uint8_t *out = malloc(size);
    assert_non_null(out);
    struct collect c = {out, r.row};
    struct cw_row_sink sink = {.put = put, .arg = &c};
    if (direct)
        sink = (struct cw_row_sink){.direct = out, .stride = (ptrdiff_t)r.row};
    cw_resize_run(&r, first, stride, (size_t)(image + (size_t)s->in_h * stride - last), &sink);
    cw_arena_deinit(&arena);
    assert_int_equal(budget.used, 0);
    *ret_size = size;
    return out;
}

static void check_all(const struct cw_resize_spec *s)
{
    size_t bytes = (size_t)s->in_h * (size_t)s->in_w * (size_t)s->channels, n, m;
    uint8_t *image = malloc(bytes);
    assert_non_null(image);
    bool extremes = draw(3) == 0; /* black and white: sums at the ends of their range */
    for (size_t i = 0; i < bytes; i++)
        image[i] = (uint8_t)(extremes ? draw(2) * 255 : draw(256));
    uint8_t *want = resized(s, &cw_pixel_isa_c, image, true, &n);
    for (const struct cw_pixel_isa *const *isa = cw_pixel_isa_list; *isa; isa++) {
        if (!(*isa)->supported())
            continue;
        uint8_t *got = resized(s, *isa, image, draw(2), &m);
        assert_int_equal(n, m);
        if (memcmp(want, got, n) != 0)
            fail_msg("%s differs: %lld x %lld x %d to %lld x %lld, interpolation %d, antialias %d",
                     (*isa)->name, (long long)s->in_h, (long long)s->in_w, s->channels, (long long)s->out_h,
                     (long long)s->out_w, (int)s->interp, s->antialias);
        free(got);
    }
    free(want);
    free(image);
}

static void random_spec(struct cw_resize_spec *s, uint32_t max_in, uint32_t max_out)
{
    *s = (struct cw_resize_spec){.in_h = 1 + draw(max_in),
                                 .in_w = 1 + draw(max_in),
                                 .out_h = 1 + draw(max_out),
                                 .out_w = 1 + draw(max_out),
                                 .channels = 1 + (int)draw(4),
                                 .dtype = CW_UINT8,
                                 .interp = (enum cw_interp)draw(3),
                                 .antialias = draw(2),
                                 .flip_x = draw(2)};
    if (draw(4) == 0) {
        s->cut_h = 1 + draw((uint32_t)s->out_h);
        s->cut_w = 1 + draw((uint32_t)s->out_w);
        s->cut_y = draw((uint32_t)(s->out_h - s->cut_h + 1));
        s->cut_x = draw((uint32_t)(s->out_w - s->cut_w + 1));
    }
}

static void test_random_sizes(void **state)
{
    (void)state;
    struct cw_resize_spec s;
    for (int i = 0; i < (int)sample_size(3000); i++) {
        random_spec(&s, 90, 90);
        check_all(&s);
    }
    for (int i = 0; i < 100; i++) {
        random_spec(&s, 500, 300);
        check_all(&s);
    }
}

static void test_extreme_ratios(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{1, 1, 1, 1},       {1, 1, 300, 300},   {1, 9, 9, 1},
                                       {9, 1, 1, 9},       {4000, 1, 1, 40},   {1, 4000, 40, 1},
                                       {2000, 3, 2, 3000}, {3, 2000, 3000, 2}, {777, 777, 1, 1},
                                       {5, 5, 5, 64},      {5, 5, 64, 5}};
    for (size_t i = 0; i < CW_COUNT_OF(sizes); i++)
        for (size_t k = 0; k < sample_size(24); k++) {
            int kind = (int)(i + 5 * k) % 24;
            struct cw_resize_spec s = {.in_h = sizes[i][0],
                                       .in_w = sizes[i][1],
                                       .out_h = sizes[i][2],
                                       .out_w = sizes[i][3],
                                       .channels = kind % 2 ? 3 : 4,
                                       .dtype = CW_UINT8,
                                       .interp = (enum cw_interp)(kind / 2 % 3),
                                       .antialias = kind / 6 % 2,
                                       .flip_x = kind / 12};
            check_all(&s);
        }
}

/* A part of the result is that part of the whole, and a flip is a flip. */
static void test_cut_and_flip(void **state)
{
    (void)state;
    for (int i = 0; i < (int)sample_size(500); i++) {
        struct cw_resize_spec s;
        random_spec(&s, 60, 60);
        if (!s.cut_h)
            continue;
        size_t bytes = (size_t)(s.in_h * s.in_w * s.channels), n, m, px = (size_t)s.channels;
        uint8_t *image = malloc(bytes);
        for (size_t k = 0; k < bytes; k++)
            image[k] = (uint8_t)draw(256);
        struct cw_resize_spec whole = s;
        whole.cut_y = whole.cut_x = whole.cut_h = whole.cut_w = 0;
        whole.flip_x = false;
        uint8_t *part = resized(&s, cw_pixel_isa(), image, true, &n),
                *all = resized(&whole, &cw_pixel_isa_c, image, true, &m);
        assert_int_equal(n, (size_t)(s.cut_h * s.cut_w) * px);
        for (int64_t y = 0; y < s.cut_h; y++)
            for (int64_t x = 0; x < s.cut_w; x++) {
                int64_t from = s.cut_x + (s.flip_x ? s.cut_w - 1 - x : x);
                assert_memory_equal(part + (size_t)(y * s.cut_w + x) * px,
                                    all + (size_t)((s.cut_y + y) * s.out_w + from) * px, px);
            }
        free(part);
        free(all);
        free(image);
    }
}

/* Rows may be gone once they were handed over: one buffer for all of them, of exactly their size, gives what
 * the image in memory gives. */
static void test_row_by_row(void **state)
{
    (void)state;

    static const enum cw_dtype dtypes[] = {CW_UINT8, CW_UINT8, CW_UINT16, CW_FLOAT32};

    for (int i = 0; i < (int)sample_size(1000); i++) {
        struct cw_resize_spec s;
        random_spec(&s, 60, 60);
        s.dtype = dtypes[draw(4)];
        if (draw(4) == 0) /* nothing to do on an axis */
            s.out_h = s.in_h;
        if (draw(4) == 0)
            s.out_w = s.in_w;
        s.cut_y = s.cut_x = s.cut_h = s.cut_w = 0;
        size_t pixel = cw_dtype_size(s.dtype) * (size_t)s.channels, bytes = (size_t)(s.in_h * s.in_w) * pixel,
               n;
        uint8_t *image = malloc(bytes);
        for (size_t k = 0; k < bytes; k++)
            image[k] = (uint8_t)draw(s.dtype == CW_FLOAT32 ? 64 : 256); /* no NaN */
        uint8_t *want = resized(&s, cw_pixel_isa(), image, true, &n), *got = malloc(n);
        struct cw_budget budget;
        struct cw_arena arena;
        struct cw_resize r;
        cw_budget_init(&budget, (size_t)1 << 30);
        cw_arena_init(&arena, &budget);
        assert_int_equal(cw_resize_plan(&r, &s, &arena, NULL), 0);
        struct collect c = {got, r.row};
        struct cw_row_sink sink = {.put = put, .arg = &c};
        size_t used = (size_t)r.x.used * pixel;
        for (int64_t y = 0; y < r.y.used; y++) {
            uint8_t *row = malloc(used);
            memcpy(row, image + ((size_t)(r.y.first + y) * (size_t)s.in_w + (size_t)r.x.first) * pixel, used);
            cw_resize_row(&r, y, row, 0, &sink);
            memset(row, 0xA5, used);
            free(row);
        }
        assert_memory_equal(got, want, n);
        cw_arena_deinit(&arena);
        free(got);
        free(want);
        free(image);
    }
}

static void test_row_kernels(void **state)
{
    (void)state;
    static const float mean[3] = {123.675F, 116.28F, 103.53F}, std[3] = {58.395F, 57.12F, -0.3F};
    for (const struct cw_pixel_isa *const *isa = cw_pixel_isa_list; *isa; isa++) {
        if (!(*isa)->supported())
            continue;
        for (size_t n = 1; n < 100; n++) {
            uint8_t *src = malloc(3 * n), *a = malloc(3 * n), *b = malloc(3 * n);
            float *fa = malloc(3 * n * sizeof(float)), *fb = malloc(3 * n * sizeof(float));
            for (size_t i = 0; i < 3 * n; i++)
                src[i] = (uint8_t)draw(256);
            cw_pixel_isa_c.planar3((uint8_t *[]){a, a + n, a + 2 * n}, src, n);
            (*isa)->planar3((uint8_t *[]){b, b + n, b + 2 * n}, src, n);
            assert_memory_equal(a, b, 3 * n);
            cw_pixel_isa_c.normalize_planar3((float *[]){fa, fa + n, fa + 2 * n}, src, n, mean, std);
            (*isa)->normalize_planar3((float *[]){fb, fb + n, fb + 2 * n}, src, n, mean, std);
            assert_memory_equal(fa, fb, 3 * n * sizeof(float));
            for (int channels = 1; channels <= 3; channels += 2) {
                cw_pixel_isa_c.normalize_packed(fa, src, n, channels, mean, std);
                (*isa)->normalize_packed(fb, src, n, channels, mean, std);
                assert_memory_equal(fa, fb, n * (size_t)channels * sizeof(float));
            }
            free(src);
            free(a);
            free(b);
            free(fa);
            free(fb);
        }
    }
}

static void test_out_of_memory_and_budget(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_error err = {0};
    struct cw_resize r;
    struct cw_resize_spec s = {.in_h = 100000,
                               .in_w = 100000,
                               .out_h = 50000,
                               .out_w = 50000,
                               .channels = 3,
                               .dtype = CW_UINT8,
                               .interp = CW_BICUBIC,
                               .antialias = true};
    cw_budget_init(&budget, (size_t)1 << 20);
    cw_arena_init(&arena, &budget);
    assert_int_equal(cw_resize_plan(&r, &s, &arena, &err), CW_E_BUDGET);
    cw_arena_deinit(&arena);
    assert_int_equal(budget.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sizes), cmocka_unit_test(test_extreme_ratios),
        cmocka_unit_test(test_cut_and_flip), cmocka_unit_test(test_row_by_row),
        cmocka_unit_test(test_row_kernels),  cmocka_unit_test(test_out_of_memory_and_budget),
    };
    return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
