/* tar: headers of all kinds, samples found in any pieces, what is refused, and the components of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "formats/npy.h"
#include "formats/tar.h"
#include "source_run.h"
#include "tar_files.h"

/* ---- the walk ---- */

static int walk(const struct bytes *b, size_t step, uint64_t stream_size, struct cw_tar_walk *w,
                struct cw_error *err)
{
    assert_int_equal(cw_tar_walk_init(w, "an.tar", stream_size, NULL), 0);
    int r = 0;
    for (size_t at = 0; r == 0 && at < b->size; at += step)
        r = cw_walk_feed(&w->base, at, b->data + at, CW_MIN(step, b->size - at), err);
    return r == 0 ? cw_walk_end(&w->base, b->size, err) : r;
}

static void expect_bad(const struct bytes *b, const char *part)
{
    for (int known = 0; known < 2; known++) {
        /* a plain file's size is known, that of a compressed stream is not */
        struct cw_tar_walk w;
        struct cw_error err = {0};
        assert_int_equal(walk(b, 1000, known ? b->size : UINT64_MAX, &w, &err), CW_E_DATA);
        if (known)
            assert_contains(err.message, part);
        assert_contains(err.message, "an.tar: the member at byte ");
        assert_string_equal(err.file, "an.tar");
        cw_walk_deinit(&w.base);
    }
}

/* Two samples, with everything around and between them that is passed over. */
static void add_archive(struct bytes *b)
{
    tar_member(b, "./", "", 0, '5');
    tar_member(b, "pax_global_header", "20 comment=whatever\n", 20, 'g');
    tar_file(b, "README", "no extension");
    tar_file(b, "./.hidden.txt", "no base name");
    tar_file(b, "./a.b/1.jpg", "first picture");
    tar_member(b, "./a.b/dir.d/", "", 0, '5');
    tar_file(b, "./a.b/1.seg.png", "first mask");
    tar_member(b, "./a.b/1.link", "", 0, '2');
    tar_file(b, "./a.b/1.cls", "7\n");
    tar_file(b, "./a.b/2.jpg", "second picture");
    tar_end(b);
}

static void finds_samples_in_any_pieces(void **state)
{
    (void)state;
    struct bytes b = {0};
    add_archive(&b);
    uint64_t first = 7 * 512, content = 0;
    for (size_t step = 1; step <= b.size; step = step < 1100 ? step + 1 + step / 50 : step * 3) {
        struct cw_tar_walk w;
        assert_int_equal(walk(&b, step, UINT64_MAX, &w, NULL), 0);
        assert_int_equal(w.base.list.n, 2);
        assert_int_equal(w.base.list.offsets[0], first);
        assert_int_equal(w.base.list.lengths[0], (2 + 1 + 2 + 1 + 2) * 512);
        assert_int_equal(w.base.list.offsets[1], first + 8 * 512);
        assert_int_equal(w.base.list.lengths[1], 1024);
        assert_true(!content || content == w.base.content);
        content = w.base.content;
        cw_walk_deinit(&w.base);
    }
    bytes_free(&b);
}

static void a_plain_file_is_read_sparsely_and_gives_the_same(void **state)
{
    (void)state;
    struct bytes b = {0};
    uint8_t *large = calloc(1, 300000);
    for (int i = 0; i < 10; i++) {
        char name[20];
        snprintf(name, sizeof(name), "%d.bin", i);
        tar_member(&b, name, large, 100000 + (size_t)i * 20001, '0');
    }
    tar_end(&b);
    struct cw_tar_walk w, all;
    struct cw_file *f = open_file(temp_file("large.tar", b.data, b.size));
    assert_int_equal(cw_tar_walk_init(&w, "large.tar", b.size, NULL), 0);
    assert_int_equal(cw_walk_scan(&w.base, f, NULL, NULL, NULL), 0);
    assert_int_equal(walk(&b, 70000, UINT64_MAX, &all, NULL), 0);
    assert_int_equal(w.base.list.n, 10);
    assert_memory_equal(w.base.list.offsets, all.base.list.offsets, 80);
    assert_memory_equal(w.base.list.lengths, all.base.list.lengths, 80);
    assert_int_equal(w.base.content, all.base.content);
    cw_file_free(f);
    cw_walk_deinit(&w.base);
    cw_walk_deinit(&all.base);
    bytes_free(&b);
    free(large);
}

