/*
 * make_photos: cuts an ImageNet-like data set out of real photographs, for the demo and the benchmarks.
 *
 * Walks the source directories in byte order, decodes each JPEG and PNG, cuts crops at random places and
 * scales, and writes them as JPEGs (4:2:0, quality 90-96) in TFRecord shards of tf.train.Example, in class
 * directories, or both. A draw depends on the seed, the number of the photograph and the number of the try
 * only, so that the result is the same for any number of threads. Output is made beside its final place
 * (DIR.partial) and renamed when it is complete.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

#define DEFAULT_SOURCE "/usr/share/backgrounds"

enum {
    MAX_COUNT = 10000000,
    MAX_SHARDS = 10000, /* five digits in the file names, and one descriptor open at a time */
    MAX_SOURCES = 64,
    MAX_THREADS = 256,
    MAX_PIXELS = 1 << 28,     /* of a photograph: 768 MiB decoded */
    MAX_SCALE_PERCENT = 300,  /* a crop is one to three times as wide as what is made of it */
    MIN_VARIANCE = 300,       /* of green; blue sky has less than 100, a blurred background 200 */
    MIN_DETAIL_PERCENT = 320, /* mean difference of neighbours in hundredths: drawings and blur have less */
};

/* Sizes in about ImageNet's proportions: most are 500x375. */
static const struct {
    int width, height, percent;
} sizes[] = {
    {500, 375, 54}, {500, 333, 14}, {375, 500, 12}, {333, 500, 5},
    {500, 500, 4},  {400, 400, 4},  {400, 300, 4},  {640, 480, 3},
};

struct pixels {
    int width, height;
    uint8_t *rgb;
};

struct cut {
    uint64_t offset;
    uint32_t size;
    int width, height, source, ordinal;
};

struct photo {
    char *path;
    bool png;
    bool spent; /* undecodable, or too flat or small to give what was asked of it */
    int asked;  /* cuts wanted in this round */
    int n_cuts;
    uint64_t next_try;
    struct cut *cuts;
};

struct output {
    const char *final;
    char *partial;
    int fd;
};

struct maker {
    uint64_t count, shards, seed, threads;
    const char *dirs[MAX_SOURCES + 1];
    int n_dirs;
    struct photo *photos; /* a photograph is touched by the one thread that took it */
    int n_photos;
    atomic_int next_photo;
    int spill; /* encoded cuts, until their order is known: memory does not grow with the count */
    atomic_uint_fast64_t spill_size;
    struct output records, folder;
    bool progress;
    atomic_uint_fast64_t n_made; /* cuts so far, of `count` */
};

static atomic_int stop_signal; /* set by the signal handler */
static atomic_bool failed;     /* a thread printed an error */
static uint32_t crc_table[256];

static void on_signal(int number)
{
    atomic_store(&stop_signal, number);
}

static bool stopping(void)
{
    return atomic_load(&stop_signal) || atomic_load(&failed);
}

__attribute__((format(printf, 1, 2))) static int complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    flockfile(stderr);
    fputs("make_photos: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
    return -1;
}

/* ---- draws: SplitMix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int draw_below(uint64_t *state, int limit)
{
    return (int)((draw(state) >> 32) * (uint64_t)limit >> 32);
}

/* ---- pictures ---- */

struct jpeg_trap {
    struct jpeg_error_mgr base;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
};

static void trap_exit(j_common_ptr cinfo)
{
    struct jpeg_trap *trap = (struct jpeg_trap *)cinfo->err;
    cinfo->err->format_message(cinfo, trap->text);
    longjmp(trap->jump, 1);
}

static void trap_quiet(j_common_ptr cinfo)
{
    (void)cinfo;
}

static struct jpeg_error_mgr *trap_init(struct jpeg_trap *trap)
{
    jpeg_std_error(&trap->base);
    trap->base.error_exit = trap_exit;
    trap->base.output_message = trap_quiet;
    trap->text[0] = 0;
    return &trap->base;
}

static bool too_large(uint64_t width, uint64_t height)
{
    return width * height > MAX_PIXELS;
}

