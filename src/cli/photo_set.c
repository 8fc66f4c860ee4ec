/*
 * Cuts pictures out of photographs and writes them as a set. Threads take one photograph after the other,
 * and keep the encoded pictures in a spill file until their order is known. A draw depends on the seed, the
 * number of the photograph and the number of the try only, so the set is the same for any number of threads.
 */
#include "cli/photo_set.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "cli/photo_draw.h"
#include "data/arena.h"
#include "formats/crc32c.h"
#include "formats/image.h"
#include "formats/image_write.h"
#include "session/local.h"
#include "session/report.h"
#include "storage/file.h"

#define LOOK_NS 100000000          /* between two looks whether another process has made the set */
#define WAIT_S 3600                /* the longest wait for the other process */
#define STAMP "cachew-photos.json" /* file of a complete set that says what it was made with */

enum {
    MAX_PIXELS = 1 << 28,     /* of a photograph: 768 MiB decoded */
    MAX_FILE = 1 << 30,       /* bytes of a photograph's file */
    MAX_DRAWN = 64,           /* landscapes, which are the labels */
    CUTS_OF_DRAWN = 20,       /* pictures of a landscape, while there are fewer than MAX_DRAWN */
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
    bool spent; /* undecodable, or too flat or small to give what was asked of it */
    int asked;  /* cuts wanted in this round */
    int n_cuts;
    uint64_t next_try;
    struct cut *cuts;
};

struct maker {
    const struct photo_set *set;
    struct photo *photos; /* only the thread that took a photograph uses it */
    int n_photos;
    atomic_int next_photo;
    int spill; /* encoded cuts, until their order is known: memory does not grow with the count */
    atomic_uint_fast64_t spill_size;
    char *partial;               /* the directory in which the set is made */
    int lock;                    /* its descriptor; -1: it is not ours */
    atomic_uint_fast64_t n_made; /* cuts so far, of `count` */
    pthread_mutex_t mutex;
    struct cw_error error; /* the first error of a thread; guarded by mutex */
    atomic_bool failed;    /* error.status is not 0 */
};

