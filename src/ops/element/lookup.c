/* lookup: words to their numbers in a vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/macro.h"
#include "pipeline/op.h"

struct lookup_word {
    const char *text; /* owned by the attribute; NULL: the place is free */
    size_t size;
    int64_t number;
};

struct lookup {
    int64_t absent;            /* result for words that are not in the vocabulary */
    size_t mask;               /* number of places - 1; a power of two, at least twice the words */
    struct lookup_word *words; /* hash table with open addressing */
};

static void lookup_free(void *state)
{
    struct lookup *s = state;
    if (s)
        free(s->words);
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

static int lookup_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *component = cw_attr_string(op, "component");
    size_t n = cw_attr_len(op, "vocabulary"), places = 2;
    struct cw_type type;
    char text[160];
    int r = cw_bind_read(b, component, &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "bytes, but \"%s\" is %s", component,
                             cw_type_print(&type, text));
    while (places < 2 * n)
        places *= 2;
    struct lookup *s = op->state = calloc(1, sizeof(*s));
    if (!s || !(s->words = calloc(places, sizeof(*s->words))))
        return cw_error_nomem(err, places * sizeof(*s->words), "a vocabulary");
    s->mask = places - 1;
    s->absent = cw_attr_int(op, "default");
    const json_t *words = cw_attr_json(op, "vocabulary");
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_array_get(words, i);
        struct lookup_word *w = lookup_find(s, json_string_value(word), json_string_length(word));
        if (w->text)
            return cw_attr_error(op, "vocabulary", err,
                                 "different words; word %zu is also word %lld: \"%.60s\"", i,
                                 (long long)w->number, w->text);
        *w = (struct lookup_word){json_string_value(word), json_string_length(word), (int64_t)i};
    }
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
     .len_min = 1,
     .doc = "the words, whose numbers are 0, 1, ..."},
    {.name = "default", .kind = CW_ATTR_INT, .def = "-1", .doc = "the result for any other word"},
    {0},
};

const struct cw_op_desc cw_op_lookup = {
    .name = "lookup",
    .summary = "replaces a word (bytes) by its number in a vocabulary (int64)",
    .doc = "Words are compared byte by byte. Without a vocabulary, `hash(word) % n` in an expression gives "
           "numbers below n (docs/expressions.md).",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = lookup_bind,
    .run = lookup_run,
    .free_state = lookup_free,
};
