/*
 * What libjpeg-turbo by itself allows in the image benchmarks: decoding only the rows and columns that a
 * random resized crop needs, from memory, with nothing before or after it: no resize, no batch, no order.
 *
 * usage: raw_decode [--threads N] [--epochs N] SHARD.tfrecord...
 *
 * Prints one JSON line. The time does not include reading the shards. A JPEG that does not decode ends the
 * program.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { MAX_THREADS = 256 };

struct image {
    const uint8_t *data;
    unsigned long size;
};

static struct image *images; /* immutable once the threads run */
static size_t n_images;
static size_t n_jobs; /* images times epochs */
static atomic_size_t next_job;
/* of the first pixel of each row: keeps the decoding from being dropped */
static atomic_uint_fast64_t sum_of_pixels;

__attribute__((noreturn)) static void die(const char *what, const char *which)
{
    fprintf(stderr, "raw_decode: %s: %s\n", which, what);
    exit(1);
}

static uint64_t get_varint(const uint8_t **p, const uint8_t *end)
{
    uint64_t v = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        const uint8_t byte = *(*p)++;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return v;
    }
    die("a damaged tf.train.Example", "a record");
}

/*
 * The longest bytes in a tf.train.Example, which is its picture. Every field on the way there is
 * length-delimited; the field below a Feature is its list, and bytes lists have number 1 at depth 4 (Example,
 * Features, entry, Feature).
 */
static void find_picture(const uint8_t *p, const uint8_t *end, int depth, struct image *best)
{
    while (p < end) {
        const uint64_t tag = get_varint(&p, end);
        if ((tag & 7) != 2) {
            get_varint(&p, end);
            continue;
        }
        const uint64_t size = get_varint(&p, end);
        if (size > (uint64_t)(end - p))
            die("a damaged tf.train.Example", "a record");
        if (depth == 4 && size > best->size)
            *best = (struct image){p, size};
        else if (depth < 4 && !(depth == 2 && tag >> 3 == 1) && !(depth == 3 && tag >> 3 != 1))
            find_picture(p, p + size, depth + 1, best);
        p += size;
    }
}

/* The shard stays in memory until the program ends. Checksums are not looked at. */
static void load_shard(const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f || fseek(f, 0, SEEK_END))
        die(strerror(errno), path);
    const long size = ftell(f);
    uint8_t *data = malloc((size_t)size + 1);
    rewind(f);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size)
        die("can't be read", path);
    fclose(f);
    for (uint64_t at = 0, length; at < (uint64_t)size; at += length + 16) {
        if ((uint64_t)size - at < 16)
            die("a damaged TFRecord file", path);
        memcpy(&length, data + at, 8);
        if (length > (uint64_t)size - at - 16)
            die("a damaged TFRecord file", path);
        if (!(n_images & (n_images + 1)) && !(images = realloc(images, 2 * (n_images + 1) * sizeof *images)))
            die("out of memory", path);
        images[n_images] = (struct image){0};
        find_picture(data + at + 12, data + at + 12 + length, 0, &images[n_images]);
        if (!images[n_images++].size)
            die("a record without bytes", path);
    }
}

static double random_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

struct box {
    unsigned x, y, width, height;
};

/* Area 0.08 to 1 of the image, ratio 3/4 to 4/3; after ten tries that don't fit, the whole image. */
static struct box draw_box(unsigned width, unsigned height, uint64_t *state)
{
    for (int i = 0; i < 10; i++) {
        const double area = (0.08 + 0.92 * random_draw(state)) * width * height;
        const double ratio = exp(log(0.75) + (log(4. / 3) - log(0.75)) * random_draw(state));
        const unsigned w = (unsigned)lround(sqrt(area * ratio)), h = (unsigned)lround(sqrt(area / ratio));
        if (w && h && w <= width && h <= height)
            return (struct box){(unsigned)(random_draw(state) * (width - w + 1)),
                                (unsigned)(random_draw(state) * (height - h + 1)), w, h};
    }
    return (struct box){0, 0, width, height};
}

/* libjpeg's default error handler prints and exits. */
static void *decode_thread(void *unused)
{
    (void)unused;
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct d = {.err = jpeg_std_error(&errors)};
    uint8_t *pixels = NULL;
    size_t room = 0, job;
    uint64_t sum = 0;
    jpeg_create_decompress(&d);
    while ((job = atomic_fetch_add(&next_job, 1)) < n_jobs) {
        const struct image *image = &images[job % n_images];
        uint64_t state = job;
        jpeg_mem_src(&d, image->data, image->size);
        jpeg_read_header(&d, TRUE);
        d.out_color_space = JCS_RGB;
        const struct box box = draw_box(d.image_width, d.image_height, &state);
        jpeg_start_decompress(&d);
        JDIMENSION x = box.x, width = box.width;
        jpeg_crop_scanline(&d, &x, &width); /* moves x to the left to a whole MCU */
        jpeg_skip_scanlines(&d, box.y);
        const size_t stride = (size_t)width * 3;
        if (room < stride * box.height) {
            free(pixels);
            room = stride * box.height;
            if (!(pixels = malloc(room)))
                die("out of memory", "a picture");
        }
        for (unsigned y = 0; y < box.height;) {
            JSAMPROW rows[2] = {pixels + y * stride, y + 1 < box.height ? pixels + (y + 1) * stride : NULL};
            y += jpeg_read_scanlines(&d, rows, y + 1 < box.height ? 2 : 1);
        }
        for (unsigned y = 0; y < box.height; y++)
            sum += pixels[y * stride];
        jpeg_abort_decompress(&d);
    }
    jpeg_destroy_decompress(&d);
    free(pixels);
    atomic_fetch_add(&sum_of_pixels, sum);
    return NULL;
}

static double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    long n_threads = 2, epochs = 1;
    for (int i = 1; i < argc; i++)
        if (i + 1 < argc && !strcmp(argv[i], "--threads"))
            n_threads = strtol(argv[++i], NULL, 10);
        else if (i + 1 < argc && !strcmp(argv[i], "--epochs"))
            epochs = strtol(argv[++i], NULL, 10);
        else
            load_shard(argv[i]);
    if (!n_images || n_threads < 1 || n_threads > MAX_THREADS || epochs < 1) {
        fputs("usage: raw_decode [--threads N] [--epochs N] SHARD.tfrecord...\n", stderr);
        return 2;
    }
    n_jobs = n_images * (size_t)epochs;
    pthread_t threads[MAX_THREADS];
    const double start = clock_now_s();
    for (long i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, decode_thread, NULL))
            die("can't start a thread", "pthread_create");
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    const double seconds = clock_now_s() - start;
    printf("{\"peer\": \"raw_decode\", \"images\": %zu, \"seconds\": %.4f, \"images_per_s\": %.1f, \"sum\": "
           "%llu}\n",
           n_jobs, seconds, (double)n_jobs / seconds, (unsigned long long)atomic_load(&sum_of_pixels));
    return 0;
}