/* The two decoders fill out->rgb (the caller frees it, after a failure too) or return why not. */
static const char *decode_jpeg(FILE *f, struct pixels *out, struct jpeg_trap *trap)
{
    struct jpeg_decompress_struct d = {.err = trap_init(trap)};
    if (setjmp(trap->jump)) {
        jpeg_destroy_decompress(&d);
        return trap->text;
    }
    jpeg_create_decompress(&d);
    jpeg_stdio_src(&d, f);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    out->width = (int)d.image_width;
    out->height = (int)d.image_height;
    if (!too_large(d.image_width, d.image_height))
        out->rgb = malloc((size_t)d.image_width * d.image_height * 3);
    if (!out->rgb) {
        jpeg_destroy_decompress(&d);
        return "the picture is too large";
    }
    jpeg_start_decompress(&d);
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = out->rgb + (size_t)d.output_scanline * d.image_width * 3;
        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    return NULL;
}

static void ignore_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static const char *decode_png(FILE *f, struct pixels *out)
{
    const char *volatile wrong = "libpng reports invalid data";
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, ignore_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info)
        wrong = "out of memory";
    else if (!setjmp(png_jmpbuf(png))) {
        png_init_io(png, f);
        png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
        png_read_info(png, info);
        uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
        out->rgb = too_large(width, height) ? NULL : malloc((size_t)width * height * 3);
        if (!out->rgb)
            wrong = too_large(width, height) ? "the image is too large" : "out of memory";
        png_set_expand(png);
        png_set_strip_16(png);
        png_set_strip_alpha(png);
        png_set_gray_to_rgb(png);
        int passes = png_set_interlace_handling(png);
        png_read_update_info(png, info);
        for (uint32_t i = 0; i < (uint32_t)passes * height && out->rgb; i++)
            png_read_row(png, out->rgb + (size_t)(i % height) * width * 3, NULL);
        out->width = (int)width;
        out->height = (int)height;
        wrong = out->rgb ? NULL : wrong;
    }
    png_destroy_read_struct(&png, &info, NULL);
    return wrong;
}

/*
 * Every row of out whose number divides by every: means over exactly the area that a pixel covers, in 1/256
 * of a pixel. Integers, so that it is the same on every machine; a pixel's sum stays below (3 * 256)^2 * 255
 * < 2^32.
 */
static void shrink(const struct pixels *in, int x0, int y0, int width, int height, const struct pixels *out,
                   int every, uint32_t *sums)
{
    const uint32_t step_x = ((uint32_t)width << 8) / (uint32_t)out->width;
    const uint32_t step_y = ((uint32_t)height << 8) / (uint32_t)out->height;
    for (int y = 0; y < out->height; y += every) {
        const uint32_t top = (uint32_t)y * step_y, bottom = top + step_y;
        memset(sums, 0, (size_t)width * 3 * sizeof *sums);
        for (uint32_t r = top >> 8; r << 8 < bottom; r++) {
            /* at most 256: a product fits 16 bits */
            const uint16_t weight = (uint16_t)(MIN((r + 1) << 8, bottom) - MAX(r << 8, top));
            const uint8_t *row = in->rgb + ((size_t)(y0 + (int)r) * (size_t)in->width + (size_t)x0) * 3;
            for (int i = 0; i < width * 3; i++)
                sums[i] += (uint16_t)(weight * row[i]);
        }
        uint8_t *to = out->rgb + (size_t)y * (size_t)out->width * 3;
        for (uint32_t left = 0; left < (uint32_t)out->width * step_x; left += step_x) {
            const uint32_t right = left + step_x;
            uint32_t sum[3] = {0};
            for (uint32_t c = left >> 8; c << 8 < right; c++) {
                const uint32_t weight = MIN((c + 1) << 8, right) - MAX(c << 8, left);
                for (uint32_t k = 0; k < 3; k++)
                    sum[k] += weight * sums[c * 3 + k];
            }
            for (int k = 0; k < 3; k++)
                *to++ = (uint8_t)((sum[k] + step_x * step_y / 2) / (step_x * step_y));
        }
    }
}

/* Empty sky, blurred backgrounds and drawings make JPEGs far smaller than photographs in a data set are. */
static bool is_flat(const struct pixels *p, int every)
{
    uint64_t n = 0, sum = 0, squares = 0, detail = 0;
    for (int y = 0; y < p->height; y += every)
        for (int x = 1; x < p->width; x++, n++) {
            const uint8_t *green = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3 + 1;
            sum += green[0];
            squares += (uint64_t)(green[0] * green[0]);
            detail += (uint64_t)abs(green[0] - green[-3]);
        }
    return squares / n - (sum / n) * (sum / n) < MIN_VARIANCE || detail * 100 / n < MIN_DETAIL_PERCENT;
}

