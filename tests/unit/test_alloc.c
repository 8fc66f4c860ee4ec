/*
 * Every allocation that a whole run makes, from the JSON value of a pipeline to its last batch, fails in
 * turn: those of the image and compression libraries too. What comes of it is an error, or (where the engine
 * can do without) exactly the batches that come otherwise. Nothing is left behind. Reading JSON text is left
 * out: jansson 2.14 drops characters, and then writes past its buffer, when memory for a long word is
 * refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cachew/plugin.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <jpeglib.h>
#include <webp/encode.h>

#include "alloc_fail.h"
#include "base/macro.h"
#include "session/local.h"
#include "data/arrays.h"
#include <cachew/arrow.h>
#include "data_files.h"
#include "formats/image_write.h"
#include "ops/plugin/plugin.h"
#include "ops/table.h"
#include "optimize/order.h"
#include "tar_files.h"

/* ---- data ---- */

static uint8_t pixels[40][48][3];

static void make_images(void)
{
    for (int y = 0; y < 40; y++)
        for (int x = 0; x < 48; x++)
            for (int c = 0; c < 3; c++)
                pixels[y][x][c] = (uint8_t)(x * 5 + y * (c + 1) + (x * y) % 7);
    for (int progressive = 0; progressive < 2; progressive++) {
        struct jpeg_compress_struct c;
        struct jpeg_error_mgr e;
        unsigned char *data = NULL;
        unsigned long size = 0;
        c.err = jpeg_std_error(&e);
        jpeg_create_compress(&c);
        jpeg_mem_dest(&c, &data, &size);
        c.image_width = 48;
        c.image_height = 40;
        c.input_components = 3;
        c.in_color_space = JCS_RGB;
        jpeg_set_defaults(&c);
        if (progressive)
            jpeg_simple_progression(&c);
        jpeg_start_compress(&c, TRUE);
        for (int y = 0; y < 40; y++) {
            JSAMPROW row = &pixels[y][0][0];
            jpeg_write_scanlines(&c, &row, 1);
        }
        jpeg_finish_compress(&c);
        jpeg_destroy_compress(&c);
        temp_file(progressive ? "images/a/2.jpg" : "images/a/1.jpg", data, size);
        free(data);
    }
    assert_int_equal(cw_png_write(temp_path("images/b/3.png"), 40, 48, 3, pixels, NULL), 0);
    uint8_t *webp = NULL;
    size_t size = WebPEncodeRGB(&pixels[0][0][0], 48, 40, 48 * 3, 80, &webp);
    temp_file("images/b/4.webp", webp, size);
    WebPFree(webp);
    if (getenv("CACHEW_TEST_LOSSLESS_WEBP")) {
        /* left out: libwebp 1.2.4 crashes by itself when memory for its Huffman tables is refused */
        /* No lossless WebP: libwebp 1.2.4 itself crashes when an allocation fails in its lossless decoder. */
    }
}

/* Example: {"id": [int64], "name": [bytes]} */
static void add_example(struct bytes *b, uint8_t id)
{
    const uint8_t example[] = {0x0a,
                               0x1e,
                               0x0a,
                               0x0b,
                               0x0a,
                               0x02,
                               'i',
                               'd',
                               0x12,
                               0x05,
                               0x1a,
                               0x03,
                               0x0a,
                               0x01,
                               id,
                               0x0a,
                               0x0f,
                               0x0a,
                               0x04,
                               'n',
                               'a',
                               'm',
                               'e',
                               0x12,
                               0x07,
                               0x0a,
                               0x05,
                               0x0a,
                               0x03,
                               'a',
                               (uint8_t)('a' + id % 26),
                               'c'};
    bytes_add_record(b, example, sizeof(example));
}

