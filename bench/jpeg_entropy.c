/*
 * The Huffman decoder of JPEG by itself, on one core, beside libjpeg-turbo's: coefficients that are not zero
 * per second, of whole files in memory. `stored`: coefficients are stored in blocks, as for the pixels of a
 * crop; `passed`: they are only counted, as beside and above a crop. `decoded`: the same files decoded to
 * pixels.
 *
 * usage: jpeg_entropy [--rounds N] FILE.jpg...    The decoders take turns; the best of N rounds counts.
 *
 * Prints one JSON line. Files that Cachew leaves to libjpeg (progressive ones, for example) end the program.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>
#include <jpegint.h>

#include "formats/image_jpeg_entropy.h"

enum { STRIP = 16 };

struct file {
    uint8_t *data;
    unsigned long size;
};

static struct file *files;
static int n_files;
static void *state;       /* of Cachew's decoder */
static size_t n_nonzero;  /* coefficients in all files */
static uint64_t checksum; /* of the coefficients that were stored last */

__attribute__((noreturn)) static void die(const char *what, const char *which)
{
    fprintf(stderr, "jpeg_entropy: %s: %s\n", which, what);
    exit(1);
}

static void load(const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f || fseek(f, 0, SEEK_END))
        die(strerror(errno), path);
    const long size = ftell(f);
    struct file *file = &files[n_files++];
    *file = (struct file){malloc((size_t)size + 1), (unsigned long)size};
    rewind(f);
    if (!file->data || fread(file->data, 1, file->size, f) != file->size)
        die("can't be read", path);
    fclose(f);
}

static double cpu_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void begin(struct jpeg_decompress_struct *d, const struct file *f, bool ours)
{
    jpeg_mem_src(d, f->data, f->size);
    jpeg_read_header(d, TRUE);
    if (!cw_jpeg_entropy_fits(d))
        die("a JPEG file whose codes libjpeg decodes", "a file");
    jpeg_start_decompress(d);
    if (ours)
        cw_jpeg_entropy_install(d, state, 0, d->output_width);
}

static void add_up(JBLOCK *blocks, int n)
{
    for (int i = 0; i < n * DCTSIZE2; i++) {
        const JCOEF c = blocks[i / DCTSIZE2][i % DCTSIZE2];
        n_nonzero += c != 0;
        checksum = checksum * 0x9E3779B97F4A7C15u + (uint16_t)c;
    }
}

/* Returns the seconds for all codes of all files. check: also adds the coefficients up. */
static double decode_codes(struct jpeg_decompress_struct *d, bool ours, bool store, bool check)
{
    static JBLOCK blocks[D_MAX_BLOCKS_IN_MCU];
    JBLOCKROW rows[D_MAX_BLOCKS_IN_MCU];
    for (int i = 0; i < D_MAX_BLOCKS_IN_MCU; i++)
        rows[i] = &blocks[i];
    double seconds = 0;
    n_nonzero = check ? 0 : n_nonzero;
    checksum = 0;
    for (int i = 0; i < n_files; i++) {
        const double start = cpu_now_s();
        begin(d, &files[i], ours);
        for (size_t k = (size_t)d->MCUs_per_row * d->MCU_rows_in_scan; k > 0; k--) {
            if (store)
                memset(blocks, 0, (size_t)d->blocks_in_MCU * sizeof(JBLOCK));
            d->entropy->decode_mcu(d, store ? rows : NULL);
            if (check)
                add_up(blocks, d->blocks_in_MCU);
        }
        jpeg_abort_decompress(d);
        seconds += cpu_now_s() - start;
    }
    return seconds;
}

static double decode_pixels(struct jpeg_decompress_struct *d, bool ours)
{
    const double start = cpu_now_s();
    for (int i = 0; i < n_files; i++) {
        begin(d, &files[i], ours);
        const size_t stride = (size_t)d->output_width * (size_t)d->output_components;
        uint8_t *strip = malloc(stride * STRIP);
        if (!strip)
            die("out of memory", "an image");
        JSAMPROW rows[STRIP];
        for (size_t k = 0; k < STRIP; k++)
            rows[k] = strip + k * stride;
        while (d->output_scanline < d->output_height)
            jpeg_read_scanlines(d, rows, STRIP);
        free(strip);
        jpeg_abort_decompress(d);
    }
    return cpu_now_s() - start;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"libjpeg", "cachew"};
    long rounds = 9;
    files = calloc((size_t)argc, sizeof(*files));
    for (int i = 1; i < argc; i++)
        if (i + 1 < argc && !strcmp(argv[i], "--rounds"))
            rounds = strtol(argv[++i], NULL, 10);
        else
            load(argv[i]);
    if (!n_files || rounds < 1) {
        fputs("usage: jpeg_entropy [--rounds N] FILE.jpg...\n", stderr);
        return 2;
    }
    state = malloc(cw_jpeg_entropy_bytes());
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct d = {.err = jpeg_std_error(&errors)};
    jpeg_create_decompress(&d);
    uint64_t sums[2];
    double best[2][3];
    for (int ours = 0; ours < 2; ours++) {
        decode_codes(&d, ours, true, true);
        sums[ours] = checksum;
        for (int k = 0; k < 3; k++)
            best[ours][k] = 1e9;
    }
    if (sums[0] != sums[1])
        die("other coefficients than libjpeg's", "a file");
    for (long r = 0; r < rounds; r++)
        for (int ours = 0; ours < 2; ours++) {
            const double seconds[] = {decode_codes(&d, ours, true, false),
                                      decode_codes(&d, ours, false, false), decode_pixels(&d, ours)};
            for (int k = 0; k < 3; k++)
                best[ours][k] = seconds[k] < best[ours][k] ? seconds[k] : best[ours][k];
        }
    jpeg_destroy_decompress(&d);
    printf("{\"files\": %d, \"coefficients\": %zu", n_files, n_nonzero);
    for (int ours = 0; ours < 2; ours++)
        printf(", \"%s\": {\"stored_per_s\": %.4g, \"passed_per_s\": %.4g, \"decoded_per_s\": %.4g}",
               names[ours], (double)n_nonzero / best[ours][0], (double)n_nonzero / best[ours][1],
               (double)n_nonzero / best[ours][2]);
    puts("}");
    return 0;
}