/* *buffer and *size are libjpeg's to grow; the caller frees. */
static int encode_jpeg(const struct pixels *p, int quality, unsigned char **buffer, unsigned long *size)
{
    struct jpeg_trap trap;
    struct jpeg_compress_struct c = {.err = trap_init(&trap)};
    if (setjmp(trap.jump)) {
        jpeg_destroy_compress(&c);
        return complain("can't encode a JPEG: %s", trap.text);
    }
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, buffer, size);
    c.image_width = (JDIMENSION)p->width;
    c.image_height = (JDIMENSION)p->height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c); /* 4:2:0 */
    jpeg_set_quality(&c, quality, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = p->rgb + (size_t)c.next_scanline * (size_t)p->width * 3;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return 0;
}

/* ---- cutting ---- */

static void report_progress(struct maker *m)
{
    const uint64_t n = atomic_fetch_add(&m->n_made, 1) + 1, every = MAX(m->count / 100, 1);
    if (m->progress && n % every == 0) {
        printf("%" PRIu64 " of %" PRIu64 " pictures\n", n, m->count);
        fflush(stdout);
    }
}

/* 1: a cut was added; 0: this try gave none; -1: printed. */
static int cut_one(struct maker *m, int number, const struct pixels *in)
{
    struct photo *photo = &m->photos[number];
    uint64_t state = m->seed;
    state = draw(&state) ^ (uint64_t)number;
    state = draw(&state) ^ photo->next_try++;
    int kind = 0;
    for (int at = draw_below(&state, 100); at >= sizes[kind].percent; kind++)
        at -= sizes[kind].percent;
    struct pixels out = {.width = sizes[kind].width, .height = sizes[kind].height};
    int most = in->width * 100 / out.width, scale = draw_below(&state, MAX_SCALE_PERCENT - 99) + 100;
    most = MIN(most, in->height * 100 / out.height);
    if (most < 100)
        return 0;
    scale = MIN(scale, most);
    const int width = out.width * scale / 100, height = out.height * scale / 100;
    const int x = draw_below(&state, in->width - width + 1), y = draw_below(&state, in->height - height + 1);
    const int quality = 90 + draw_below(&state, 7);

    int r = 0;
    unsigned char *jpeg = NULL;
    unsigned long size = 0;
    uint32_t *sums = malloc((size_t)width * 3 * sizeof *sums);
    out.rgb = malloc((size_t)out.width * (size_t)out.height * 3);
    if (!sums || !out.rgb) {
        r = complain("out of memory");
    } else {
        const int every = 8; /* rows enough to tell: most tries in blurred photographs are given up here */
        shrink(in, x, y, width, height, &out, every, sums);
        if (!is_flat(&out, every)) {
            shrink(in, x, y, width, height, &out, 1, sums);
            r = encode_jpeg(&out, quality, &jpeg, &size) ? -1 : 1;
        }
    }
    if (r > 0) {
        const uint64_t offset = atomic_fetch_add(&m->spill_size, size);
        for (size_t done = 0; done < size && r > 0;) {
            const ssize_t n = pwrite(m->spill, jpeg + done, size - done, (off_t)(offset + done));
            if (n < 0 && errno != EINTR)
                r = complain("can't write a temporary file in %s: %s",
                             (m->records.final ? &m->records : &m->folder)->partial, strerror(errno));
            done += n > 0 ? (size_t)n : 0;
        }
        photo->cuts[photo->n_cuts] = (struct cut){offset,     (uint32_t)size, out.width,
                                                  out.height, number,         photo->n_cuts};
        photo->n_cuts += r > 0;
        if (r > 0)
            report_progress(m);
    }
    free(jpeg);
    free(out.rgb);
    free(sums);
    return r;
}