static int setup(void **state)
{
    if (temp_make(state) < 0)
        return -1;
    mkdir(temp_path("images"), 0777);
    mkdir(temp_path("images/a"), 0777);
    mkdir(temp_path("images/b"), 0777);
    make_images();
    struct bytes b = {0}, z = {0};
    for (uint8_t i = 0; i < 60; i++)
        add_example(&b, i);
    temp_file("plain.tfrecord", b.data, b.size);
    bytes_add_deflated(&z, b.data, b.size, 31);
    temp_file("packed.tfrecord.gz", z.data, z.size);
    struct bytes zstd = {0}, bzip2 = {0}, xz = {0};
    bytes_add_zstd(&zstd, b.data, b.size);
    temp_file("packed.tfrecord.zst", zstd.data, zstd.size);
    bytes_add_bzip2(&bzip2, b.data, b.size);
    temp_file("packed.tfrecord.bz2", bzip2.data, bzip2.size);
    bytes_add_xz(&xz, b.data, b.size, 1000);
    temp_file("packed.tfrecord.xz", xz.data, xz.size);
    bytes_free(&zstd);
    bytes_free(&bzip2);
    bytes_free(&xz);
    struct bytes lines = {0}, packed_lines = {0};
    for (unsigned i = 0; i < 60; i++) {
        char line[100];
        int n = snprintf(line, sizeof(line), "{\"id\": %u, \"name\": \"a\\u00e4%u\", \"tokens\": [1, 2.5]}\n",
                         i, i);
        bytes_add(&lines, line, (size_t)n);
    }
    temp_file("lines.jsonl", lines.data, lines.size);
    bytes_add_deflated(&packed_lines, lines.data, lines.size, 31);
    temp_file("lines.jsonl.gz", packed_lines.data, packed_lines.size);
    bytes_free(&lines);
    bytes_free(&packed_lines);
    struct bytes tar = {0}, packed_tar = {0};
    tar_member(&tar, "x", "19 path=d/long.cls\n", 19, 'x');
    tar_file(&tar, "cut", "7");
    for (unsigned i = 0; i < 40; i++) {
        char name[20];
        snprintf(name, sizeof(name), "%02u.cls", i);
        tar_file(&tar, name, "8");
    }
    tar_end(&tar);
    temp_file("samples.tar", tar.data, tar.size);
    bytes_add_deflated(&packed_tar, tar.data, tar.size, 31);
    temp_file("samples.tar.gz", packed_tar.data, packed_tar.size);
    bytes_free(&tar);
    bytes_free(&packed_tar);
    b.data[b.size - 1] ^= 1; /* the last record's checksum */
    temp_file("damaged.tfrecord", b.data, b.size);
    bytes_free(&b);
    bytes_free(&z);
    return 0;
}

/* ---- a run ---- */

struct outcome {
    uint64_t batches, rows;
    struct cw_hash128 digest;
};

static void remove_index(void)
{
    char name[400];
    DIR *d = opendir(temp_path("index"));
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(name, sizeof(name), "%s/%s", temp_path("index"), e->d_name);
        if (e->d_name[0] != '.')
            unlink(name);
    }
    if (d)
        closedir(d);
    rmdir(temp_path("index"));
}

static int whole_run(const json_t *root, unsigned threads, unsigned world, bool any, bool resume,
                     struct outcome *out, struct cw_error *err)
{
    struct cw_local l = {0};
    struct cw_iterator_options o = {
        .seed = 5,
        .epochs = 1,
        .world_size = world,
        .rank = any ? world - 1 : 0, /* that one is padded */
        .unordered = any,
        .runner = {.threads = threads, .memory = (size_t)64 << 20, .optimize = true}};
    struct cw_batch *b;
    *out = (struct outcome){0};
    int r = cw_pipeline_from_json(cw_ops(), root, temp_dir, &l.pipeline, err);
    if (r >= 0)
        r = cw_order_compile(l.pipeline, true, &l.compiled, err);
    if (r >= 0)
        r = cw_local_open(&l, temp_path("index"), 1, 0, err);
    if (r >= 0)
        r = cw_iterator_new(l.sequence, &o, NULL, &l.iterator, err);
    while (r >= 0 && (r = cw_iterator_next(l.iterator, UINT64_C(900000000000), &b, err)) == 0) {
        if (!(b->flags & CW_RECORD_PADDING))
            out->digest = cw_hash128_add(out->digest, cw_batch_hash(b));
        out->batches++;
        out->rows += b->n;
        cw_iterator_release(l.iterator, b);
        if (resume && out->batches == 2) { /* goes on with an iterator made from the state */
            json_t *state = cw_iterator_state(l.iterator);
            l.iterator = cw_iterator_free(l.iterator);
            r = state ? cw_iterator_new(l.sequence, &o, state, &l.iterator, err)
                      : cw_error_nomem(err, 0, "the state");
            json_decref(state);
        }
    }
    cw_local_deinit(&l);
    return r == 1 ? 0 : r;
}

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