/* ---- extended headers ---- */

static void long_names_of_gnu_and_pax(void **state)
{
    (void)state;
    struct bytes b = {0};
    char path[300], pax[400];
    memset(path, 'd', sizeof(path));
    memcpy(path + 250, "/0.jpg", 7); /* and a NUL */
    tar_member(&b, "././@LongLink", path, 257, 'L');
    tar_file(&b, "cut off", "by GNU");
    memcpy(path + 250, "/0.cls", 7);
    int n = snprintf(pax, sizeof(pax), "%d path=%s\n", 266, path);
    assert_int_equal(n, 266);
    tar_member(&b, "PaxHeaders/0", pax, (size_t)n, 'x');
    tar_file(&b, "cut off", "by pax");
    size_t at = tar_header(&b, "0.txt", 6, '0'); /* ustar's prefix */
    memcpy(b.data + at + 345, path, 155);
    tar_seal(&b, at);
    bytes_add(&b, "prefix", 6);
    bytes_add(&b, (uint8_t[506]){0}, 506);
    tar_end(&b);
    struct cw_tar_walk w;
    assert_int_equal(walk(&b, 300, b.size, &w, NULL), 0);
    assert_int_equal(w.base.list.n, 2); /* the extended headers belong to their samples */
    assert_int_equal(w.base.list.offsets[0], 0);
    assert_int_equal(w.base.list.lengths[0], 4 * 512 * 2);
    struct cw_tar_files files;
    struct cw_tar_file file;
    char why[CW_TAR_WHY];
    cw_tar_files_init(&files, b.data, w.base.list.lengths[0]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cw_tar_next(&files, &file, why), 1);
        assert_int_equal(file.name.key_size, 252);
        assert_memory_equal(file.name.extension, i ? "cls" : "jpg", 3);
        assert_memory_equal(file.data, i ? "by pax" : "by GNU", 6);
    }
    assert_int_equal(cw_tar_next(&files, &file, why), 0);
    cw_tar_files_init(&files, b.data + w.base.list.offsets[1], w.base.list.lengths[1]);
    assert_int_equal(cw_tar_next(&files, &file, why), 1);
    assert_int_equal(file.name.key_size, 155 + 2);
    cw_walk_deinit(&w.base);
    bytes_free(&b);
}

static void sizes_of_pax_and_in_base_256(void **state)
{
    (void)state;
    struct bytes b = {0};
    tar_member(&b, "x", "12 size=600\n", 12, 'x');
    size_t at = tar_header(&b, "a.bin", 0, '0'); /* pax counts */
    bytes_add(&b, (uint8_t[1024]){1}, 1024);
    at = tar_header(&b, "b.bin", 0, '0');
    memset(b.data + at + 124, 0, 12);
    b.data[at + 124] = 0x80;
    b.data[at + 134] = 2; /* 513 */
    b.data[at + 135] = 1;
    tar_seal(&b, at);
    bytes_add(&b, (uint8_t[1024]){2}, 1024);
    size_t end = b.size;
    tar_end(&b);
    struct cw_tar_walk w;
    assert_int_equal(walk(&b, 777, b.size, &w, NULL), 0);
    assert_int_equal(w.base.list.n, 2);
    assert_int_equal(w.base.list.offsets[1] + w.base.list.lengths[1], end);
    cw_walk_deinit(&w.base);
    static const uint8_t sizes[][12] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0x80, 0, 0, 1},
        {0x80, 0, 0, 0, 0x7f}};
    for (size_t i = 0; i < 3; i++) { /* negative, 2^64, near 2^63 */
        memcpy(b.data + at + 124, sizes[i], 12);
        tar_seal(&b, at);
        expect_bad(&b, "its size is not a number below 2^62");
    }
    memcpy(b.data + at + 124, (uint8_t[12]){0x80, 0, 0, 0, 0x20}, 12); /* 2^61 */
    tar_seal(&b, at);
    struct cw_error err = {0};
    assert_int_equal(walk(&b, 777, b.size, &w, &err), CW_E_DATA);
    assert_contains(err.message, "2305843009213693952 bytes of data run past the end of the file");
    cw_walk_deinit(&w.base);
    bytes_free(&b);
}