static int cut_photo(struct maker *m, int number)
{
    struct photo *photo = &m->photos[number];
    struct cut *grown = realloc(photo->cuts, (size_t)(photo->n_cuts + photo->asked) * sizeof *grown);
    if (!grown)
        return complain("out of memory");
    photo->cuts = grown;

    struct pixels in = {0};
    struct jpeg_trap trap;
    FILE *f = fopen(photo->path, "rbe");
    const char *why = !f ? strerror(errno) : photo->png ? decode_png(f, &in) : decode_jpeg(f, &in, &trap);
    if (f)
        fclose(f);
    int r = 0;
    if (why) {
        complain("%s: %s; left out", photo->path, why);
        photo->spent = true;
    }
    /* A photograph in which seven tries of eight are flat has nothing more worth cutting. */
    const uint64_t last = photo->next_try + (uint64_t)photo->asked * 8 + 8;
    int wanted = photo->asked;
    while (!why && wanted > 0 && r >= 0 && !stopping()) {
        if (photo->next_try == last) {
            photo->spent = true;
            break;
        }
        r = cut_one(m, number, &in);
        wanted -= r > 0;
    }
    free(in.rgb);
    return r < 0 ? -1 : 0;
}

static void *cut_thread(void *arg)
{
    struct maker *m = arg;
    for (int i; !stopping() && (i = atomic_fetch_add(&m->next_photo, 1)) < m->n_photos;)
        if (m->photos[i].asked && cut_photo(m, i))
            atomic_store(&failed, true);
    return NULL;
}

/* Rounds: what some photographs can't give is asked of the others. Nearly always two. */
static int cut_all(struct maker *m)
{
    for (uint64_t have = 0; have < m->count;) {
        uint64_t active = 0, at = 0, missing = m->count - have;
        for (int i = 0; i < m->n_photos; i++)
            active += !m->photos[i].spent;
        if (!active)
            return complain("the %d photographs give only %" PRIu64 " of %" PRIu64
                            " pictures: too flat, or smaller than 500x500; add photographs with --source",
                            m->n_photos, have, m->count);
        for (int i = 0; i < m->n_photos; i++) {
            struct photo *p = &m->photos[i];
            p->asked = p->spent ? 0 : (int)(missing / active + (at < missing % active));
            at += !p->spent;
        }
        atomic_store(&m->next_photo, 0);
        pthread_t threads[MAX_THREADS];
        uint64_t n = 0;
        while (n < m->threads && !pthread_create(&threads[n], NULL, cut_thread, m))
            n++;
        if (!n)
            return complain("can't start a thread");
        while (n)
            pthread_join(threads[--n], NULL);
        if (stopping())
            return -1;
        have = 0;
        for (int i = 0; i < m->n_photos; i++)
            have += (uint64_t)m->photos[i].n_cuts;
    }
    return 0;
}

/* ---- writing ---- */

static uint32_t masked_crc32c(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ data[i]) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u; /* TFRecord's mask */
}

static void crc_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int bit = 0; bit < 8; bit++)
            v = v >> 1 ^ (v & 1 ? 0x82f63b78u : 0); /* Castagnoli, reflected */
        crc_table[i] = v;
    }
}

