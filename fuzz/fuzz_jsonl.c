/*
 * Fuzzes text files and JSON lines. The first byte chooses the compression. The rest is indexed as text, and
 * each line is read back through the index and parsed as JSON, with all its strings, arrays and numbers.
 * jansson must accept the same lines as objects.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/json.h"
#include "formats/lines.h"
#include "formats/number.h"
#include "dataset/segment.h"
#include "storage/file.h"

#define MAX_TOTAL ((uint64_t)4 << 20) /* of decompressed lines read back */
#define MOST_MEMORY ((size_t)8 << 20) /* bytes that decompression may take */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

static void use_value(const struct cw_json_value *v)
{
    if (v->kind == CW_JSON_STRING) {
        char *out = malloc(v->size); /* a heap block, so that ASan finds reads past its end */
        size_t n = cw_json_unescape(v, out);
        if (n > v->size || !cw_json_string_is(v, out, n))
            abort();
        free(out);
    } else if (v->kind == CW_JSON_NUMBER) {
        uint64_t out;
        for (enum cw_dtype dtype = 0; dtype < CW_BYTES; dtype++)
            if (cw_number_parse(v->text, v->size, dtype, &out) == CW_NUMBER_SYNTAX &&
                v->size <= CW_NUMBER_MAX)
                abort(); /* every number of JSON must be accepted */
        sink += out;
    } else if (v->kind == CW_JSON_ARRAY) {
        struct cw_json_items items = cw_json_items(v);
        struct cw_json_value item;
        while (cw_json_item(&items, &item))
            use_value(&item);
    }
}

static bool use_object(const char *text, size_t size)
{
    struct cw_json_walk w;
    struct cw_json_value key, value;
    int r = cw_json_open(&w, text, size);
    while (r >= 0 && (r = cw_json_member(&w, &key, &value)) > 0) {
        use_value(&key);
        use_value(&value);
    }
    if (r < 0 && (!w.why || w.where > size))
        abort();
    return r == 0;
}

/* Both parsers must accept the same texts, except for numbers out of range, NaN and Infinity, deep nesting,
 * and the byte 0, which jansson sometimes skips. */
static void compare(const char *text, size_t size)
{
    json_error_t e;
    json_t *theirs = json_loadb(text, size, JSON_ALLOW_NUL, &e);
    bool ours = use_object(text, size);
    bool special = memmem(text, size, "NaN", 3) || memmem(text, size, "Infinity", 8) ||
                   memmem(text, size, "[[[[", 4) || memchr(text, 0, size);
    if (!special && json_is_object(theirs) != ours &&
        !(!theirs && json_error_code(&e) == json_error_numeric_overflow)) {
        fprintf(stderr, "ours %d, jansson: %s: %.*s\n", ours, theirs ? "good" : e.text, (int)size, text);
        abort();
    }
    json_decref(theirs);
}

static void read_back(const struct cw_segment *s, struct cw_file *file)
{
    uint64_t total = 0;
    struct cw_decompress *z = NULL; /* one stream reads all records */
    for (uint64_t i = 0; i < s->n_records && total < MAX_TOTAL; i += 1 + s->n_records / 64) {
        struct cw_span span = cw_segment_span(s, i);
        uint8_t *line = malloc(span.size);
        if (cw_segment_read(s, file, &i, 1, &line, &z, NULL) < 0)
            abort(); /* every indexed record must be readable */
        size_t n = cw_line_trim(line, span.size);
        if (n != s->lengths[i] || memchr(line, '\n', n))
            abort();
        char *exact = malloc(n);
        memcpy(exact, line, n);
        compare(exact, n);
        total += span.size;
        free(exact);
        free(line);
    }
    cw_decompress_free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct cw_stat st;
    struct cw_segment s, again;
    struct cw_error err = {0};
    struct cw_file *file;
    if (cw_stat(path, &st, NULL) < 0)
        abort();
    struct cw_segment_input in = {
        .format = CW_FORMAT_LINES,
        .path = path,
        .relative_path = "fuzz",
        .file = st,
        .codec = (enum cw_codec)(data[0] % CW_CODECS),
        .memory = MOST_MEMORY,
    };
    if (cw_segment_build(&in, &s, &err) == 0) {
        if (cw_segment_attach(s.base, s.size, &again) < 0 || cw_file_new(path, &st, &file, NULL) < 0)
            abort();
        read_back(&s, file);
        cw_file_free(file);
        cw_segment_deinit(&s);
    } else if ((err.status != CW_E_DATA && err.status != CW_E_BUDGET) || !err.message[0] ||
               in.codec == CW_CODEC_PLAIN) {
        abort(); /* an uncompressed file is always a text; a bad compressed one has an error with a message */
    }
    close(fd);
    return 0;
}