/* ---- what is refused ---- */

static void every_cut_is_an_error(void **state)
{
    (void)state;
    struct bytes b = {0};
    add_archive(&b);
    size_t last = b.size - 1024; /* the end: one zero block is enough */
    for (b.size = 0; b.size < last + 512; b.size += 64)
        expect_bad(&b, "truncated");
    bytes_free(&b);
}

static void every_flipped_bit_of_a_header_is_an_error(void **state)
{
    (void)state;
    struct bytes b = {0};
    add_archive(&b);
    size_t at = 7 * 512;
    for (size_t bit = 0; bit < 512 * 8; bit += 3) {
        if (bit / 8 >= 148 && bit / 8 < 156)
            continue; /* the checksum's own text: spaces and NULs may be either */
        b.data[at + bit / 8] ^= (uint8_t)(1 << bit % 8);
        expect_bad(&b, "byte 3584: the checksum of its header does not match");
        b.data[at + bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    bytes_free(&b);
}

static void hostile_members_are_refused(void **state)
{
    (void)state;

    static const struct {
        const char *name;
        char type;
        const char *data, *part;
    } cases[] = {
        {"../x.jpg", '0', "", "\"../x.jpg\" leads out of the archive's directory"},
        {"a/../../x.jpg", '0', "", "leads out"},
        {"a/..", '5', "", "leads out"},
        {"..", '5', "", "leads out"},
        {"/etc/passwd.txt", '0', "", "\"/etc/passwd.txt\" is absolute"},
        {"", '0', "", "no name"},
        {"a.jpg", 'S', "", "a sparse file"},
        {"a.jpg", '3', "", "a device"},
        {"a.jpg", '6', "", "a named pipe"},
        {"a.jpg", 'M', "", "another volume"},
        {"a.jpg", 'Q', "", "its type is byte 81"},
        {"a.jpg", '1', "data", "it is a link, but has 4 bytes"},
        {"x", 'x', "27 GNU.sparse.major=1 ..... \n", "malformed"},
        {"x", 'x', "22 GNU.sparse.major=1\n", "sparse"},
        {"x", 'x', "99 path=a\n", "malformed"},
        {"x", 'x', "10 path-a\n", "malformed"},
        {"x", 'x', "0 path=a\n", "malformed"},
        {"x", 'x', "path=a\n", "malformed"},
        {"x", 'x', "12 size=-99\n", "not a number"},
        {"x", 'x', "32 size=99999999999999999999999\n", "not a number"},
        {"x", 'g', "14 path=a.jpg\n", "one path for all members"},
        {"x", 'g', "11 size=12\n", "one size for all members"},
        {"x", 'x', "15 path=../x.c\n", "leads out"},
        {"x", 'L', "../x.c", "leads out"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct bytes b = {0};
        tar_member(&b, cases[i].name, cases[i].data, strlen(cases[i].data), cases[i].type);
        tar_file(&b, "y.txt", "next");
        tar_end(&b);
        expect_bad(&b, cases[i].part);
        bytes_free(&b);
    }
    struct bytes b = {0};
    tar_member(&b, "x", "16 path=a\0b.jpg\n", 16, 'x');
    tar_file(&b, "y", "");
    tar_end(&b);
    expect_bad(&b, "its name has a byte 0 after \"a\"");
    b.size = 0;
    tar_member(&b, "x", "12 path=a.b\n", 12, 'x');
    tar_member(&b, "x", "12 path=a.c\n", 12, 'x');
    expect_bad(&b, "two extended headers of one kind");
    b.size = 0;
    tar_member(&b, "x", "12 path=a.b\n", 12, 'x');
    tar_end(&b);
    expect_bad(&b, "ends after the extended header of this member");
    b.size = 0;
    uint8_t *large = calloc(1, 2 << 20);
    tar_member(&b, "x", large, 2 << 20, 'x');
    free(large);
    expect_bad(&b, "an extended header has 2097152 bytes: expected at most 1048576");
    b.size = 0;
    add_archive(&b);
    add_archive(&b);
    expect_bad(&b, "data after the end of the archive (several archives in one file?)");
    bytes_free(&b);
}

/* ---- names ---- */

static void names_are_split_at_the_first_dot_of_the_base(void **state)
{
    (void)state;

    static const struct {
        const char *name, *key, *extension;
    } cases[] = {
        {"a.jpg", "a", "jpg"},
        {"d.e/a.jpg", "d.e/a", "jpg"},
        {"a.seg.png", "a", "seg.png"},
        {"./a.x", "./a", "x"},
        {"a", NULL, NULL},
        {".a.jpg", NULL, NULL},
        {"d.e/a", NULL, NULL},
        {"a.", NULL, NULL},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_tar_name n;
        bool taken = cw_tar_split(cases[i].name, strlen(cases[i].name), &n);
        assert_int_equal(taken, cases[i].key != NULL);
        if (taken) {
            assert_true(n.key_size == strlen(cases[i].key) && memcmp(n.key, cases[i].key, n.key_size) == 0);
            assert_true(n.extension_size == strlen(cases[i].extension) &&
                        memcmp(n.extension, cases[i].extension, n.extension_size) == 0);
        }
    }
}

/* ---- .npy ---- */

static size_t put_npy(uint8_t *out, const char *header, const void *data, size_t size)
{
    size_t n = strlen(header);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)n;
    out[9] = 0;
    memcpy(out + 10, header, n);
    memcpy(out + 10 + n, data, size);
    return 10 + n + size;
}

static void numpy_files_are_read(void **state)
{
    (void)state;

    static const struct {
        const char *header;
        size_t size;
        const char *part;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24, NULL},
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (24,), }\n", 24, NULL},
        {"{\"shape\": (), 'descr': '<i8', 'fortran_order': False}", 8, NULL},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }\n", 0, NULL},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, "dtype \">f4\""},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, "dtype \"<U4\""},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n", 24, "structured"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", 24, "Fortran"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 23, "does not match its shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }\n", 24, "malformed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999, 9999999999999999, "
         "9999999999999999), }\n",
         24, "does not match its shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1), }\n", 4, "6 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }\n", 24, "malformed"},
        {"{'descr': '<f4', 'shape': (2, 3), }\n", 24, "lacks"},
        {"{'descr': '<f4', 'descr': '<f4'}\n", 24, "malformed"},
        {"", 24, "malformed"},
    };

    static const uint8_t data[64] = {1};
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        uint8_t bytes[300];
        size_t n = put_npy(bytes, cases[i].header, data, cases[i].size);
        for (size_t cut = 0; cut <= n; cut++) {
            uint8_t *exact = malloc(cut); /* its end is watched by ASan */
            struct cw_npy npy;
            char why[CW_NPY_WHY] = "";
            memcpy(exact, bytes, cut);
            bool good = cw_npy_parse(exact, cut, &npy, why);
            if (cut < n)
                assert_true(!good && why[0]);
            else if (cases[i].part)
                assert_contains(why, cases[i].part);
            else
                assert_true(good && npy.size == cases[i].size);
            free(exact);
        }
    }
}