static uint8_t *put_fixed(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (uint8_t)(v >> 8 * i);
    return p;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    for (; v > 127; v >>= 7)
        *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

static size_t varint_size(uint64_t v)
{
    return v > 127 ? 1 + varint_size(v >> 7) : 1;
}

static size_t field_size(size_t payload)
{
    return 1 + varint_size(payload) + payload;
}

/* Tag and length of a length-delimited protobuf field; the payload follows. */
static uint8_t *put_field(uint8_t *p, int number, size_t payload)
{
    *p++ = (uint8_t)(number << 3 | 2);
    return put_varint(p, payload);
}

/* One entry of Features.feature: kind 1 holds a bytes list, kind 3 a list of int64. */
static size_t entry_size(const char *key, size_t list)
{
    return field_size(strlen(key)) + field_size(field_size(list));
}

static uint8_t *put_entry(uint8_t *p, const char *key, int kind, size_t payload)
{
    p = put_field(p, 1, entry_size(key, field_size(payload)));
    p = mempcpy(put_field(p, 1, strlen(key)), key, strlen(key));
    p = put_field(p, 2, field_size(field_size(payload)));
    return put_field(put_field(p, kind, field_size(payload)), 1, payload);
}

static uint8_t *put_int(uint8_t *p, const char *key, uint64_t v)
{
    return put_varint(put_entry(p, key, 3, varint_size(v)), v);
}

/* A whole TFRecord record in to, which has room for the picture and 256 bytes more; returns its size. */
static size_t make_record(const struct cut *c, const uint8_t *jpeg, uint8_t *to)
{
    const struct {
        const char *key;
        uint64_t value;
    } ints[] = {
        {"height", (uint64_t)c->height},
        {"label", (uint64_t)c->source},
        {"width", (uint64_t)c->width},
    };

    size_t features = field_size(entry_size("image", field_size(c->size)));
    for (size_t i = 0; i < 3; i++)
        features += field_size(entry_size(ints[i].key, field_size(varint_size(ints[i].value))));
    uint8_t *body = to + 12, *p = put_field(body, 1, features);
    p = put_int(p, ints[0].key, ints[0].value);
    p = mempcpy(put_entry(p, "image", 1, c->size), jpeg, c->size);
    p = put_int(p, ints[1].key, ints[1].value);
    p = put_int(p, ints[2].key, ints[2].value);
    const size_t size = (size_t)(p - body);
    put_fixed(to, size, 8);
    put_fixed(to + 8, masked_crc32c(to, 8), 4);
    put_fixed(p, masked_crc32c(body, size), 4);
    return size + 16;
}

/* Writes f's last bytes and closes it; r is what came before. */
static int finish_file(FILE *f, const char *path, int r)
{
    const bool bad = !f || ferror(f);
    if ((f && fclose(f)) || bad)
        return complain("can't write %s: %s", path, strerror(errno));
    return r;
}

static int write_folder_file(const struct maker *m, const struct cut *c, uint64_t number, const uint8_t *jpeg)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/photo-%03d", m->folder.partial, c->source);
    if (mkdir(path, 0777) && errno != EEXIST)
        return complain("can't make %s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/photo-%03d/%06" PRIu64 ".jpg", m->folder.partial, c->source, number);
    FILE *f = fopen(path, "wbe");
    if (f)
        fwrite(jpeg, 1, c->size, f);
    return finish_file(f, path, 0);
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    return x->ordinal != y->ordinal ? (x->ordinal < y->ordinal ? -1 : 1) : x->source - y->source;
}

/* Every shard holds cuts of every photograph: they are dealt out in turn. */
static int write_shard(const struct maker *m, const struct cut *cuts, uint64_t shard, uint8_t *buffer,
                       size_t room)
{
    char path[PATH_MAX] = "";
    FILE *f = NULL;
    int r = 0;
    if (m->records.final) {
        snprintf(path, sizeof path, "%s/photos-%05" PRIu64 "-of-%05" PRIu64 ".tfrecord", m->records.partial,
                 shard, m->shards);
        if (!(f = fopen(path, "wbe")))
            return finish_file(f, path, -1);
    }
    for (uint64_t i = shard * m->count / m->shards; !r && i < (shard + 1) * m->count / m->shards; i++) {
        if (stopping())
            r = -1;
        else if (pread(m->spill, buffer, cuts[i].size, (off_t)cuts[i].offset) != (ssize_t)cuts[i].size)
            r = complain("can't read a temporary file in %s back: %s",
                         (m->records.final ? &m->records : &m->folder)->partial, strerror(errno));
        if (!r && m->folder.final)
            r = write_folder_file(m, &cuts[i], i, buffer);
        if (!r && f)
            fwrite(buffer + room, 1, make_record(&cuts[i], buffer, buffer + room), f);
    }
    return f ? finish_file(f, path, r) : r;
}

static int write_all(const struct maker *m)
{
    struct cut *cuts = calloc(m->count, sizeof *cuts);
    size_t n = 0, room = 0;
    for (int i = 0; cuts && i < m->n_photos; i++)
        for (int j = 0; j < m->photos[i].n_cuts; j++) {
            cuts[n++] = m->photos[i].cuts[j];
            room = MAX(room, cuts[n - 1].size);
        }
    uint8_t *buffer = malloc(2 * room + 256); /* the picture, and the record that holds it */
    int r = 0;
    if (!cuts || !buffer)
        r = complain("out of memory");
    else
        qsort(cuts, n, sizeof *cuts, compare_cuts);
    for (uint64_t s = 0; !r && s < m->shards; s++)
        r = write_shard(m, cuts, s, buffer, room);
    free(buffer);
    free(cuts);
    return r;
}

