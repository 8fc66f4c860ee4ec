/*
 * The part of libspng's interface that Cachew uses. src/formats/image_libpng.c implements it with libpng.
 * meson.build puts this folder on the include path where libspng is missing (Debian 11, Ubuntu 22.04).
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct spng_ctx spng_ctx;

/* Errors. The signs are libspng's, the numbers are not. */
enum {
    SPNG_IO_ERROR = -2,
    SPNG_IO_EOF = -1,
    SPNG_EMEM = 1,
    SPNG_EZLIB_INIT,  /* never returned: it is SPNG_EMEM here */
    SPNG_ECHUNKAVAIL, /* the image has no such chunk */
    SPNG_EUSER_HEIGHT,
    SPNG_EDATA, /* whatever libpng calls an error */
    SPNG_EOI,   /* the last row has been read */
};

enum { SPNG_CTX_ENCODER = 2 };

enum { SPNG_FMT_RGB8 = 4, SPNG_FMT_PNG = 256 };

enum { SPNG_DECODE_PROGRESSIVE = 256 };

enum { SPNG_ENCODE_FINALIZE = 2 };

enum { SPNG_CRC_ERROR, SPNG_CRC_DISCARD };

enum {
    SPNG_COLOR_TYPE_GRAYSCALE = 0,
    SPNG_COLOR_TYPE_TRUECOLOR = 2,
    SPNG_COLOR_TYPE_INDEXED = 3,
    SPNG_COLOR_TYPE_GRAYSCALE_ALPHA = 4,
    SPNG_COLOR_TYPE_TRUECOLOR_ALPHA = 6,
};

struct spng_ihdr {
    uint32_t width, height;
    uint8_t bit_depth, color_type, compression_method, filter_method, interlace_method;
};

struct spng_plte_entry {
    uint8_t red, green, blue, alpha;
};

struct spng_plte {
    uint32_t n_entries;
    struct spng_plte_entry entries[256];
};

struct spng_trns {
    uint16_t gray, red, green, blue;
    uint32_t n_type3_entries;
    uint8_t type3_alpha[256];
};

struct spng_row_info {
    uint32_t row_num;
};

spng_ctx *spng_ctx_new(int flags);
void spng_ctx_free(spng_ctx *ctx);
int spng_set_png_buffer(spng_ctx *ctx, const void *buf, size_t size);
int spng_set_png_file(spng_ctx *ctx, FILE *file);
int spng_set_chunk_limits(spng_ctx *ctx, size_t chunk_size, size_t cache_size);
int spng_set_crc_action(spng_ctx *ctx, int critical, int ancillary);
int spng_get_ihdr(spng_ctx *ctx, struct spng_ihdr *ihdr);
int spng_set_ihdr(spng_ctx *ctx, struct spng_ihdr *ihdr);
int spng_get_plte(spng_ctx *ctx, struct spng_plte *plte);
int spng_get_trns(spng_ctx *ctx, struct spng_trns *trns);
int spng_decoded_image_size(spng_ctx *ctx, int fmt, size_t *len);
/* fmt: RGB8 (the whole image), or PNG with SPNG_DECODE_PROGRESSIVE: rows as they lie in the file, uint16 in
 * the machine's order. */
int spng_decode_image(spng_ctx *ctx, void *out, size_t len, int fmt, int flags);
/* The row that spng_decode_row reads next. Unlike libspng's, an interlaced image has every row in each of its
 * passes. */
int spng_get_row_info(spng_ctx *ctx, struct spng_row_info *row_info);
int spng_decode_row(spng_ctx *ctx, void *out, size_t len);
int spng_decode_chunks(spng_ctx *ctx);
/* 8 bits a channel; the size of img is that of the header. */
int spng_encode_image(spng_ctx *ctx, const void *img, size_t len, int fmt, int flags);
const char *spng_strerror(int err);
const char *spng_version_string(void);
