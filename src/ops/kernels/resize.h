/*
 * Resizes an image; docs/pixels.md, sections 1 and 2, defines the result. The caller passes source rows one
 * by one, from top to bottom, as a decoder makes them. Rows that the result depends on go through the
 * horizontal pass into a ring buffer, which keeps them as long as the vertical pass needs them. Each result
 * row is written, in order, to its destination as soon as its last source row has come. A plan (struct
 * cw_resize) belongs to one thread and one image; all its memory is in the arena.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/arena.h"
#include "data/type.h"

enum cw_interp { CW_NEAREST, CW_BILINEAR, CW_BICUBIC };

#define CW_ROW_SLACK 64 /* writable bytes after each row that kernels write to */

struct cw_resize_spec {
    int64_t in_h, in_w, out_h, out_w; /* all >= 1, below 2^31 */
    int channels;
    enum cw_dtype dtype; /* uint8, uint16, float32, float64 */
    enum cw_interp interp;
    bool antialias;
    int64_t cut_y, cut_x, cut_h,
        cut_w;   /* the wanted part of the result, in pixels; all 0: the whole result */
    bool flip_x; /* flips that part left-right, at no cost */
};

/* The taps and weights of one axis. The taps of an output are the inputs that it is computed from. */
struct cw_axis {
    int64_t out;         /* number of wanted outputs */
    int64_t first, used; /* the wanted outputs depend on inputs first .. first + used - 1 */
    /* each output is a copy of one input: output i of input lo[i], for `nearest` and for an axis that keeps
     * its size (then lo is NULL, which means input i, unless the axis is flipped) */
    bool gather;
    int taps;        /* largest number of taps of an output */
    int p;           /* uint8: precision of w: 14 (then at most two taps) or 22 */
    int32_t *lo, *n; /* per output: first tap, counted from `first`; number of taps */
    int32_t *w;      /* uint8: `taps` weights per output, zero after the first n */
    double *v;       /* the same for other dtypes */
};

struct cw_pixel_isa;

struct cw_resize {
    struct cw_resize_spec spec;
    struct cw_axis x, y;
    int64_t out_h, out_w; /* size of the wanted part */
    size_t pixel;         /* bytes of a pixel */
    size_t row;           /* bytes of an output row */
    size_t pad;           /* bytes after a source row that the horizontal pass may read */
    const struct cw_pixel_isa *isa;
    const struct cw_pixel_isa *x_isa; /* the version that does the horizontal pass */
    void *tables;                     /* of x_isa, for the horizontal pass */
    int32_t *keep; /* per output row: the first source row that this or a later output row depends on */
    int64_t next;  /* the next output row */
    uint8_t *ring; /* rows of the horizontal pass: source row y at ring + (y & ring_mask) * ring_stride */
    size_t ring_mask, ring_stride;
    const uint8_t **taps; /* source rows of one output row, and their weights in tap_w */
    int32_t *tap_w;
    double *values, *sums; /* dtypes other than uint8: one row of inputs, one row of outputs */
    uint8_t *padded;       /* a source row followed by r->pad bytes */
    uint8_t *out;          /* an output row, for sinks without `direct` */
};

/* The destination of result rows: row y is written to direct + y * stride; if direct is NULL, `put` is called
 * with each row, which is valid during the call. */
struct cw_row_sink {
    uint8_t *direct;
    ptrdiff_t stride;
    void (*put)(void *arg, int64_t y, const void *row);
    void *arg;
};

/* Fills in *r, with memory from the arena. CW_E_MEMORY, CW_E_BUDGET. */
int cw_resize_plan(struct cw_resize *r, const struct cw_resize_spec *spec, struct cw_arena *arena,
                   struct cw_error *err) _must_check_;
/* The result depends on the r->y.used source rows from r->y.first on, and on the r->x.used columns from
 * r->x.first on. Call this once for each of these rows, in order. y: the row's number, counted from 0 at
 * r->y.first. row: its first needed column. slack: bytes after the last needed column that may be read (if it
 * is less than r->pad, the row may be copied). */
void cw_resize_row(struct cw_resize *r, int64_t y, const uint8_t *row, size_t slack,
                   const struct cw_row_sink *sink);
/* Calls cw_resize_row for all rows of an image in memory. src: the first pixel that the result depends on;
 * rows are stride bytes apart. slack: bytes that may be read after the last needed pixel. */
void cw_resize_run(struct cw_resize *r, const uint8_t *src, size_t stride, size_t slack,
                   const struct cw_row_sink *sink);

/* cw_resize_plan with the kernels of a given instruction set, for tests. */
int cw_resize_plan_isa(struct cw_resize *r, const struct cw_resize_spec *spec, const struct cw_pixel_isa *isa,
                       struct cw_arena *arena, struct cw_error *err) _must_check_;

/* Computes the taps and weights of one axis (resize_axis.c). */
int cw_axis_init(struct cw_axis *a, const struct cw_resize_spec *spec, bool horizontal,
                 struct cw_arena *arena, struct cw_error *err) _must_check_;