/* ---- output directories ---- */

static char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *format_text(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    if (!text) {
        complain("out of memory");
        exit(1); /* before the threads start, or after they ended */
    }
    return text;
}

static void remove_tree(const char *path)
{
    char *const roots[] = {(char *)path, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; fts && (e = fts_read(fts));)
        if (e->fts_info != FTS_D)
            remove(e->fts_accpath);
    if (fts)
        fts_close(fts);
}

/* What the set was made with, as JSON: the stamp of a complete one. */
static char *stamp_text(const struct maker *m, const struct output *o)
{
    char *sources = format_text("%s", "");
    for (int i = 0; i < m->n_dirs; i++) {
        char *more = format_text("%s%s\"", sources, i ? ", " : ""), *at = NULL;
        free(sources);
        for (const char *c = m->dirs[i]; *c; c++, free(more), more = at)
            at = *c == '"' || *c == '\\' || iscntrl((unsigned char)*c)
                     ? format_text("%s\\u%04x", more, (unsigned char)*c)
                     : format_text("%s%c", more, *c);
        sources = format_text("%s\"", more);
        free(more);
    }
    char *text = format_text("{\"make_photos\": 1, \"layout\": \"%s\", \"count\": %" PRIu64
                             ", \"shards\": %" PRIu64 ", \"seed\": %" PRIu64 ", \"sources\": [%s]}\n",
                             o == &m->records ? "tfrecord" : "folder", m->count, m->shards, m->seed, sources);
    free(sources);
    return text;
}

/* 1: a complete set with these arguments is there; 0: nothing or an empty directory is; -1: printed. */
static int output_look(const struct maker *m, const struct output *o)
{
    char found[4096] = "";
    char *wanted = stamp_text(m, o), *path = format_text("%s/make_photos.json", o->final);
    FILE *f = fopen(path, "rbe");
    if (f) {
        found[fread(found, 1, sizeof found - 1, f)] = 0;
        fclose(f);
    }
    int r = f && !strcmp(found, wanted);
    if (f && !r) {
        complain("%s holds a set made with other arguments; remove it or name another directory\n  there: %s "
                 " asked: %.*s",
                 o->final, found, (int)strlen(wanted) - 1, wanted);
        r = -1;
    }
    struct stat st;
    if (!f && !lstat(o->final, &st) && !S_ISDIR(st.st_mode))
        r = complain("%s is no directory", o->final);
    else if (!f && rmdir(o->final) && errno != ENOENT)
        r = complain("%s: %s", o->final,
                     errno == ENOTEMPTY ? "holds other files; name another directory" : strerror(errno));
    free(path);
    free(wanted);
    return r;
}

