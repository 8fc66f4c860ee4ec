/*
 * Implements the part of libspng's interface that Cachew uses with libpng, for systems without libspng
 * (formats/libpng/spng.h).
 *
 * libpng reports errors by longjmp: a function that makes libpng read or write sets ctx->jump first, and has
 * no variable with a cleanup attribute. Of ancillary chunks only tRNS is read; libpng skips the others.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <spng.h>

struct spng_ctx {
    png_structp png;
    png_infop info;
    bool begun; /* reading the headers was tried; `error` is the result */
    jmp_buf jump;
    int error;      /* set before a jump; 0: libpng itself found the error */
    bool no_memory; /* an allocation failed */
    bool encoder;
    const uint8_t *data; /* the source, unless it is a file */
    size_t size, at;
    FILE *file;
    struct spng_ihdr ihdr;
    size_t chunk_bytes;
    int pass, passes;
    uint32_t row; /* the next row of the pass */
};

static png_voidp libpng_malloc(png_structp png, png_alloc_size_t size)
{
    struct spng_ctx *ctx = png_get_mem_ptr(png);
    void *p = malloc(size);
    if (!p)
        ctx->no_memory = true;
    return p;
}

static void libpng_free(png_structp png, png_voidp p)
{
    (void)png;
    free(p);
}

static _Noreturn void libpng_fail(png_structp png, png_const_charp text)
{
    (void)text;
    struct spng_ctx *ctx = png_get_error_ptr(png);
    if (!ctx->error)
        ctx->error = ctx->no_memory ? SPNG_EMEM : SPNG_EDATA;
    longjmp(ctx->jump, 1);
}