static bool maker_stopping(const struct maker *m)
{
    return atomic_load(m->set->stop) || atomic_load(&m->failed);
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
            const uint16_t weight = (uint16_t)(CW_MIN((r + 1) << 8, bottom) - CW_MAX(r << 8, top));
            const uint8_t *row = in->rgb + ((size_t)(y0 + (int)r) * (size_t)in->width + (size_t)x0) * 3;
            for (int i = 0; i < width * 3; i++)
                sums[i] += (uint16_t)(weight * row[i]);
        }
        uint8_t *to = out->rgb + (size_t)y * (size_t)out->width * 3;
        for (uint32_t left = 0; left < (uint32_t)out->width * step_x; left += step_x) {
            const uint32_t right = left + step_x;
            uint32_t sum[3] = {0};
            for (uint32_t c = left >> 8; c << 8 < right; c++) {
                const uint32_t weight = CW_MIN((c + 1) << 8, right) - CW_MAX(c << 8, left);
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

/* ---- cutting ---- */

static void maker_progress(struct maker *m)
{
    const uint64_t n = atomic_fetch_add(&m->n_made, 1) + 1, every = CW_MAX(m->set->count / 100, 1);
    if (m->set->progress && n % every == 0)
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " pictures\n", n, m->set->count);
}

/* Appends a cut to the spill file and to the photograph's list, which has room. */
static int spill_add(struct maker *m, struct photo *photo, struct cut cut, const uint8_t *jpeg,
                     struct cw_error *err)
{
    cut.offset = atomic_fetch_add(&m->spill_size, cut.size);
    for (size_t done = 0; done < cut.size;) {
        const ssize_t n = pwrite(m->spill, jpeg + done, cut.size - done, (off_t)(cut.offset + done));
        if (n < 0 && errno != EINTR)
            return cw_error_errno(err, CW_E_IO, errno, "can't write a temporary file in %s", m->partial);
        done += n > 0 ? (size_t)n : 0;
    }
    photo->cuts[photo->n_cuts++] = cut;
    maker_progress(m);
    return 0;
}

/* Tries one cut. Returns 1: it was added; 0: this try gave none; negative: an error. */
static int cut_one(struct maker *m, int number, const struct pixels *in, struct cw_error *err)
{
    struct photo *photo = &m->photos[number];
    uint64_t state = m->set->seed;
    state = photo_random(&state) ^ (uint64_t)number;
    state = photo_random(&state) ^ photo->next_try++;
    int kind = 0;
    for (int at = photo_random_below(&state, 100); at >= sizes[kind].percent; kind++)
        at -= sizes[kind].percent;
    struct pixels out = {.width = sizes[kind].width, .height = sizes[kind].height};
    int scale = photo_random_below(&state, MAX_SCALE_PERCENT - 99) + 100;
    const int most = CW_MIN(in->width * 100 / out.width, in->height * 100 / out.height);
    if (most < 100)
        return 0;
    scale = CW_MIN(scale, most);
    const int width = out.width * scale / 100, height = out.height * scale / 100;
    const int x = photo_random_below(&state, in->width - width + 1);
    const int y = photo_random_below(&state, in->height - height + 1);
    const int quality = 90 + photo_random_below(&state, 7);

    const size_t bytes = (size_t)out.width * (size_t)out.height * 3;
    _cleanup_free_ uint32_t *sums = malloc((size_t)width * 3 * sizeof *sums);
    _cleanup_free_ uint8_t *rgb = malloc(bytes), *jpeg = NULL;
    if (!sums || !rgb)
        return cw_error_nomem(err, bytes, "a picture");
    out.rgb = rgb;
    const int every = 8; /* rows enough to tell: most tries in blurred photographs are given up here */
    shrink(in, x, y, width, height, &out, every, sums);
    if (is_flat(&out, every))
        return 0;
    shrink(in, x, y, width, height, &out, 1, sums);
    size_t size = 0;
    int r = cw_jpeg_encode((size_t)out.height, (size_t)out.width, rgb, quality, &jpeg, &size, err);
    const struct cut cut = {0, (uint32_t)size, out.width, out.height, number, photo->n_cuts};
    if (r >= 0)
        r = spill_add(m, photo, cut, jpeg, err);
    return r < 0 ? r : 1;
}

/* Decodes a photograph. The caller frees ret->rgb, after an error too. */
static int photo_decode(const char *path, struct pixels *ret, struct cw_error *err)
{
    const struct cw_image_options options = {.channels = 3, .max_pixels = MAX_PIXELS};
    struct cw_image image = {0};
    struct cw_budget budget;
    struct cw_arena arena;
    _cleanup_free_ char *data = NULL;
    size_t size;
    int r = cw_read_file(path, MAX_FILE, &data, &size, err);
    if (r < 0)
        return r;
    cw_budget_init(&budget, SIZE_MAX);
    cw_arena_init(&arena, &budget);
    r = cw_image_open(&image, data, size, &options, err);
    if (r >= 0) {
        ret->width = (int)image.width;
        ret->height = (int)image.height;
        const size_t stride = (size_t)image.width * 3, bytes = stride * (size_t)image.height;
        ret->rgb = malloc(bytes);
        r = ret->rgb ? cw_image_decode(&image, NULL, NULL, ret->rgb, stride, &arena, err)
                     : cw_error_nomem(err, bytes, "a photograph");
    }
    cw_image_close(&image);
    cw_arena_deinit(&arena);
    return r;
}

/* As photo_decode: decodes the photograph, or draws it if it has no file. */
static int photo_load(const struct maker *m, int number, struct pixels *ret, struct cw_error *err)
{
    const struct photo *photo = &m->photos[number];
    if (photo->path)
        return photo_decode(photo->path, ret, err);
    *ret = (struct pixels){PHOTO_DRAW_WIDTH, PHOTO_DRAW_HEIGHT,
                           malloc((size_t)PHOTO_DRAW_WIDTH * PHOTO_DRAW_HEIGHT * 3)};
    if (!ret->rgb)
        return cw_error_nomem(err, (size_t)PHOTO_DRAW_WIDTH * PHOTO_DRAW_HEIGHT * 3, "a landscape");
    return photo_draw(m->set->seed, (unsigned)number, ret->rgb, err);
}

/* Makes the cuts that are wanted of a photograph, or as many as it gives. */
static int cut_photo(struct maker *m, int number, struct cw_error *err)
{
    struct photo *photo = &m->photos[number];
    struct cut *grown = realloc(photo->cuts, (size_t)(photo->n_cuts + photo->asked) * sizeof *grown);
    if (!grown)
        return cw_error_nomem(err, 0, "the list of pictures");
    photo->cuts = grown;

    struct pixels in = {0};
    int r = photo_load(m, number, &in, err);
    if (r == CW_E_RECORD || (r < 0 && photo->path && r != CW_E_MEMORY)) {
        fprintf(stderr, "cachew: %s: %s; left out\n", photo->path, err->message);
        *err = (struct cw_error){0};
        photo->spent = true;
        r = 1;
    }
    /* A photograph in which seven tries of eight are flat has nothing more worth cutting. */
    const uint64_t last = photo->next_try + (uint64_t)photo->asked * 8 + 8;
    for (int wanted = photo->asked; r == 0 && wanted > 0 && !maker_stopping(m);) {
        photo->spent = photo->next_try == last;
        if (photo->spent)
            break;
        r = cut_one(m, number, &in, err);
        wanted -= r > 0;
        r = CW_MIN(r, 0);
    }
    free(in.rgb);
    return CW_MIN(r, 0);
}

static void *cut_thread(void *arg)
{
    struct maker *m = arg;
    for (int i; !maker_stopping(m) && (i = atomic_fetch_add(&m->next_photo, 1)) < m->n_photos;) {
        struct cw_error err = {0};
        if (!m->photos[i].asked || cut_photo(m, i, &err) >= 0)
            continue;
        CW_GUARD(&m->mutex);
        if (!atomic_load(&m->failed))
            m->error = err;
        atomic_store(&m->failed, true);
    }
    return NULL;
}

/* Divides the missing cuts among the photographs that can give some. Returns the number of these. */
static uint64_t cut_divide(struct maker *m, uint64_t missing)
{
    uint64_t active = 0, at = 0;
    for (int i = 0; i < m->n_photos; i++)
        active += !m->photos[i].spent;
    for (int i = 0; i < m->n_photos && active; i++) {
        struct photo *p = &m->photos[i];
        p->asked = p->spent ? 0 : (int)(missing / active + (at < missing % active));
        at += !p->spent;
    }
    return active;
}

static int cut_round(struct maker *m, struct cw_error *err)
{
    pthread_t threads[PHOTO_SET_MOST_THREADS];
    unsigned n = 0;
    int r = 0;
    atomic_store(&m->next_photo, 0);
    while (n < m->set->threads && (r = cw_thread_start(&threads[n], cut_thread, m, err)) >= 0)
        n++;
    if (n > 0 && r < 0) { /* fewer threads do */
        *err = (struct cw_error){0};
        r = 0;
    }
    while (n)
        pthread_join(threads[--n], NULL);
    if (atomic_load(&m->failed))
        return cw_error_copy(err, &m->error);
    return atomic_load(m->set->stop) ? cw_error_set(err, CW_E_INTERRUPTED, "interrupted") : r;
}

/* Rounds: what some photographs can't give is wanted from the others. Nearly always two. */
static int cut_all(struct maker *m, struct cw_error *err)
{
    for (uint64_t have = 0; have < m->set->count;) {
        if (!cut_divide(m, m->set->count - have))
            return cw_error_set(err, CW_E_DATA,
                                "the %d photographs give only %" PRIu64 " of %" PRIu64
                                " pictures: expected more photographs (--source), larger than 500x500, with "
                                "detail",
                                m->n_photos, have, m->set->count);
        int r = cut_round(m, err);
        if (r < 0)
            return r;
        have = 0;
        for (int i = 0; i < m->n_photos; i++)
            have += (uint64_t)m->photos[i].n_cuts;
    }
    return 0;
}

/* ---- records ---- */

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
    put_fixed(to + 8, cw_crc32c_mask(cw_crc32c(to, 8)), 4);
    put_fixed(p, cw_crc32c_mask(cw_crc32c(body, size)), 4);
    return size + 16;
}