/* ---- the source ---- */

static void samples_become_components(void **state)
{
    (void)state;
    struct bytes b = {0};
    uint8_t npy[300];
    size_t n = put_npy(npy, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }\n",
                       (int16_t[]){5, -6}, 4);
    tar_file(&b, "x/0.PNG", "picture 0");
    tar_file(&b, "x/0.cls", " 7\n");
    tar_member(&b, "x/0.mask.npy", npy, n, '0');
    tar_file(&b, "x/0.box.txt", "1 2.5\n3e0\t-4 ");
    tar_file(&b, "x/1.jpg", "picture 1");
    tar_file(&b, "x/1.png", "not this one");
    tar_file(&b, "x/1.cls", "255");
    tar_member(&b, "x/1.mask.npy", npy, n, '0');
    tar_file(&b, "x/1.box.txt", "0 0 0 0");
    tar_file(&b, "x/1.boxes.txt", "1 2 3 4");
    tar_end(&b);
    temp_file("a.tar", b.data, b.size);
    struct bytes packed = {0};
    bytes_add_deflated(&packed, b.data, b.size, 31);
    temp_file("a.tar.gz", packed.data, packed.size);
    bytes_free(&packed);
    bytes_free(&b);
    static const char *const names[] = {"a.tar", "a.tar.gz"};
    for (int i = 0; i < 2; i++) {
        struct run r;
        char chain[600];
        snprintf(
            chain, sizeof(chain),
            "{\"op\": \"tar\", \"files\": \"%s\", \"components\": {\"image\": {\"key\": \"jpg;png\", "
            "\"dtype\": \"bytes\"}, \"cls\": \"uint8\", \"__key__\": \"bytes\", \"m\": {\"key\": "
            "\"mask.npy\", "
            "\"dtype\": \"int16\", \"shape\": [2, 1]}, \"box.txt\": {\"dtype\": \"float32\", \"shape\": "
            "[4]}, \"b\": {\"key\": \"boxes.txt\", \"dtype\": \"int8\", \"shape\": [2], "
            "\"variable\": true}, \"t\": {\"key\": \"txt\", \"dtype\": \"bytes\", \"default\": \"none\"}}}",
            names[i]);
        assert_int_equal(run_open(&r, chain), 0);
        assert_int_equal(r.source->n_records, 2);
        assert_int_equal(r.source->random_access, i == 0);
        assert_int_equal(run_rows(&r, (uint64_t[]){1, 0}, 2), 0);
        assert_string_equal(fault_of(&r, 0), "");
        assert_true(r.b.all_ok);
        expect_text(&r, "image", 0, "picture 1");
        expect_text(&r, "image", 1, "picture 0");
        expect_text(&r, "__key__", 0, "x/1");
        expect_text(&r, "t", 0, "none");
        assert_int_equal(*(uint8_t *)value(&r, "cls", 0).data, 255);
        assert_int_equal(*(uint8_t *)value(&r, "cls", 1).data, 7);
        assert_memory_equal(value(&r, "m", 1).data, ((int16_t[]){5, -6}), 4);
        assert_memory_equal(value(&r, "box.txt", 1).data, ((float[]){1, 2.5f, 3, -4}), 16);
        assert_int_equal(value(&r, "b", 0).dims[0], 2);
        assert_int_equal(value(&r, "b", 1).dims[0], 0);
        run_deinit(&r);
    }
}