static void libpng_warn(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void libpng_read(png_structp png, png_bytep to, size_t size)
{
    struct spng_ctx *ctx = png_get_io_ptr(png);
    if (ctx->file) {
        if (fread(to, 1, size, ctx->file) == size)
            return;
        ctx->error = ferror(ctx->file) ? SPNG_IO_ERROR : SPNG_IO_EOF;
    } else if (size <= ctx->size - ctx->at) {
        memcpy(to, ctx->data + ctx->at, size);
        ctx->at += size;
        return;
    } else {
        ctx->error = SPNG_IO_EOF;
    }
    png_error(png, "read");
}

static void libpng_write(png_structp png, png_bytep from, size_t size)
{
    struct spng_ctx *ctx = png_get_io_ptr(png);
    if (fwrite(from, 1, size, ctx->file) == size)
        return;
    ctx->error = SPNG_IO_ERROR;
    png_error(png, "write");
}

static void libpng_flush(png_structp png)
{
    (void)png;
}

spng_ctx *spng_ctx_new(int flags)
{
    struct spng_ctx *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return NULL;
    ctx->encoder = flags & SPNG_CTX_ENCODER;
    return ctx;
}

void spng_ctx_free(spng_ctx *ctx)
{
    if (ctx && ctx->encoder)
        png_destroy_write_struct(&ctx->png, &ctx->info);
    else if (ctx)
        png_destroy_read_struct(&ctx->png, &ctx->info, NULL);
    free(ctx);
}

int spng_set_png_buffer(spng_ctx *ctx, const void *buf, size_t size)
{
    ctx->data = buf;
    ctx->size = size;
    return 0;
}

int spng_set_png_file(spng_ctx *ctx, FILE *file)
{
    ctx->file = file;
    return 0;
}

int spng_set_chunk_limits(spng_ctx *ctx, size_t chunk_size, size_t cache_size)
{
    (void)cache_size; /* nothing is kept of chunks but tRNS */
    ctx->chunk_bytes = chunk_size;
    return 0;
}

int spng_set_crc_action(spng_ctx *ctx, int critical, int ancillary)
{
    (void)ctx;
    /* what libpng does by itself */
    return critical == SPNG_CRC_ERROR && ancillary == SPNG_CRC_DISCARD ? 0 : SPNG_EDATA;
}

/* Reads everything before the pixels, once. */
static int libpng_headers(struct spng_ctx *ctx)
{
    if (ctx->begun)
        return ctx->error;
    ctx->begun = true;
    if (setjmp(ctx->jump))
        return ctx->error;
    ctx->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, ctx, libpng_fail, libpng_warn, ctx,
                                        libpng_malloc, libpng_free);
    if (ctx->png)
        ctx->info = png_create_info_struct(ctx->png);
    if (!ctx->info)
        return ctx->error = SPNG_EMEM;
    png_set_read_fn(ctx->png, ctx, libpng_read);
    png_set_user_limits(ctx->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* callers have limits of their own */
    if (ctx->chunk_bytes)
        png_set_chunk_malloc_max(ctx->png, ctx->chunk_bytes);
    png_set_keep_unknown_chunks(ctx->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* all that can be ignored */
    png_read_info(ctx->png, ctx->info);
    ctx->ihdr = (struct spng_ihdr){
        .width = png_get_image_width(ctx->png, ctx->info),
        .height = png_get_image_height(ctx->png, ctx->info),
        .bit_depth = png_get_bit_depth(ctx->png, ctx->info),
        .color_type = png_get_color_type(ctx->png, ctx->info),
        .interlace_method = png_get_interlace_type(ctx->png, ctx->info),
    };
    return 0;
}

int spng_get_ihdr(spng_ctx *ctx, struct spng_ihdr *ihdr)
{
    int e = libpng_headers(ctx);
    *ihdr = ctx->ihdr;
    return e;
}

int spng_set_ihdr(spng_ctx *ctx, struct spng_ihdr *ihdr)
{
    ctx->ihdr = *ihdr;
    return 0;
}

int spng_get_plte(spng_ctx *ctx, struct spng_plte *plte)
{
    png_colorp colours;
    int n;
    *plte = (struct spng_plte){0};
    if (!png_get_PLTE(ctx->png, ctx->info, &colours, &n))
        return SPNG_ECHUNKAVAIL;
    plte->n_entries = (uint32_t)n;
    for (int i = 0; i < n; i++)
        plte->entries[i] = (struct spng_plte_entry){colours[i].red, colours[i].green, colours[i].blue, 255};
    return 0;
}

int spng_get_trns(spng_ctx *ctx, struct spng_trns *trns)
{
    png_bytep alpha = NULL;
    png_color_16p key = NULL;
    int n = 0;
    *trns = (struct spng_trns){0};
    if (!png_get_tRNS(ctx->png, ctx->info, &alpha, &n, &key))
        return SPNG_ECHUNKAVAIL;
    if (ctx->ihdr.color_type == SPNG_COLOR_TYPE_INDEXED) {
        trns->n_type3_entries = (uint32_t)n;
        memcpy(trns->type3_alpha, alpha, (size_t)n);
    } else {
        trns->gray = key->gray;
        trns->red = key->red;
        trns->green = key->green;
        trns->blue = key->blue;
    }
    return 0;
}

int spng_decoded_image_size(spng_ctx *ctx, int fmt, size_t *len)
{
    int e = libpng_headers(ctx);
    *len = (size_t)ctx->ihdr.width * ctx->ihdr.height * 3;
    return e ? e : fmt == SPNG_FMT_RGB8 ? 0 : SPNG_EDATA;
}

/* Sets up what rows look like, and begins with the pixels. */
static int libpng_start(struct spng_ctx *ctx, int fmt)
{
    if (setjmp(ctx->jump))
        return ctx->error;
    if (fmt == SPNG_FMT_RGB8) {
        png_set_expand(ctx->png);
        png_set_strip_16(ctx->png);
        png_set_strip_alpha(ctx->png);
        png_set_gray_to_rgb(ctx->png);
    } else if (ctx->ihdr.bit_depth == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        png_set_swap(ctx->png);
    }
    ctx->passes = png_set_interlace_handling(ctx->png);
    png_set_benign_errors(ctx->png, 0); /* a compressed stream that does not end as it should is damage */
    png_read_update_info(ctx->png, ctx->info);
    return 0;
}

int spng_decode_image(spng_ctx *ctx, void *out, size_t len, int fmt, int flags)
{
    (void)len;
    int e = libpng_headers(ctx);
    if (!e)
        e = libpng_start(ctx, fmt);
    if (flags & SPNG_DECODE_PROGRESSIVE)
        return e;
    while (!e)
        e = spng_decode_row(ctx, (uint8_t *)out + (size_t)ctx->row * ctx->ihdr.width * 3,
                            (size_t)ctx->ihdr.width * 3);
    return e == SPNG_EOI ? 0 : e;
}

int spng_get_row_info(spng_ctx *ctx, struct spng_row_info *row_info)
{
    *row_info = (struct spng_row_info){.row_num = ctx->row};
    return 0;
}

int spng_decode_row(spng_ctx *ctx, void *out, size_t len)
{
    (void)len;
    if (setjmp(ctx->jump))
        return ctx->error;
    png_read_row(ctx->png, out, NULL);
    if (++ctx->row == ctx->ihdr.height) {
        ctx->row = 0;
        ctx->pass++;
    }
    return ctx->pass == ctx->passes ? SPNG_EOI : 0;
}

int spng_decode_chunks(spng_ctx *ctx)
{
    if (setjmp(ctx->jump))
        return ctx->error;
    png_set_benign_errors(ctx->png, 1);
    png_read_end(ctx->png, NULL);
    return 0;
}

int spng_encode_image(spng_ctx *ctx, const void *img, size_t len, int fmt, int flags)
{
    (void)fmt;
    (void)flags;
    const uint8_t *rows = img;
    size_t stride = len / ctx->ihdr.height;
    if (setjmp(ctx->jump))
        return ctx->error;
    ctx->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, ctx, libpng_fail, libpng_warn, ctx,
                                         libpng_malloc, libpng_free);
    if (ctx->png)
        ctx->info = png_create_info_struct(ctx->png);
    if (!ctx->info)
        return SPNG_EMEM;
    png_set_write_fn(ctx->png, ctx, libpng_write, libpng_flush);
    png_set_user_limits(ctx->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_IHDR(ctx->png, ctx->info, ctx->ihdr.width, ctx->ihdr.height, ctx->ihdr.bit_depth,
                 ctx->ihdr.color_type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(ctx->png, ctx->info);
    for (uint32_t y = 0; y < ctx->ihdr.height; y++)
        png_write_row(ctx->png, rows + y * stride);
    png_write_end(ctx->png, NULL);
    return 0;
}

const char *spng_strerror(int err)
{
    switch (err) {
    case 0:
        return "success";
    case SPNG_IO_ERROR:
        return "input or output failed";
    case SPNG_IO_EOF:
        return "end of file";
    case SPNG_EMEM:
        return "out of memory";
    case SPNG_ECHUNKAVAIL:
        return "the image has no such chunk";
    case SPNG_EUSER_HEIGHT:
        return "the image is too large";
    default:
        return "libpng reports invalid data";
    }
}

const char *spng_version_string(void)
{
    return "(libpng " PNG_LIBPNG_VER_STRING ")";
}
