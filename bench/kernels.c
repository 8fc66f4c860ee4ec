/*
 * Microbenchmarks of the pixel kernels and of libjpeg's fixed cost: one core, the best of several rounds.
 *
 *   kernels [FILE.jpg ...]
 *
 * With files it also times opening and closing each (create, headers, destroy).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/image.h"
#include "ops/kernels/isa.h"
#include "ops/kernels/resize.h"

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static struct cw_budget budget;
static struct cw_arena arena;
static uint8_t *source, *target;
static const float mean[3] = {123.675F, 116.28F, 103.53F}, std[3] = {58.395F, 57.12F, 57.375F};

struct planes {
    int64_t h, w;
};

static void put_planes(void *arg, int64_t y, const void *row)
{
    const struct planes *p = arg;
    float *d = (float *)(void *)target + y * p->w;
    cw_pixel_isa()->normalize_planar3((float *[]){d, d + p->h * p->w, d + 2 * p->h * p->w}, row, (size_t)p->w,
                                      mean, std);
}

static void put_flipped(void *arg, int64_t y, const void *row)
{
    const struct planes *p = arg;
    memcpy(target + (p->h - 1 - y) * p->w * 3, row, (size_t)p->w * 3);
}

static void time_resize(const char *name, const struct cw_resize_spec *spec, const struct cw_pixel_isa *isa,
                        int kind)
{
    struct planes size = {spec->out_h, spec->out_w};
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        double begin = now_us();
        for (int i = 0; i < 20; i++) {
            struct cw_resize r;
            struct cw_arena_mark mark = cw_arena_mark(&arena);
            if (cw_resize_plan_isa(&r, spec, isa, &arena, NULL) < 0)
                abort();
            ptrdiff_t row = (ptrdiff_t)r.row;
            struct cw_row_sink sink = {.arg = &size};
            if (kind == 0)
                sink = (struct cw_row_sink){.direct = target, .stride = row};
            else
                sink.put = kind == 1 ? put_planes : put_flipped;
            cw_resize_run(&r, source, (size_t)spec->in_w * r.pixel, 4096, &sink);
            cw_arena_release(&arena, mark);
        }
        double t = (now_us() - begin) / 20;
        best = t < best ? t : best;
    }
    printf("%-52s %-5s %8.1f us\n", name, isa->name, best);
}

static void time_open(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return;
    size_t n = fread(source, 1, 32 << 20, f);
    fclose(f);
    struct cw_image_options options = {.channels = 3, .orientation = true, .max_pixels = 1 << 28};
    struct cw_image image;
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        double begin = now_us();
        for (int i = 0; i < 50; i++) {
            if (cw_image_open(&image, source, n, &options, NULL) < 0)
                return;
            cw_image_close(&image);
        }
        double t = (now_us() - begin) / 50;
        best = t < best ? t : best;
    }
    printf("%-58s %8.1f us\n", path, best);
}

int main(int argc, char **argv)
{
    cw_budget_init(&budget, (size_t)1 << 30);
    cw_arena_init(&arena, &budget);
    source = malloc(32 << 20);
    target = malloc(32 << 20);
    if (!source || !target)
        return 1;
    for (size_t i = 0; i < 32 << 20; i++)
        source[i] = (uint8_t)(i * 2654435761u >> 13);
    const struct cw_pixel_isa *isas[] = {&cw_pixel_isa_c, cw_pixel_isa_find("avx2"),
                                         cw_pixel_isa_find("avx512"), cw_pixel_isa_find("neon")};
    for (size_t k = 0; k < CW_COUNT_OF(isas); k++) {
        if (!isas[k])
            continue;
        struct cw_resize_spec s = {.in_h = 300,
                                   .in_w = 300,
                                   .out_h = 224,
                                   .out_w = 224,
                                   .channels = 3,
                                   .dtype = CW_UINT8,
                                   .interp = CW_BILINEAR};
        time_resize("300x300 -> 224x224 plain bilinear", &s, isas[k], 0);
        time_resize("300x300 -> 224x224 plain bilinear, upside down", &s, isas[k], 2);
        if (isas[k] == cw_pixel_isa())
            time_resize("300x300 -> 224x224 plain bilinear, normalised planes", &s, isas[k], 1);
        s.flip_x = true;
        time_resize("300x300 -> 224x224 plain bilinear, left-right", &s, isas[k], 0);
        s.flip_x = false;
        s.antialias = true;
        time_resize("300x300 -> 224x224 bilinear", &s, isas[k], 0);
        s.interp = CW_BICUBIC;
        time_resize("300x300 -> 224x224 bicubic", &s, isas[k], 0);
        s.interp = CW_BILINEAR;
        s.in_h = s.in_w = 150;
        time_resize("150x150 -> 224x224 bilinear", &s, isas[k], 0);
        s.in_h = s.in_w = 1500;
        time_resize("1500x1500 -> 224x224 bilinear", &s, isas[k], 0);
        s.antialias = false;
        time_resize("1500x1500 -> 224x224 plain bilinear", &s, isas[k], 0);
    }
    for (int i = 1; i < argc; i++)
        time_open(argv[i]);
    cw_arena_deinit(&arena);
    free(source);
    free(target);
    return 0;
}