struct run_case {
    const char *text;
    unsigned threads, world; /* 0: 1 */
    bool fresh_index, resume, any;
    int expected; /* status of a run in which nothing fails */
};

static unsigned problems;
/* as they were before cmocka: a crash is to end the program where it happened */
static struct sigaction fatal[2];
static const int fatal_signals[] = {SIGSEGV, SIGABRT};

static void problem(uint64_t n, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void problem(uint64_t n, const char *format, ...)
{
    char message[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof(message), format, ap);
    va_end(ap);
    if (problems++ < 10)
        print_message("allocation %" PRIu64 " (%s): %s\n", n, alloc_fail_what(), message);
}

static void fail_every_allocation(const struct run_case *c)
{
    for (size_t i = 0; i < CW_COUNT_OF(fatal); i++)
        sigaction(fatal_signals[i], &fatal[i], NULL);
    unsigned threads = CW_MAX(c->threads, 1), world = CW_MAX(c->world, 1);
    struct cw_error err;
    struct outcome want, have;
    int64_t live = 0;
    json_t *root = json_loads(c->text, 0, NULL);
    assert_non_null(root);
    remove_index();
    problems = 0;
    /* Twice, so that what libraries keep for good is there; then counted. */
    for (int i = 0; i < 3; i++) {
        if (c->fresh_index)
            remove_index();
        live = alloc_fail_live();
        err = (struct cw_error){0};
        int r = whole_run(root, threads, world, c->any, c->resume, &want, &err);
        if (r != c->expected)
            fail_msg("result %d (%s), expected %d: %s", r, err.message, c->expected, c->text);
    }
    if (threads == 1)
        assert_int_equal(alloc_fail_live(), live);
    int fd = next_descriptor();
    uint64_t n = 1, errors = 0, hangs = 0;
    for (bool more = true; more; n++) {
        if (c->fresh_index)
            remove_index();
        err = (struct cw_error){0};
        live = alloc_fail_live();
        alloc_fail_arm(n);
        int r = whole_run(root, threads, world, c->any, c->resume, &have, &err);
        alloc_fail_disarm();
        more = alloc_fail_happened();
        errors += r < 0;
        if (r == CW_E_DEADLINE && ++hangs > 3)
            more = false; /* enough of that */
        if (r < 0 && (!err.message[0] || err.status != r))
            problem(n, "result %d, but the error says %d, \"%s\"", r, err.status, err.message);
        if (r < 0 && r != c->expected && r != CW_E_MEMORY &&
            !(r == CW_E_IO && strstr(err.message, "Cannot allocate memory")))
            problem(n, "%s: %s", cw_status_name(r), err.message);
        if (r >= 0 && (have.batches != want.batches || have.rows != want.rows ||
                       have.digest.lo != want.digest.lo || have.digest.hi != want.digest.hi))
            problem(n,
                    "success, but %" PRIu64 " batches of %" PRIu64 " rows, expected %" PRIu64 " of %" PRIu64,
                    have.batches, have.rows, want.batches, want.rows);
        if (r >= 0 && c->expected < 0)
            problem(n, "success where even a run without trouble fails");
        if (alloc_fail_live() > live)
            problem(n, "%" PRIi64 " blocks or mappings are left behind (result %d: %s)",
                    alloc_fail_live() - live, r, err.message);
        if (next_descriptor() != fd) {
            problem(n, "a descriptor is left open (result %d: %s)", r, err.message);
            fd = next_descriptor();
        }
    }
    json_decref(root);
    print_message("%" PRIu64 " allocations failed in turn, %" PRIu64 " runs ended with an error\n", n - 2,
                  errors);
    if (problems)
        fail_msg("%u problems: %s", problems, c->text);
}

/* ---- a plug-in ---- */

static int half_bind(struct cachew_bind *b, void **state)
{
    struct cachew_type type;
    *state = malloc(16);
    if (!*state)
        return CACHEW_E_MEMORY;
    cachew_bind_read(b, "value", &type);
    /* though it is always 3 */
    type = (struct cachew_type){.dtype = CACHEW_INT64, .ndim = 1, .dims = {CACHEW_VARIES}};
    return cachew_bind_write(b, "half", &type);
}

static int half_run(const void *state, struct cachew_row *row)
{
    const int64_t n = 3;
    (void)state;
    int64_t *out = cachew_row_output(row, 0, &n, 1), *scratch = cachew_row_scratch(row, 100);
    if (!out || !scratch)
        return CACHEW_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        out[i] = scratch[i] = i;
    return *(const int64_t *)row->in[0].data % 4 == 3 ? cachew_row_fail(row, "three") : CACHEW_OK;
}

static const struct cachew_attr half_attrs[] = {
    {.name = "list", .kind = CACHEW_ATTR_INTS, .def = "[1, 2]", .doc = "a list"}, {0}};
static const struct cachew_operator half = {.name = "unit_half",
                                            .summary = "for tests",
                                            .kind = CACHEW_MAP,
                                            .attrs = half_attrs,
                                            .bind = half_bind,
                                            .run = half_run,
                                            .free_state = free};

/* Before the runs that use it. A name for each attempt, because some allocations may fail without harm. */
static void test_plugin_is_added(void **state)
{
    (void)state;
    static struct cachew_operator attempts[64];
    static char names[64][32];
    unsigned n = 1, errors = 0;
    for (bool more = true; more; n++) {
        struct cw_error err = {0};
        int64_t live = alloc_fail_live();
        assert_true(n < CW_COUNT_OF(names));
        snprintf(names[n], sizeof(names[n]), "unit_half_%u", n);
        attempts[n] = half;
        attempts[n].name = names[n];
        const struct cachew_operator *const operators[] = {&attempts[n], NULL};
        const struct cachew_plugin plugin = {
            .abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = operators};
        alloc_fail_arm(n);
        int r = cw_plugin_add(&plugin, "/plugins/half.so", &err);
        alloc_fail_disarm();
        more = alloc_fail_happened();
        errors += r < 0;
        assert_int_equal(!cw_op_find(cw_ops(), names[n]), r < 0);
        if (r < 0 && (!more || r != CW_E_MEMORY || alloc_fail_live() != live))
            fail_msg("allocation %u: %s; %" PRIi64 " left behind", n, err.message, alloc_fail_live() - live);
    }
    assert_true(errors > 5);
    const struct cachew_operator *const operators[] = {&half, NULL};
    assert_int_equal(
        cw_plugin_add(
            &(struct cachew_plugin){.abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = operators},
            "half.so", NULL),
        0);
}

/* ---- an operator on batches ---- */

static int echo_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    (void)op;
    int r = cw_bind_read(b, "value", &type, err);
    if (r >= 0)
        r = cw_bind_write(b, "value", &type, err);
    return r < 0 ? r : 0;
}

