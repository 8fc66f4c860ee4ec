/* What the codecs share: a codec is a table of functions (struct cw_codec_ops) over a library, in a file of
 * its own. decompress.c calls them, and owns the input. Only decompress.c and codec_*.c include this. */
#pragma once
#include "formats/decompress.h"
#include "storage/ahead.h"

#define CW_CODEC_INPUT ((size_t)64 << 10) /* bytes of the input buffer */

enum cw_codec_step {                /* what a step has reached */
                     CW_STEP_MORE,  /* nothing in particular */
                     CW_STEP_PLACE, /* a place in a member that may become a restart point */
                     CW_STEP_END    /* the end of a member */
};

/* A stream. The struct of a codec's stream begins with it. */
struct cw_decompress {
    const struct cw_codec_ops *ops;
    struct cw_file *file;  /* borrowed */
    struct cw_ahead ahead; /* reads it */
    enum cw_codec codec;
    size_t most;   /* bytes that the stream may allocate; 0: no limit */
    size_t memory; /* the most bytes that it has had allocated */
    bool between;  /* no member has begun, or the last one has ended */
    bool first;    /* no member has begun yet */
    bool padded;   /* zero bytes followed the last member */
    bool ended;
    uint64_t next;     /* offset in the file of the first byte after the input buffer's content */
    uint64_t out;      /* bytes decompressed so far, counted from the begin of the stream */
    const uint8_t *in; /* the next byte of the input buffer */
    size_t n_in;       /* bytes left in the input buffer */
    uint8_t input[CW_CODEC_INPUT];
};

struct cw_codec_ops {
    size_t size;          /* of the codec's struct */
    bool member_may_wait; /* another member may follow zero bytes after a member */
    /* Makes the decoder of a zeroed stream. */
    int (*init)(struct cw_decompress *z, struct cw_error *err);
    /* Begins a member at the current offset. */
    int (*begin)(struct cw_decompress *z, struct cw_error *err);
    /* Begins in a member, at a restart point at the current offset. May set z->between instead. NULL: every
     * restart point is the start of a member. */
    int (*enter)(struct cw_decompress *z, const struct cw_restart *from, const uint8_t *window,
                 struct cw_error *err);
    /* Decompresses input to at[0..size), and sets *ret_n to the bytes written. Returns what it reached. With
     * input or room left, at least one byte must be used up, or the state must change. */
    int (*step)(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n, struct cw_error *err);
    /* Sets bits, window and window_size of a restart point in a member, or returns false. NULL with
     * `enter`. */
    bool (*restart)(struct cw_decompress *z, struct cw_restart *ret, uint8_t *window);
    /* Frees the decoder, also a half-made one. */
    void (*deinit)(struct cw_decompress *z);
};

extern const struct cw_codec_ops cw_codec_deflate, cw_codec_zstd, cw_codec_bzip2, cw_codec_xz;

/* Returns the offset in the file of the next byte of input. */
static inline uint64_t cw_codec_offset(const struct cw_decompress *z)
{
    return z->next - z->n_in;
}

/* Passes over n bytes of input that a decoder has used. */
static inline void cw_codec_used(struct cw_decompress *z, size_t n)
{
    z->in += n;
    z->n_in -= n;
}

/* Reads the next `size` bytes of input into `to`, or those up to the file's end, without passing over them.
 */
int cw_codec_peek(struct cw_decompress *z, void *to, size_t size, size_t *ret_n,
                  struct cw_error *err) _must_check_;
/* Passes over n bytes of input, which need not be in the buffer. */
void cw_codec_skip(struct cw_decompress *z, size_t n);
/* Notes that the decoder takes `bytes` of memory. CW_E_BUDGET: more than the stream may allocate. */
int cw_codec_need(struct cw_decompress *z, uint64_t bytes, struct cw_error *err) _must_check_;
/* These fill err and return its status: the data are damaged, or the file ends too early. */
int cw_codec_damaged(const struct cw_decompress *z, const char *why, struct cw_error *err);
int cw_codec_truncated(const struct cw_decompress *z, struct cw_error *err);