/* Makes o->partial, empty and locked. What an interrupted run left there goes. */
static int output_open(struct output *o)
{
    char *slash = o->partial = format_text("%s.partial", o->final);
    while ((slash = strchr(slash + 1, '/'))) { /* parents, as mkdir -p */
        *slash = 0;
        const int r = mkdir(o->partial, 0777);
        *slash = '/';
        if (r && errno != EEXIST)
            return complain("can't make %s: %s", o->final, strerror(errno));
    }
    if (mkdir(o->partial, 0777)) {
        struct stat st;
        const int error = errno;
        if (error != EEXIST || lstat(o->partial, &st) || !S_ISDIR(st.st_mode))
            return complain("can't make %s: %s", o->partial, strerror(error));
        o->fd = open(o->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (o->fd < 0 || flock(o->fd, LOCK_EX | LOCK_NB)) {
            close(o->fd);
            o->fd = -1; /* not ours: nothing is to be cleaned up there */
            return complain("another make_photos writes %s", o->final);
        }
        remove_tree(o->partial);
        close(o->fd);
        if (mkdir(o->partial, 0777))
            return complain("can't make %s: %s", o->partial, strerror(errno));
    }
    o->fd = open(o->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return o->fd < 0 || flock(o->fd, LOCK_EX | LOCK_NB)
               ? complain("can't lock %s: %s", o->partial, strerror(errno))
               : 0;
}

static int output_publish(const struct maker *m, const struct output *o)
{
    char *path = format_text("%s/make_photos.json", o->partial), *text = stamp_text(m, o);
    FILE *f = fopen(path, "wbe");
    if (f)
        fputs(text, f);
    int r = finish_file(f, path, 0);
    if (!r && rename(o->partial, o->final))
        r = complain("can't rename %s to %s: %s", o->partial, o->final, strerror(errno));
    free(text);
    free(path);
    return r;
}

/* ---- sources ---- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* 1 for PNG, 0 for JPEG, -1 for another format; by the first bytes, not by name. */
static int sniff(const char *path)
{
    uint8_t head[8] = {0};
    FILE *f = fopen(path, "rbe");
    const size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f)
        fclose(f);
    return n == 8 && !memcmp(head, "\x89PNG\r\n\x1a\n", 8) ? 1
           : n == 8 && !memcmp(head, "\xff\xd8\xff", 3)    ? 0
                                                           : -1;
}

static int find_photos(struct maker *m)
{
    for (int d = 0; d < m->n_dirs; d++) {
        char *const roots[] = {(char *)m->dirs[d], NULL};
        FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, by_name);
        if (!fts)
            return complain("can't read %s: %s", m->dirs[d], strerror(errno));
        for (FTSENT *e; (e = fts_read(fts));) {
            if (e->fts_info == FTS_NS || e->fts_info == FTS_DNR)
                complain("can't read %s: %s", e->fts_path, strerror(e->fts_errno));
            /* links would give a photograph twice */
            const int png = e->fts_info == FTS_F ? sniff(e->fts_accpath) : -1;
            if (png < 0)
                continue;
            struct photo *grown = realloc(m->photos, (size_t)(m->n_photos + 1) * sizeof *grown);
            if (!grown)
                exit(1);
            m->photos = grown;
            m->photos[m->n_photos++] = (struct photo){.path = format_text("%s", e->fts_path), .png = png};
        }
        fts_close(fts);
    }
    if (m->n_photos)
        return 0;
    char *where = format_text("%s", m->dirs[0]);
    for (int d = 1; d < m->n_dirs; d++) {
        char *more = format_text("%s, %s", where, m->dirs[d]);
        free(where);
        where = more;
    }
    complain("no photographs (JPEG, PNG) in %s; tools/deps.sh demo installs some", where);
    free(where);
    return -1;
}

/* ---- command line ---- */

static const char usage[] =
    "usage: make_photos --out DIR [--folder DIR] [--count 3000] [--shards 8] [--seed 0] [--source DIR]... "
    "[--threads N]\n"
    "                   [--progress]\n"
    "\n"
    "Cuts an ImageNet-like data set out of real photographs (JPEG, PNG).\n"
    "  --out DIR     TFRecord shards, DIR/photos-00000-of-00008.tfrecord and so on: tf.train.Example with\n"
    "                image (JPEG), label (number of the photograph), width, height\n"
    "  --folder DIR  the same pictures as files, DIR/photo-CLASS/NUMBER.jpg; with --out or instead of it\n"
    "  --count N     pictures in all (1 to 10000000)\n"
    "  --shards N    TFRecord files (1 to 10000)\n"
    "  --seed N      another seed, other pictures; the same one, the same bytes\n"
    "  --source DIR  where photographs are looked for, and below it; may be given again (" DEFAULT_SOURCE
    ")\n"
    "  --threads N   (the CPUs this process may use)\n"
    "  --progress    print how many pictures are made, a hundred times in all\n"
    "A directory that already holds a set made with the same arguments is left as it is.\n"
    "Exit: 0 done; 1 no photographs, or not writable; 2 an option is wrong; 130, 143 interrupted, nothing "
    "half-made.\n";

static uint64_t parse_number(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    errno = 0;
    const uint64_t v = strtoull(text, &end, 10);
    if (isdigit((unsigned char)*text) && !*end && !errno && v >= low && v <= high)
        return v;
    complain("--%s %s: must be a whole number from %" PRIu64 " to %" PRIu64, option, text, low, high);
    exit(2);
}