static int echo_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                      int (*cancelled)(void *), void *arg, struct cw_batch_result *ret, struct cw_error *err)
{
    (void)op;
    (void)key;
    (void)err;
    *ret = (struct cw_batch_result){.note = "seen"};
    ret->columns[0] = (struct cw_tensor){.data = in->components[0].data, .size = in->components[0].size};
    return cancelled(arg) ? CW_E_INTERRUPTED : 0;
}

static void echo_release(struct cw_batch_result *result)
{
    (void)result;
}

static const struct cw_attr_def no_attrs[] = {{0}};
static const struct cw_op_desc echo = {.name = "unit_echo",
                                       .summary = "for tests",
                                       .kind = CW_OP_BATCH_MAP,
                                       .attrs = no_attrs,
                                       .bind = echo_bind,
                                       .batch = echo_batch,
                                       .batch_release = echo_release};

/* Before the runs that use it. */
static void test_echo_is_added(void **state)
{
    (void)state;
    const struct cw_op_desc *const ops[] = {&echo};
    assert_int_equal(cw_ops_add(ops, 1, NULL), 0);
}

#define PIPELINE(chain) "{\"cachew\": 1, \"pipeline\": [" chain "]}"
#define SKIPPING(chain) "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [" chain "]}"
#define REPLACING(chain) "{\"cachew\": 1, \"on_error\": \"replace\", \"pipeline\": [" chain "]}"
#define RANGE "{\"op\": \"range\", \"stop\": 60}, "
#define SHUFFLED ", {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}"
#define EXAMPLES(file) \
    "{\"op\": \"tfrecord\", \"files\": \"" file \
    "\"}, {\"op\": \"parse_example\", \"features\": {\"id\": \"int64\", \"name\": \"bytes\"}}"
