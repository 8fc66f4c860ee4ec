/* lookup: words to their numbers in a vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/macro.h"
#include "pipeline/content.h"

struct lookup_word {
    const char *text; /* owned by the attribute, or in lookup.file; NULL: the place is free */
    size_t size;
    int64_t number;
};

struct lookup {
    int64_t absent;            /* result for words that are not in the vocabulary */
    size_t mask;               /* number of places - 1; a power of two, at least twice the words */
    struct lookup_word *words; /* hash table with open addressing */
    char *file;                /* the content of the attribute `file`, or NULL */
};

static void lookup_free(void *state)
{
    struct lookup *s = state;
    if (s) {
        free(s->words);
        free(s->file);
    }
    free(s);
}

/* Returns the place of a word, or the free place where it would stand. */
static struct lookup_word *lookup_find(const struct lookup *s, const void *text, size_t size)
{
    size_t at = (size_t)cw_hash64(text, size);
    struct lookup_word *w;
    while ((w = &s->words[at & s->mask])->text &&
           (w->size != size || (size && memcmp(w->text, text, size) != 0)))
        at++;
    return w;
}

static int lookup_add(const struct cw_op *op, const char *text, size_t size, size_t number,
                      struct cw_error *err)
{
    const struct lookup *s = op->state;
    struct lookup_word *w = lookup_find(s, text, size);
    if (w->text)
        return cw_attr_error(op, s->file ? "file" : "vocabulary", err,
                             "different words; word %zu is also word %lld: \"%.*s\"", number,
                             (long long)w->number, (int)CW_MIN(size, 60u), text);
    *w = (struct lookup_word){text, size, (int64_t)number};
    return 0;
}

/* Makes an empty hash table for n words. */
static int lookup_room(struct lookup *s, size_t n, struct cw_error *err)
{
    size_t places = 2;
    while (places < 2 * n)
        places *= 2;
    s->mask = places - 1;
    s->words = calloc(places, sizeof(*s->words));
    return s->words ? 0 : cw_error_nomem(err, places * sizeof(*s->words), "a vocabulary");
}

/* Adds the words of the attribute `file`, one on each line. */
static int lookup_add_file(struct cw_bind *b, const struct cw_op *op, struct cw_error *err)
{
    struct lookup *s = op->state;
    size_t size, n = 1, number = 0;
    int r = cw_content_read(cw_bind_pipeline(b), op, "file", &s->file, &size, err);
    for (size_t i = 0; r == 0 && i < size; i++)
        n += s->file[i] == '\n';
    if (r == 0)
        r = lookup_room(s, n, err);
    for (size_t at = 0; r == 0 && at < size; number++) {
        const char *line = s->file + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;
        at += length + 1;
        length -= length > 0 && line[length - 1] == '\r';
        r = lookup_add(op, line, length, number, err);
    }
    return r == 0 && number == 0 ? cw_attr_error(op, "file", err, "a file with at least one word") : r;
}

static int lookup_add_words(const struct cw_op *op, struct cw_error *err)
{
    const json_t *words = cw_attr_json(op, "vocabulary"), *word;
    int r = lookup_room(op->state, json_array_size(words), err);
    for (size_t i = 0; r == 0 && (word = json_array_get(words, i)); i++)
        r = lookup_add(op, json_string_value(word), json_string_length(word), i, err);
    return r;
}

static int lookup_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *component = cw_attr_string(op, "component");
    bool file = *cw_attr_string(op, "file");
    struct cw_type type;
    char text[160];
    int r = cw_bind_read(b, component, &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "bytes, but \"%s\" is %s", component,
                             cw_type_print(&type, text));
    if (file == (cw_attr_len(op, "vocabulary") > 0))
        return cw_attr_error(op, file ? "file" : "vocabulary", err, "either `vocabulary` or `file`");
    struct lookup *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a vocabulary");
    s->absent = cw_attr_int(op, "default");
    r = file ? lookup_add_file(b, op, err) : lookup_add_words(op, err);
    if (r < 0)
        return r;
    type.dtype = CW_INT64;
    r = cw_bind_write(b, component, &type, err);
    return CW_MIN(r, 0);
}

static int lookup_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct lookup *s = op->state;
    int r = cw_block_dense(block, op->out[0].value, &op->out[0].type, err);
    CW_ROWS_OK(i, block, r == 0)
    {
        struct cw_tensor t = cw_in(op, block, 0, i);
        const struct lookup_word *w = lookup_find(s, t.data, t.size);
        ((int64_t *)block->columns[op->out[0].value].data)[i] = w->text ? w->number : s->absent;
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "a bytes component"},
    {.name = "vocabulary",
     .kind = CW_ATTR_STRINGS,
     .def = "[]",
     .doc = "the words, whose numbers are 0, 1, ..."},
    {.name = "file",
     .kind = CW_ATTR_STRING,
     .def = "\"\"",
     .path = true,
     .content = true,
     .doc = "instead of `vocabulary`: the path of a text file with a word on each line"},
    {.name = "default", .kind = CW_ATTR_INT, .def = "-1", .doc = "the result for any other word"},
    {0},
};

const struct cw_op_desc cw_op_lookup = {
    .name = "lookup",
    .summary = "replaces a word (bytes) by its number in a vocabulary (int64)",
    .doc =
        "Words are compared byte by byte. Only a change of the file's content makes another pipeline, not a "
        "change of its path. Without a vocabulary, `hash(word) % n` in an expression gives "
        "numbers below n (docs/expressions.md).",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = lookup_bind,
    .run = lookup_run,
    .free_state = lookup_free,
};