/* ---- writing ---- */

static int can_t_write(const char *path, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_IO, path, errno, "can't write %s", path);
}

/* Writes the last bytes of f and closes it. f may be NULL: opening it failed. */
static int finish_file(FILE *f, const char *path, struct cw_error *err)
{
    const bool bad = !f || ferror(f);
    return (f && fclose(f)) || bad ? can_t_write(path, err) : 0;
}

static int write_file(const struct maker *m, const struct cut *c, uint64_t number, const uint8_t *jpeg,
                      struct cw_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/photo-%03d", m->partial, c->source);
    if (mkdir(path, 0777) && errno != EEXIST)
        return can_t_write(path, err);
    snprintf(path, sizeof path, "%s/photo-%03d/%06" PRIu64 ".jpg", m->partial, c->source, number);
    FILE *f = fopen(path, "wbe");
    if (f)
        fwrite(jpeg, 1, c->size, f);
    return finish_file(f, path, err);
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    return x->ordinal != y->ordinal ? (x->ordinal < y->ordinal ? -1 : 1) : x->source - y->source;
}

/* Writes a shard of the set: a file of records, or as many files of pictures. Each shard has cuts of each
 * photograph, which are dealt out in turn. buffer: room for the largest picture, and for its record. */
static int write_shard(const struct maker *m, const struct cut *cuts, uint64_t shard, uint8_t *buffer,
                       size_t room, struct cw_error *err)
{
    const struct photo_set *set = m->set;
    char path[PATH_MAX] = "";
    FILE *f = NULL;
    int r = 0;
    if (set->tfrecord) {
        snprintf(path, sizeof path, "%s/photos-%05" PRIu64 "-of-%05" PRIu64 ".tfrecord", m->partial, shard,
                 set->shards);
        if (!(f = fopen(path, "wbe")))
            return can_t_write(path, err);
    }
    const uint64_t end = (shard + 1) * set->count / set->shards;
    for (uint64_t i = shard * set->count / set->shards; r >= 0 && i < end; i++) {
        if (maker_stopping(m))
            r = cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        else if (pread(m->spill, buffer, cuts[i].size, (off_t)cuts[i].offset) != (ssize_t)cuts[i].size)
            r = cw_error_errno(err, CW_E_IO, errno, "can't read a temporary file in %s", m->partial);
        else if (f)
            fwrite(buffer + room, 1, make_record(&cuts[i], buffer, buffer + room), f);
        else
            r = write_file(m, &cuts[i], i, buffer, err);
    }
    if (r >= 0)
        return f ? finish_file(f, path, err) : 0;
    if (f)
        fclose(f);
    return r;
}