#define JSONL(file) \
    "{\"op\": \"jsonl\", \"files\": \"" file "\", \"features\": {\"id\": \"uint8\", \"name\": \"bytes\", " \
    "\"tokens\": {\"dtype\": \"float32\", \"shape\": [2], " \
    "\"default\": [1, 2]}}}"
#define TAR(file) \
    "{\"op\": \"tar\", \"files\": \"" file "\", \"components\": {\"cls\": \"uint8\", \"__key__\": " \
    "\"bytes\"}}"
#define IMAGES \
    "{\"op\": \"image_folder\", \"root\": \"images\"}, {\"op\": \"decode_image\", \"component\": " \
    "\"image\"}, "

#define CASE(name, ...) \
    static void test_##name(void **state) \
    { \
        (void)state; \
        fail_every_allocation(&(struct run_case){__VA_ARGS__}); \
    }

CASE(counted, .text = PIPELINE(RANGE "{\"op\": \"assign\", \"set\": {\"x\": \"sqrt(value) + 1\"}}" SHUFFLED))
CASE(filtered, .text = PIPELINE(RANGE "{\"op\": \"filter\", \"where\": \"value % 3 != 0\"}" SHUFFLED))
CASE(batch_operators, .text = PIPELINE(RANGE "{\"op\": \"filter\", \"where\": \"value % 3 != 0\"}" SHUFFLED
                                             ", {\"op\": \"unit_echo\"}, {\"op\": \"unit_echo\"}"))
CASE(two_threads, .threads = 2,
     .text = PIPELINE(RANGE "{\"op\": \"filter\", \"where\": \"value % 3 != 0\"}" SHUFFLED))
CASE(limited,
     .text = PIPELINE(RANGE
                      "{\"op\": \"filter\", \"where\": \"value % 3 != 0\"}, {\"op\": \"skip\", \"count\": "
                      "3}, {\"op\": \"take\", \"count\": 20}, {\"op\": \"batch\", \"size\": 8}"))
CASE(plugin, .text = SKIPPING(RANGE "{\"op\": \"unit_half\"}" SHUFFLED))
CASE(resumed, .resume = true,
     .text = PIPELINE(RANGE "{\"op\": \"filter\", \"where\": \"value % 3 != 0\"}" SHUFFLED))
CASE(ranks, .world = 3, .text = PIPELINE(RANGE "{\"op\": \"take\", \"count\": 33}" SHUFFLED))
CASE(any_ranks, .world = 3, .any = true, .text = PIPELINE(RANGE "{\"op\": \"take\", \"count\": 33}" SHUFFLED))
CASE(any_resumed, .world = 2, .any = true, .resume = true,
     .text = PIPELINE(
         "{\"op\": \"range\", \"stop\": 450}, {\"op\": \"bucket_by_length\", \"length\": \"value % 20\", "
         "\"boundaries\": [10], \"sizes\": [7, 8]}"))