static void samples_say_what_is_wrong(void **state)
{
    (void)state;

    static const struct {
        const char *extension, *text, *why;
    } cases[] = {
        {"cls", "256", "sample \"0\": \"cls\" holds \"256\", which is out of range for uint8"},
        {"cls", "1.5", "sample \"1\": \"cls\" holds \"1.5\", which is not an integer for uint8"},
        {"cls", "seven", "sample \"2\": \"cls\" holds \"seven\", which is no number for uint8"},
        {"cls", "", "sample \"3\": \"cls\" holds 0 numbers, expected 1"},
        {"cls", "1 2", "sample \"4\": \"cls\" holds 2 numbers, expected 1"},
        {"txt", "1", "sample \"5\": it has no file \"cls\", and there is no default"},
        {"CLS", "9", ""},
    };
    struct bytes b = {0};
    uint64_t rows[CW_COUNT_OF(cases) + 1];
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        char name[20];
        snprintf(name, sizeof(name), "%zu.%s", i, cases[i].extension);
        tar_file(&b, name, cases[i].text);
        rows[i] = i;
    }
    rows[7] = 7;
    tar_file(&b, "7.cls", "1");
    tar_file(&b, "7.cls", "2");
    tar_end(&b);
    temp_file("bad.tar", b.data, b.size);
    bytes_free(&b);
    struct run r;
    assert_int_equal(
        run_open(&r, "{\"op\": \"tar\", \"files\": \"bad.tar\", \"components\": {\"cls\": \"uint8\"}}"), 0);
    assert_int_equal(run_rows(&r, rows, 8), 0);
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++)
        assert_string_equal(fault_of(&r, i), cases[i].why);
    assert_string_equal(fault_of(&r, 7), "sample \"7\": it has two files \"cls\"");
    run_deinit(&r);
    assert_int_equal(
        run_open(&r, "{\"op\": \"tar\", \"files\": \"bad.tar\", \"components\": {\"cls.npy\": \"uint8\"}}"),
        0);
    run_deinit(&r);
    expect_error("{\"op\": \"tar\", \"files\": \"bad.tar\", \"components\": {\"__key__\": \"uint8\"}}",
                 CW_E_PIPELINE, "\"bytes\" as dtype of \"__key__\"");
    expect_error("{\"op\": \"tar\", \"files\": \"bad.tar\", \"components\": {}}", CW_E_PIPELINE,
                 "1 to 64 components");
    expect_error("{\"op\": \"tar\", \"files\": \"bad.tar\", \"components\": {\"a\": {\"dtype\": \"bytes\", "
                 "\"what\": 1}}}",
                 CW_E_PIPELINE, "for the component \"a\"");
}

