/*
 * Resizing an image: docs/pixels.md sections 1 and 2 say what comes out. Source rows come one by one, from
 * top to bottom, as a decoder makes them; those that something depends on go through the first (horizontal)
 * pass into a ring, which holds them as long as the vertical pass needs them. Results leave row by row, in
 * order, as soon as their last source row was there, straight to where they belong. A plan belongs to one
 * thread and one image; all its memory is the arena's.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/arena.h"
#include "data/type.h"

enum cw_interp { CW_NEAREST, CW_BILINEAR, CW_BICUBIC };

#define CW_ROW_SLACK 64 /* writable bytes behind rows that kernels write to */

struct cw_resize_spec {
    int64_t in_h, in_w, out_h, out_w; /* all >= 1, below 2^31 */
    int channels;
    enum cw_dtype dtype; /* uint8, uint16, float32, float64 */
    enum cw_interp interp;
    bool antialias;
    int64_t cut_y, cut_x, cut_h, cut_w; /* the part of the result that is wanted; all 0: everything */
    bool flip_x;                        /* the part left-right, at no cost */
};

struct cw_axis {
    int64_t out;         /* outputs that are wanted */
    int64_t first, used; /* the inputs that they depend on; lo counts from first */
    /* output i is input lo[i]: nearest, or nothing to resize (lo is NULL then, meaning i, unless flipped) */
    bool gather;
    int taps;        /* longest run of taps */
    int p;           /* uint8: precision of w: 14 (then at most two taps) or 22 */
    int32_t *lo, *n; /* per output: first tap, number of taps */
    int32_t *w;      /* uint8: taps weights per output, zero behind n */
    double *v;       /* other dtypes: likewise */
};

struct cw_pixel_isa;

struct cw_resize {
    struct cw_resize_spec spec;
    struct cw_axis x, y;
    int64_t out_h, out_w; /* of what is wanted */
    size_t pixel;         /* bytes */
    size_t row;           /* bytes of an output row */
    size_t pad;           /* bytes behind a source row that the horizontal pass may read */
    const struct cw_pixel_isa *isa;
    const struct cw_pixel_isa *x_isa; /* of the horizontal pass */
    void *tables;                     /* of the isa's horizontal pass */
    int32_t *keep; /* per output row: the first source row that it or a later one depends on */
    int64_t next;  /* the output row to be made next */
    uint8_t *ring; /* rows of the horizontal pass: source row y at ring + (y & ring_mask) * ring_stride */
    size_t ring_mask, ring_stride;
    const uint8_t **taps; /* rows and weights of one output row */
    int32_t *tap_w;
    double *values, *sums; /* dtypes other than uint8: a row of inputs, of outputs */
    uint8_t *padded;       /* a source row with r->pad bytes behind it */
    uint8_t *out;          /* an output row for sinks without memory of their own */
};

/* Where rows go: either rows of bytes lie at direct + y * stride, or put is called with each (valid during
 * the call). */
struct cw_row_sink {
    uint8_t *direct;
    ptrdiff_t stride;
    void (*put)(void *arg, int64_t y, const void *row);
    void *arg;
};

/* CW_E_MEMORY, CW_E_BUDGET. */
int cw_resize_plan(struct cw_resize *r, const struct cw_resize_spec *spec, struct cw_arena *arena,
                   struct cw_error *err) _must_check_;
/* The result depends on source rows r->y.first .. + r->y.used - 1, likewise columns. Call this once for each
 * of the rows, in order, y counting from 0: row points to the first of the columns, slack is how many bytes
 * behind the last one may be read (with r->pad or more the row is not copied). */
void cw_resize_row(struct cw_resize *r, int64_t y, const uint8_t *row, size_t slack,
                   const struct cw_row_sink *sink);
/* The same for an image in memory: src points to the first pixel that the result depends on, rows are stride
 * bytes apart; slack: bytes that may be read behind the last one. */
void cw_resize_run(struct cw_resize *r, const uint8_t *src, size_t stride, size_t slack,
                   const struct cw_row_sink *sink);

/* For tests: the same with the kernels of a given instruction set. */
int cw_resize_plan_isa(struct cw_resize *r, const struct cw_resize_spec *spec, const struct cw_pixel_isa *isa,
                       struct cw_arena *arena, struct cw_error *err) _must_check_;

/* resize_axis.c: taps and weights of one axis. */
int cw_axis_init(struct cw_axis *a, const struct cw_resize_spec *spec, bool horizontal,
                 struct cw_arena *arena, struct cw_error *err) _must_check_;