CASE(concat,
     .text = PIPELINE("{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": 20}, {\"op\": "
                      "\"repeat\", \"count\": 2}], [{\"op\": \"range\", \"stop\": 9}]]}" SHUFFLED))
CASE(mix,
     .text = PIPELINE("{\"op\": \"mix\", \"weights\": [3, 2], \"stop\": \"last\", \"inputs\": [[{\"op\": "
                      "\"range\", \"stop\": 20}, {\"op\": \"shuffle\"}], [{\"op\": \"range\", \"stop\": "
                      "9}]]}" SHUFFLED))
CASE(zip, .text = PIPELINE("{\"op\": \"zip\", \"inputs\": [[{\"op\": \"range\", \"stop\": 20}, {\"op\": "
                           "\"shuffle\"}], [" EXAMPLES("packed.tfrecord.gz") "], [" EXAMPLES(
                               "plain.tfrecord") ", "
                                                 "{\"op\": \"rename\", \"names\": {\"id\": \"id_2\", "
                                                 "\"name\": \"name_2\"}}]]}" SHUFFLED))
#define PACKED(more) \
    PIPELINE("{\"op\": \"synthetic\", \"count\": 40, \"shape\": [3], \"dtype\": \"int32\"}, {\"op\": " \
             "\"filter\", \"where\": \"max(data) % 4 != 0\"}, {\"op\": \"pack\", \"component\": \"data\", " \
             "\"length\": 5, \"window\": 7}" more ", {\"op\": \"batch\", \"size\": 3}")
CASE(pack, .text = PACKED(", {\"op\": \"take\", \"count\": 14}"))
CASE(pack_resumed, .resume = true, .threads = 2, .text = PACKED(""))
CASE(synthetic, .text = PIPELINE("{\"op\": \"synthetic\", \"count\": 40, \"shape\": [8, 8, 3], \"dtype\": "
                                 "\"uint8\"}, {\"op\": \"random_flip\", \"component\": \"data\"},"
                                 "{\"op\": \"cast\", \"component\": \"data\", \"dtype\": \"float16\"}, "
                                 "{\"op\": \"count\"}, {\"op\": \"delay\", \"us\": 1}" SHUFFLED))
CASE(tfrecord, .fresh_index = true, .text = PIPELINE(EXAMPLES("plain.tfrecord") SHUFFLED))
CASE(tfrecord_with_index, .text = PIPELINE(EXAMPLES("plain.tfrecord") SHUFFLED))
CASE(gzip, .fresh_index = true, .text = PIPELINE(EXAMPLES("packed.tfrecord.gz") SHUFFLED))
CASE(gzip_with_index, .text = PIPELINE(EXAMPLES("packed.tfrecord.gz") SHUFFLED))
CASE(zstd, .fresh_index = true, .text = PIPELINE(EXAMPLES("packed.tfrecord.zst") SHUFFLED))
CASE(bzip2, .fresh_index = true, .text = PIPELINE(EXAMPLES("packed.tfrecord.bz2") SHUFFLED))
CASE(xz, .fresh_index = true, .text = PIPELINE(EXAMPLES("packed.tfrecord.xz") SHUFFLED))
CASE(text, .fresh_index = true, .text = PIPELINE("{\"op\": \"text\", \"files\": \"lines.jsonl\"}" SHUFFLED))
CASE(jsonl_gzip, .fresh_index = true, .text = PIPELINE(JSONL("lines.jsonl.gz") SHUFFLED))
CASE(jsonl_with_index, .text = PIPELINE(JSONL("lines.jsonl") SHUFFLED))
CASE(tar, .fresh_index = true, .text = PIPELINE(TAR("samples.tar") SHUFFLED))
CASE(tar_gzip, .text = PIPELINE(TAR("samples.tar.gz") SHUFFLED))
CASE(buckets,
     .text = PIPELINE(EXAMPLES("plain.tfrecord") ", {\"op\": \"bucket_by_length\", \"length\": \"id\", "
                                                 "\"boundaries\": [20, 40], \"sizes\": [5, 6, 7]}"))