static int write_all(const struct maker *m, struct cw_error *err)
{
    _cleanup_free_ struct cut *cuts = calloc(m->set->count, sizeof *cuts);
    size_t n = 0, room = 0;
    for (int i = 0; cuts && i < m->n_photos; i++)
        for (int j = 0; j < m->photos[i].n_cuts; j++) {
            cuts[n++] = m->photos[i].cuts[j];
            room = CW_MAX(room, cuts[n - 1].size);
        }
    _cleanup_free_ uint8_t *buffer = malloc(2 * room + 256); /* the picture, and the record that holds it */
    if (!cuts || !buffer)
        return cw_error_nomem(err, m->set->count * sizeof *cuts, "the list of pictures");
    qsort(cuts, n, sizeof *cuts, compare_cuts);
    int r = 0;
    for (uint64_t s = 0; r >= 0 && s < m->set->shards; s++)
        r = write_shard(m, cuts, s, buffer, room, err);
    return r;
}

/* ---- the directory ---- */

/* Removes what a directory holds, and with `itself` the directory. */
static void remove_tree(const char *path, bool itself)
{
    char *const roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; fts && (e = fts_read(fts));)
        if (e->fts_info != FTS_D && (itself || e->fts_level > FTS_ROOTLEVEL))
            remove(e->fts_accpath);
    if (fts)
        fts_close(fts);
}

/* Returns what the set is made with, as JSON; the caller frees it. NULL: out of memory. */
static char *stamp_text(const struct photo_set *set)
{
    json_auto_t *sources = json_array();
    for (size_t i = 0; i < set->sources->n; i++)
        json_array_append_new(sources, cw_report_text(set->sources->items[i]));
    json_auto_t *stamp = json_pack("{s:s, s:I, s:I, s:I, s:O}", "format",
                                   set->tfrecord ? "tfrecord" : "folder", "count", (json_int_t)set->count,
                                   "shards", (json_int_t)set->shards, "seed", (json_int_t)set->seed,
                                   "sources", sources);
    return stamp ? json_dumps(stamp, 0) : NULL;
}