static void file_key_is_as_documented(void **state)
{
    (void)state;
    struct bytes b = {0}, content = {0}, key = {0};
    struct run r;
    char long_text[1000];
    memset(long_text, 'x', sizeof(long_text));
    size_t dir = tar_member(&b, "d/", "", 0, '5'), pax = tar_member(&b, "p", "12 path=a.b\n", 12, 'x'),
           file = tar_member(&b, "cut", long_text, 1000, '0');
    tar_end(&b);
    bytes_add(&content, b.data + dir, 512);
    bytes_add(&content, b.data + pax, 512 + 12);
    bytes_add(&content, b.data + file, 512 + 512);
    bytes_add(&key, "key.tar", 8);
    bytes_add_u64(&key, b.size);
    bytes_add_u64(&key, cw_hash64(content.data, content.size));
    temp_file("key.tar", b.data, b.size);
    assert_int_equal(
        run_open(&r, "{\"op\": \"tar\", \"files\": \"key.tar\", \"components\": {\"b\": \"bytes\"}}"), 0);
    struct cw_record_id id;
    r.source->ops->ids(r.source, (uint64_t[]){0}, 1, &id);
    assert_int_equal(id.file_key, cw_hash64(key.data, key.size));
    assert_int_equal(r.source->source_bytes, b.size - 512 - 1024);
    run_deinit(&r);
    bytes_free(&b);
    bytes_free(&content);
    bytes_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_samples_in_any_pieces),
        cmocka_unit_test(a_plain_file_is_read_sparsely_and_gives_the_same),
        cmocka_unit_test(long_names_of_gnu_and_pax),
        cmocka_unit_test(sizes_of_pax_and_in_base_256),
        cmocka_unit_test(every_cut_is_an_error),
        cmocka_unit_test(every_flipped_bit_of_a_header_is_an_error),
        cmocka_unit_test(hostile_members_are_refused),
        cmocka_unit_test(names_are_split_at_the_first_dot_of_the_base),
        cmocka_unit_test(numpy_files_are_read),
        cmocka_unit_test(samples_become_components),
        cmocka_unit_test(samples_say_what_is_wrong),
        cmocka_unit_test(file_key_is_as_documented),
    };
    return cmocka_run_group_tests_name("tar", tests, temp_make, temp_remove);
}