CASE(skipping,
     .text = SKIPPING(EXAMPLES("damaged.tfrecord") ", {\"op\": \"fail\", \"where\": \"id == 7\"}" SHUFFLED))
CASE(replacing,
     .text = REPLACING(EXAMPLES("damaged.tfrecord") ", {\"op\": \"fail\", \"where\": \"id == 7\"}" SHUFFLED))
CASE(raising, .expected = CW_E_RECORD, .text = PIPELINE(EXAMPLES("damaged.tfrecord") SHUFFLED))
CASE(raising_late, .expected = CW_E_RECORD,
     .text = PIPELINE(RANGE "{\"op\": \"filter\", \"where\": \"value >= 0\"}, {\"op\": \"assign\", \"set\": "
                            "{\"x\": \"1 // (value - 3)\"}}, {\"op\": \"batch\", \"size\": 8}"))
CASE(images, .fresh_index = true,
     .text = SKIPPING(IMAGES "{\"op\": \"random_resized_crop\", \"component\": \"image\", \"size\": [16, "
                             "16]}, {\"op\": \"random_flip\", \"component\": \"image\"}"
                             ", {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 2}"))
CASE(image_chain,
     .text = SKIPPING(
         IMAGES "{\"op\": \"resize\", \"component\": \"image\", \"size\": [20, 20], \"interpolation\": "
                "\"bicubic\"}, {\"op\": \"center_crop\", \"component\": \"image\", \"size\": [16, 16]},"
                "{\"op\": \"normalize\", \"component\": \"image\", \"mean\": [127, 127, 127], \"std\": [50, "
                "50, 50]}, {\"op\": \"transpose_image\", \"component\": \"image\"}, {\"op\": \"drop\", "
                "\"components\": [\"path\"]},"
                "{\"op\": \"rename\", \"names\": {\"label\": \"class\"}}, {\"op\": \"batch\", \"size\": 2}"))
CASE(images_unbatched,
     .text = SKIPPING("{\"op\": \"files\", \"files\": \"images/"
                      "*/"
                      "*\"}, {\"op\": \"decode_image\", \"component\": \"data\"}, {\"op\": \"random_crop\", "
                      "\"component\": \"data\", \"size\": [8, 8]},"
                      "{\"op\": \"select\", \"components\": [\"data\"]}"))

/* ---- data sets in memory ---- */

static void test_arrays(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl";
    static int64_t numbers[60];
    static uint64_t offsets[61];
    char text[300];
    for (int i = 0; i < 60; i++) {
        numbers[i] = i;
        offsets[i + 1] = (uint64_t)i + 1;
    }
    struct cw_type number = cw_type_scalar(CW_INT64), bytes = cw_type_scalar(CW_BYTES);
    struct cw_arrays *a = cw_arrays_new(2, 1);
    assert_int_equal(cw_arrays_column(a, 0, "n", &number, NULL), 0);
    assert_int_equal(cw_arrays_column(a, 1, "s", &bytes, NULL), 0);
    a->first[1] = 60;
    a->columns[0].pieces[0] = (struct cw_array_piece){.data = (const uint8_t *)numbers};
    a->columns[1].pieces[0] = (struct cw_array_piece){
        .data = (const uint8_t *)letters, .offsets = offsets, .offset_size = 8};
    assert_int_equal(cw_arrays_register(a, NULL), 0);
    snprintf(text, sizeof(text), PIPELINE("{\"op\": \"arrays\", \"data\": \"%s\"}" SHUFFLED), a->id);
    fail_every_allocation(&(struct run_case){.text = text});
    cw_arrays_unref(a);
}

static void schema_release(struct ArrowSchema *s)
{
    s->release = NULL;
}

static void array_release(struct ArrowArray *a)
{
    a->release = NULL;
}

static void stream_release(struct ArrowArrayStream *s)
{
    s->release = NULL;
}