static void parse_options(struct maker *m, int argc, char **argv)
{
    static const struct option options[] = {
        {"out", 1, 0, 'o'},  {"folder", 1, 0, 'f'}, {"count", 1, 0, 'c'},   {"shards", 1, 0, 's'},
        {"seed", 1, 0, 'r'}, {"source", 1, 0, 'd'}, {"threads", 1, 0, 't'}, {"progress", 0, 0, 'p'},
        {"help", 0, 0, 'h'}, {0, 0, 0, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;)
        switch (c) {
        case 'o':
            m->records.final = optarg;
            break;
        case 'f':
            m->folder.final = optarg;
            break;
        case 'c':
            m->count = parse_number("count", optarg, 1, MAX_COUNT);
            break;
        case 's':
            m->shards = parse_number("shards", optarg, 1, MAX_SHARDS);
            break;
        case 'r':
            m->seed = parse_number("seed", optarg, 0, UINT64_MAX);
            break;
        case 't':
            m->threads = parse_number("threads", optarg, 1, MAX_THREADS);
            break;
        case 'p':
            m->progress = true;
            break;
        case 'd':
            if (m->n_dirs == MAX_SOURCES) {
                complain("--source: at most %d", MAX_SOURCES);
                exit(2);
            }
            m->dirs[m->n_dirs++] = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs("try make_photos --help\n", stderr);
            exit(2);
        }
    if (optind < argc || (!m->records.final && !m->folder.final)) {
        complain(optind < argc ? "unknown argument %s" : "--out DIR is missing", argv[optind]);
        exit(2);
    }
    for (int i = 0; i < 2; i++) { /* "photos/" would make a partial directory inside it */
        char *dir = (char *)(i ? m->folder.final : m->records.final);
        for (size_t n = dir ? strlen(dir) : 0; n > 1 && dir[n - 1] == '/';)
            dir[--n] = 0;
        if (dir && (!*dir || strlen(dir) > PATH_MAX / 2)) {
            complain("--%s %s: no usable directory name", i ? "folder" : "out", dir);
            exit(2);
        }
    }
    if (m->records.final && m->folder.final && !strcmp(m->records.final, m->folder.final)) {
        complain("--out and --folder name the same directory");
        exit(2);
    }
    if (!m->n_dirs)
        m->dirs[m->n_dirs++] = DEFAULT_SOURCE;
}

/* Opens the outputs that are missing; 0: there is something to make, 1: all is there, -1: printed. */
static int prepare(struct maker *m)
{
    struct output *outputs[] = {&m->records, &m->folder};
    int missing = 0;
    for (int i = 0; i < 2; i++) {
        struct output *o = outputs[i];
        const int there = o->final ? output_look(m, o) : 0;
        if (there < 0)
            return -1;
        if (there)
            printf("%s: already holds these %" PRIu64 " pictures\n", o->final, m->count);
        o->final = there ? NULL : o->final;
        missing += o->final != NULL;
    }
    if (!missing)
        return 1;
    if (find_photos(m))
        return -1;
    for (int i = 0; i < 2; i++)
        if (outputs[i]->final && output_open(outputs[i]))
            return -1;
    char *path = format_text("%s/spill", (m->records.final ? &m->records : &m->folder)->partial);
    m->spill = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (m->spill < 0)
        complain("can't write %s: %s", path, strerror(errno));
    else
        unlink(path);
    free(path);
    return m->spill < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    cpu_set_t cpus;
    struct maker m = {.count = 3000, .shards = 8, .spill = -1, .records = {.fd = -1}, .folder = {.fd = -1}};
    m.threads = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (uint64_t)CPU_COUNT(&cpus);
    m.threads = MIN(m.threads, MAX_THREADS);
    parse_options(&m, argc, argv);
    crc_init();
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int r = prepare(&m);
    if (!r)
        r = cut_all(&m) || write_all(&m) ? -1 : 0;
    struct output *outputs[] = {&m.records, &m.folder};
    for (int i = 0; i < 2; i++) {
        struct output *o = outputs[i];
        if (!r && o->final && !stopping())
            r = output_publish(&m, o);
        if (r < 0 && o->fd >= 0)
            remove_tree(o->partial);
        free(o->partial);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!r && !stopping())
        printf("%" PRIu64 " pictures of %d photographs, %" PRIu64 " bytes each on average, in %.1f s\n",
               m.count, m.n_photos, (uint64_t)atomic_load(&m.spill_size) / m.count,
               (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    for (int i = 0; i < m.n_photos; i++) {
        free(m.photos[i].path);
        free(m.photos[i].cuts);
    }
    free(m.photos);
    const int number = atomic_load(&stop_signal);
    return number ? 128 + number : r < 0;
}