/* Returns 1: the directory holds this set; 0: it is empty or missing; negative: an error. */
static int directory_look(const struct photo_set *set, const char *stamp, struct cw_error *err)
{
    struct cw_text path = {0};
    _cleanup_free_ char *found = NULL;
    size_t size;
    struct stat st;
    cw_text_add(&path, "%s/" STAMP, set->dir);
    if (path.failed)
        return cw_error_nomem(err, 0, "a path");
    const bool there = access(path.data, F_OK) == 0;
    int r = there ? cw_read_file(path.data, 1 << 20, &found, &size, err) : 0;
    cw_text_deinit(&path);
    if (r < 0)
        return r;
    if (there && strcmp(found, stamp) == 0)
        return 1;
    if (there)
        return cw_error_value(err, CW_E_OPTION, "DIR", set->dir, "another directory, or none",
                              "%s holds a set of photographs that was made with other options (%s): expected "
                              "%s. Remove it, or name another directory",
                              set->dir, found, stamp);
    if (!lstat(set->dir, &st) && !S_ISDIR(st.st_mode))
        return cw_error_value(err, CW_E_OPTION, "DIR", set->dir, "a directory",
                              "%s is not a directory: expected one", set->dir);
    if (!rmdir(set->dir) || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY ? cw_error_value(err, CW_E_OPTION, "DIR", set->dir, "another directory",
                                               "%s holds other files: expected an empty directory", set->dir)
                              : cw_error_at_file(err, CW_E_IO, set->dir, errno, "%s", set->dir);
}

/* Locks m->partial, which exists. Returns 0: locked; 1: another process has it, or has just renamed or
 * removed it; negative: an error. */
static int lock_partial(struct maker *m, struct cw_error *err)
{
    struct stat locked, named;
    int fd = open(m->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 1;
    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0)
        return cw_error_at_file(err, CW_E_IO, m->partial, errno, "can't open %s", m->partial);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        r = fstat(fd, &locked) < 0 || stat(m->partial, &named) < 0 || locked.st_dev != named.st_dev ||
            locked.st_ino != named.st_ino;
    else if (errno != EWOULDBLOCK)
        r = cw_error_at_file(err, CW_E_IO, m->partial, errno, "can't lock %s", m->partial);
    if (r == 0)
        m->lock = fd;
    else
        close(fd);
    return r;
}

/* Makes m->partial, empty and locked, and the spill file. Removes what an interrupted run left there. Returns
 * 1 if another process makes the set. */
static int directory_open(struct maker *m, struct cw_error *err)
{
    int r = cw_make_dirs(m->partial, err);
    if (r >= 0)
        r = lock_partial(m, err);
    if (r != 0)
        return r;
    remove_tree(m->partial, false);
    struct cw_text path = {0};
    cw_text_add(&path, "%s/spill", m->partial);
    if (path.failed)
        return cw_error_nomem(err, 0, "a path");
    m->spill = open(path.data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = m->spill < 0 ? can_t_write(path.data, err) : 0;
    unlink(path.data);
    cw_text_deinit(&path);
    return r;
}

/* As directory_open, after the processes that make the set have ended, such as the other ranks of a job.
 * Returns 1 if one of them has made it. */
static int directory_take(struct maker *m, const char *stamp, struct cw_error *err)
{
    struct cw_text partial = {0};
    cw_text_add(&partial, "%s.partial", m->set->dir);
    m->partial = partial.data;
    if (partial.failed)
        return cw_error_nomem(err, 0, "a path");
    uint64_t until_ns = cw_now_ns() + WAIT_S * UINT64_C(1000000000);
    for (bool waits = false;; waits = true) {
        int r = directory_look(m->set, stamp, err);
        if (r != 0 || (r = directory_open(m, err)) <= 0)
            return r;
        if (!waits)
            fprintf(stderr, "cachew: another process makes %s: waiting for it\n", m->set->dir);
        if (atomic_load(m->set->stop))
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        if (cw_now_ns() > until_ns)
            return cw_error_set(err, CW_E_DEADLINE,
                                "another process has not finished %s after %d s: repeat this command when it "
                                "has ended",
                                m->set->dir, WAIT_S);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

/* Adds the stamp and renames the directory to its final name. */
static int directory_publish(struct maker *m, const char *stamp, struct cw_error *err)
{
    struct cw_text path = {0};
    cw_text_add(&path, "%s/" STAMP, m->partial);
    if (path.failed)
        return cw_error_nomem(err, 0, "a path");
    int r = cw_put(path.data, stamp, strlen(stamp), err);
    cw_text_deinit(&path);
    if (r >= 0 && rename(m->partial, m->set->dir))
        r = cw_error_at_file(err, CW_E_IO, m->set->dir, errno, "can't rename %s to %s", m->partial,
                             m->set->dir);
    return r;
}

/* ---- sources ---- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Whether a file is a JPEG or PNG, by its first bytes, not by its name. */
static bool is_photograph(const char *path)
{
    uint8_t head[8] = {0};
    FILE *f = fopen(path, "rbe");
    const size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f)
        fclose(f);
    return n == 8 && (!memcmp(head, "\x89PNG\r\n\x1a\n", 8) || !memcmp(head, "\xff\xd8\xff", 3));
}

/* Adds a photograph. path: its file, owned; NULL: it is drawn. */
static int photo_add(struct maker *m, char *path, struct cw_error *err)
{
    struct photo *grown = realloc(m->photos, (size_t)(m->n_photos + 1) * sizeof *grown);
    if (!grown) {
        free(path);
        return cw_error_nomem(err, 0, "the list of photographs");
    }
    m->photos = grown;
    m->photos[m->n_photos++] = (struct photo){.path = path};
    return 0;
}

/* Adds the photographs of a directory and of those below it, in the order of their names. */
static int find_photos(struct maker *m, const char *dir, struct cw_error *err)
{
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, by_name);
    int r = fts ? 0 : cw_error_at_file(err, CW_E_OPTION, dir, errno, "can't read %s", dir);
    for (FTSENT *e; r >= 0 && (e = fts_read(fts));) {
        if (e->fts_info == FTS_NS || e->fts_info == FTS_DNR)
            r = cw_error_at_file(err, CW_E_OPTION, e->fts_path, e->fts_errno, "can't read %s", e->fts_path);
        /* links would give a photograph twice */
        else if (e->fts_info == FTS_F && is_photograph(e->fts_accpath)) {
            char *path = strdup(e->fts_path);
            r = path ? photo_add(m, path, err) : cw_error_nomem(err, 0, "a path");
        }
    }
    if (fts)
        fts_close(fts);
    return r;
}

static int find_all(struct maker *m, struct cw_error *err)
{
    const struct cli_texts *sources = m->set->sources;
    const uint64_t n_drawn = CW_MIN(CW_MAX(m->set->count / CUTS_OF_DRAWN, 2), MAX_DRAWN);
    int r = 0;
    for (uint64_t i = 0; i < n_drawn && !sources->n && r >= 0; i++)
        r = photo_add(m, NULL, err);
    for (size_t i = 0; i < sources->n && r >= 0; i++) {
        const int before = m->n_photos;
        r = find_photos(m, sources->items[i], err);
        if (r >= 0 && m->n_photos == before)
            r = cw_error_value(err, CW_E_OPTION, "source", sources->items[i], "a directory with photographs",
                               "--source %s: expected a directory with photographs (JPEG, PNG)",
                               sources->items[i]);
    }
    return r;
}

/* ---- all of it ---- */

static void maker_deinit(struct maker *m, bool failed)
{
    if (failed && m->lock >= 0)
        remove_tree(m->partial, true);
    if (m->lock >= 0)
        close(m->lock);
    if (m->spill >= 0)
        close(m->spill);
    for (int i = 0; i < m->n_photos; i++) {
        free(m->photos[i].path);
        free(m->photos[i].cuts);
    }
    free(m->photos);
    free(m->partial);
    pthread_mutex_destroy(&m->mutex);
}

int photo_set_make(const struct photo_set *set, struct photo_set_report *ret, struct cw_error *err)
{
    struct maker m = {.set = set, .spill = -1, .lock = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};
    const uint64_t start_ns = cw_now_ns();
    *ret = (struct photo_set_report){0};
    _cleanup_free_ char *stamp = stamp_text(set);
    int r = stamp ? directory_look(set, stamp, err) : cw_error_nomem(err, 0, "the description of a set");
    if (r == 0)
        r = find_all(&m, err);
    if (r == 0)
        r = directory_take(&m, stamp, err);
    ret->existed = r > 0;
    if (r == 0)
        r = cut_all(&m, err);
    if (r == 0)
        r = write_all(&m, err);
    if (r == 0)
        r = directory_publish(&m, stamp, err);
    ret->n_photographs = (unsigned)m.n_photos;
    ret->bytes = atomic_load(&m.spill_size);
    ret->seconds = (double)(cw_now_ns() - start_ns) * 1e-9;
    maker_deinit(&m, r < 0);
    return CW_MIN(r, 0);
}