/* A column of bools and one of strings behind a dictionary: what is expanded. */
static int arrow_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
    static struct ArrowSchema values, columns[2], *children[] = {&columns[0], &columns[1]};
    (void)s;
    values = (struct ArrowSchema){.format = "u", .release = schema_release};
    columns[0] = (struct ArrowSchema){.format = "b", .name = "b", .release = schema_release};
    columns[1] = (struct ArrowSchema){
        .format = "c", .name = "s", .dictionary = &values, .release = schema_release};
    *out = (struct ArrowSchema){
        .format = "+s", .n_children = 2, .children = children, .release = schema_release};
    return 0;
}

static int arrow_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
    static const uint8_t bits[] = {0x5a};
    static const int8_t indices[] = {1, 0, 1, 1, 0};
    static const int32_t ends[] = {0, 2, 3};
    static const void *bit_buffers[] = {NULL, bits}, *index_buffers[] = {NULL, indices},
                      *text_buffers[] = {NULL, ends, "abc"}, *none[] = {NULL};
    static struct ArrowArray values, columns[2], *children[] = {&columns[0], &columns[1]};
    int *left = s->private_data;
    *out = (struct ArrowArray){0};
    if ((*left)-- == 0)
        return 0;
    values = (struct ArrowArray){
        .length = 2, .n_buffers = 3, .buffers = text_buffers, .release = array_release};
    columns[0] = (struct ArrowArray){
        .length = 5, .n_buffers = 2, .buffers = bit_buffers, .release = array_release};
    columns[1] = (struct ArrowArray){.length = 5,
                                     .n_buffers = 2,
                                     .buffers = index_buffers,
                                     .dictionary = &values,
                                     .release = array_release};
    *out = (struct ArrowArray){.length = 5,
                               .n_buffers = 1,
                               .buffers = none,
                               .n_children = 2,
                               .children = children,
                               .release = array_release};
    return 0;
}

static void test_arrow(void **state)
{
    (void)state;
    bool more = true;
    for (uint64_t n = 1; more; n++) {
        int left = 3;
        struct ArrowArrayStream s = {.get_schema = arrow_schema,
                                     .get_next = arrow_next,
                                     .release = stream_release,
                                     .private_data = &left};
        struct cw_arrays *a = NULL;
        struct cw_error err = {0};
        int64_t live = alloc_fail_live();
        alloc_fail_arm(n);
        int r = cw_arrays_from_arrow(&s, (const uint64_t[]){1, 0}, 2, &a, &err);
        alloc_fail_disarm();
        more = alloc_fail_happened();
        assert_int_equal(r, more ? CW_E_MEMORY : 0);
        assert_null(s.release);
        if (r == 0)
            assert_int_equal(a->n_elements, 2);
        cw_arrays_unref(a);
        assert_int_equal(alloc_fail_live(), live);
        assert_true(n < 100);
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < CW_COUNT_OF(fatal); i++)
        sigaction(fatal_signals[i], NULL, &fatal[i]);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plugin_is_added),
        cmocka_unit_test(test_plugin),
        cmocka_unit_test(test_echo_is_added),
        cmocka_unit_test(test_batch_operators),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_filtered),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_limited),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_any_ranks),
        cmocka_unit_test(test_any_resumed),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_mix),
        cmocka_unit_test(test_zip),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_pack_resumed),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_tfrecord),
        cmocka_unit_test(test_tfrecord_with_index),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_gzip_with_index),
        cmocka_unit_test(test_zstd),
        cmocka_unit_test(test_bzip2),
        cmocka_unit_test(test_xz),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_arrow),
        cmocka_unit_test(test_tar),
        cmocka_unit_test(test_tar_gzip),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_jsonl_gzip),
        cmocka_unit_test(test_jsonl_with_index),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_skipping),
        cmocka_unit_test(test_replacing),
        cmocka_unit_test(test_raising),
        cmocka_unit_test(test_raising_late),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_image_chain),
        cmocka_unit_test(test_images_unbatched),
    };
    return cmocka_run_group_tests(tests, setup, temp_remove);
}
