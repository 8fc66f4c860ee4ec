/*
 * Positions of a pipeline against docs/semantics.md (sections 3 to 5) written down naively: random chains of
 * index operators over made-up sources, every list spelled out, and asked for in pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/macro.h"
#include "base/permutation.h"
#include "base/philox.h"
#include "base/text.h"
#include "dataset/sequence.h"
#include "sample.h"

/* ---- made-up sources ---- */

struct fake {
    struct cw_source base;
    uint64_t ends[];
};

static const struct cw_attr_def fake_attrs[] = {
    {.name = "n", .kind = CW_ATTR_INT},
    {.name = "chunk", .kind = CW_ATTR_INT, .def = "1024"}, /* 0: sizes that differ */
    {.name = "random", .kind = CW_ATTR_BOOL, .def = "true"},
    {.name = "single", .kind = CW_ATTR_BOOL, .def = "false"},
    {.name = "bytes", .kind = CW_ATTR_INT, .def = "8"},
    {.name = "width", .kind = CW_ATTR_INT, .def = "1"},
    {0},
};

static int fake_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type = {.dtype = CW_UINT8, .ndim = 1, .dims = {cw_attr_int(op, "width")}};
    int r = cw_bind_write(b, "value", &type, err);
    return r < 0 ? r : 0;
}

static void fake_free(struct cw_source *s)
{
    free(s);
}
static const struct cw_source_ops fake_source_ops = {.free = fake_free};

/* Sizes of chunks: 1, 4, 9, 2, 7, ... */
static uint64_t fake_chunk(uint64_t k)
{
    return (k * k + 2 * k + 1) % 11 + (k % 3 == 2);
}

static int fake_open(const struct cw_op *op, const struct cw_source_env *env CW_UNUSED,
                     struct cw_source **ret, struct cw_error *err CW_UNUSED)
{
    uint64_t n = (uint64_t)cw_attr_int(op, "n"), chunk = (uint64_t)cw_attr_int(op, "chunk");
    struct fake *f = calloc(1, sizeof(*f) + (chunk ? 0 : n + 1) * sizeof(f->ends[0]));
    assert_non_null(f);
    f->base = (struct cw_source){
        .ops = &fake_source_ops,
        .n_records = n,
        .source_bytes = n * (uint64_t)cw_attr_int(op, "bytes"),
        .random_access = cw_attr_bool(op, "random"),
        .one_file_per_record = cw_attr_bool(op, "single"),
        .snapshot = n,
    };
    if (chunk) {
        f->base.chunk_records = chunk;
        f->base.n_chunks = (n + chunk - 1) / chunk;
    } else {
        uint64_t at = 0;
        for (uint64_t k = 0; at < n; k++) {
            if (fake_chunk(k) == 0)
                continue;
            at = CW_MIN(n, at + fake_chunk(k));
            f->ends[f->base.n_chunks++] = at;
        }
        f->base.chunk_ends = f->ends;
    }
    *ret = &f->base;
    return 0;
}

static const struct cw_op_desc fake = {
    .name = "fake", .kind = CW_OP_SOURCE, .attrs = fake_attrs, .bind = fake_bind, .open = fake_open};
extern const struct cw_op_desc cw_op_batch, cw_op_concat, cw_op_mix, cw_op_repeat, cw_op_shuffle, cw_op_skip,
    cw_op_take;
static const struct cw_op_desc *const ops[] = {&cw_op_batch,  &cw_op_concat,  &fake,       &cw_op_mix,
                                               &cw_op_repeat, &cw_op_shuffle, &cw_op_skip, &cw_op_take};
static const struct cw_op_table table = {ops, CW_COUNT_OF(ops)};

/* ---- the naive computation ---- */

#define MAX_LIST 200000

struct list {
    struct cw_ref *refs;
    size_t n;
};

struct sizes {
    uint64_t *size;
    size_t n;
};

struct naive {
    const struct cw_pipeline *p;
    uint64_t seed, epoch, window;
};

static void list_add(struct list *l, struct cw_ref r)
{
    if (!l->refs)
        l->refs = malloc(MAX_LIST * sizeof(*l->refs));
    assert_true(l->n < MAX_LIST);
    l->refs[l->n++] = r;
}

static void sizes_add(struct sizes *s, uint64_t size)
{
    if (!s->size)
        s->size = malloc(MAX_LIST * sizeof(*s->size));
    assert_true(s->n < MAX_LIST);
    if (size)
        s->size[s->n++] = size;
}

static bool is(const struct cw_node *node, const char *name)
{
    return strcmp(node->desc->name, name) == 0;
}

static int64_t attr(const struct cw_node *node, const char *name)
{
    return json_integer_value(json_object_get(node->attrs, name));
}

static unsigned leaves(const struct cw_chain *c)
{
    if (!c->nodes[0].n_inputs)
        return 1;
    unsigned n = 0;
    for (size_t i = 0; i < c->nodes[0].n_inputs; i++)
        n += leaves(&c->nodes[0].inputs[i]);
    return n;
}

static void all(const struct cw_chain *c, const char *what, bool *ret)
{
    if (!c->nodes[0].n_inputs)
        *ret &= json_is_true(json_object_get(c->nodes[0].attrs, what));
    for (size_t i = 0; i < c->nodes[0].n_inputs; i++)
        all(&c->nodes[0].inputs[i], what, ret);
}

static uint64_t key_of(const struct naive *x, const struct cw_node *node, uint64_t pass, uint64_t level,
                       uint64_t window)
{
    char salt[40];
    bool reshuffle = json_is_true(json_object_get(node->attrs, "reshuffle"));
    json_int_t own = json_integer_value(json_object_get(node->attrs, "seed"));
    uint64_t head[2] = {own < 0 ? x->seed : (uint64_t)own, reshuffle ? x->epoch : 0},
             tail[3] = {own < 0 || reshuffle ? pass : 0, level, window};
    uint8_t bytes[100];
    size_t n = (size_t)(own < 0 ? snprintf(salt, sizeof(salt), "shuffle/%u", node->occurrence)
                                : snprintf(salt, sizeof(salt), "shuffle"));
    memcpy(bytes, head, 16);
    memcpy(bytes + 16, salt, n);
    memcpy(bytes + 16 + n, tail, 24);
    return cw_hash64(bytes, 40 + n);
}

/* by_table: whatever n is, as of chunks and windows. */
static uint32_t *permutation(uint64_t key, size_t n, bool by_table)
{
    uint32_t *a = malloc((n + 1) * sizeof(*a));
    for (uint32_t i = 0; i < n; i++)
        a[i] = i;
    if (n > CW_PERMUTATION_TABLE && !by_table) {
        struct cw_permutation p;
        cw_permutation_init(&p, key, n);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t at = i;
            cw_permutation_map(&p, &at, 1);
            a[i] = (uint32_t)at;
        }
        return a;
    }
    for (size_t i = n; i-- > 1;) {
        size_t t = n - 1 - i;
        uint32_t w[4];
        cw_philox(key, (const uint32_t[4]){(uint32_t)(t / 4), 0, 0, 1}, w);
        size_t j = cw_integer(w[t % 4], i + 1);
        uint32_t swap = a[i];
        a[i] = a[j];
        a[j] = swap;
    }
    return a;
}

static struct list eval(const struct naive *x, const struct cw_chain *c, size_t end, unsigned leaf,
                        uint64_t pass);

static uint64_t length(const struct naive *x, const struct cw_chain *c, size_t end, unsigned leaf)
{
    struct list l = eval(x, c, end, leaf, 0);
    free(l.refs);
    return l.n;
}

/* Whether a shuffle of a chain permutes single records. */
static bool by_record(const struct cw_chain *c, const struct cw_node *node)
{
    bool single = true, random = true;
    all(c, "single", &single);
    all(c, "random", &random);
    return single || (random && strcmp(json_string_value(json_object_get(node->attrs, "by")), "record") == 0);
}

/* Chunks of what the first `end` operators of a chain give. */
static struct sizes chunks(const struct naive *x, const struct cw_chain *c, size_t end, unsigned leaf)
{
    const struct cw_node *node = &c->nodes[end - 1];
    struct sizes out = {0};
    sizes_add(&out, 0);
    if (is(node, "mix")) {
        for (uint64_t i = 0, n = length(x, c, end, leaf); i < n; i += 1024)
            sizes_add(&out, CW_MIN(n - i, UINT64_C(1024)));
        return out;
    }
    if (node->n_inputs) {
        for (size_t i = 0; i < node->n_inputs; i++) {
            struct sizes in = chunks(x, &node->inputs[i], node->inputs[i].n, leaf);
            for (size_t k = 0; k < in.n; k++)
                sizes_add(&out, in.size[k]);
            free(in.size);
            leaf += leaves(&node->inputs[i]);
        }
        return out;
    }
    if (is(node, "fake")) {
        uint64_t n = (uint64_t)attr(node, "n"), chunk = (uint64_t)attr(node, "chunk"), at = 0;
        for (uint64_t k = 0; at < n; k++) {
            uint64_t size = CW_MIN(chunk ? chunk : fake_chunk(k), n - at);
            sizes_add(&out, size);
            at += size;
        }
        return out;
    }
    struct sizes in = chunks(x, c, end - 1, leaf);
    uint64_t n = length(x, c, end - 1, leaf);
    if (is(node, "shuffle")) {
        if (by_record(c, node)) {
            for (uint64_t i = 0; i < n; i += 1024)
                sizes_add(&out, CW_MIN(n - i, UINT64_C(1024)));
            free(in.size);
            return out;
        }
        free(out.size);
        return in;
    }
    if (is(node, "repeat")) {
        for (int64_t o = 0; o < attr(node, "count"); o++)
            for (size_t k = 0; k < in.n; k++)
                sizes_add(&out, in.size[k]);
    } else { /* take and skip cut */
        uint64_t count = CW_MIN((uint64_t)attr(node, "count"), n), from = is(node, "skip") ? count : 0,
                 to = is(node, "skip") ? n : count, at = 0;
        for (size_t k = 0; k < in.n; at += in.size[k++]) {
            uint64_t low = CW_MAX(at, from), high = CW_MIN(at + in.size[k], to);
            sizes_add(&out, high > low ? high - low : 0);
        }
    }
    free(in.size);
    return out;
}

static struct list shuffle(const struct naive *x, const struct cw_chain *c, size_t end, unsigned leaf,
                           uint64_t pass)
{
    const struct cw_node *node = &c->nodes[end - 1];
    struct list in = eval(x, c, end - 1, leaf, pass), out = {0};
    uint32_t *order;
    if (by_record(c, node)) {
        order = permutation(key_of(x, node, pass, 0, 0), in.n, false);
        for (size_t i = 0; i < in.n; i++)
            list_add(&out, in.refs[order[i]]);
        free(order);
        free(in.refs);
        return out;
    }
    struct sizes s = chunks(x, c, end, leaf); /* what it permutes */
    uint64_t *begin = calloc(s.n + 1, sizeof(*begin));
    for (size_t k = 0; k < s.n; k++)
        begin[k + 1] = begin[k] + s.size[k];
    assert_int_equal(begin[s.n], in.n);
    order = permutation(key_of(x, node, pass, 0, 0), s.n, true);
    for (size_t k = 0; k < s.n; k++)
        for (uint64_t i = begin[order[k]]; i < begin[order[k] + 1]; i++)
            list_add(&out, in.refs[i]);
    free(order);
    for (uint64_t w = 0; w * x->window < out.n; w++) {
        size_t from = w * x->window, n = CW_MIN(x->window, out.n - from);
        order = permutation(key_of(x, node, pass, 1, w), n, true);
        memcpy(in.refs, out.refs + from, n * sizeof(*in.refs));
        for (size_t i = 0; i < n; i++)
            out.refs[from + i] = in.refs[order[i]];
        free(order);
    }
    free(begin);
    free(s.size);
    free(in.refs);
    return out;
}

/* The input whose turn is turn p, counted from 1; the weights are integers. */
static size_t turn(const struct cw_node *node, uint64_t p, const size_t *counts)
{
    const json_t *weights = json_object_get(node->attrs, "weights"), *weight;
    int64_t total = 0, s = node->n_inputs > 1 ? 2 * (int64_t)node->n_inputs - 2 : 2, soonest = INT64_MAX;
    size_t i, ret = SIZE_MAX;
    json_array_foreach((json_t *)weights, i, weight) total += json_integer_value(weight);
    json_array_foreach((json_t *)weights, i, weight)
    {
        int64_t w = json_integer_value(weight), c = (int64_t)counts[i];
        if (((int64_t)p * w - c * total) * s < total)
            continue;
        int64_t due = 0; /* by trying */
        while ((due * w - c * total) * s < total * (s - 1))
            due++;
        ret = due < soonest ? i : ret;
        soonest = CW_MIN(soonest, due);
    }
    return ret;
}

static struct list mix(const struct naive *x, const struct cw_node *node, unsigned leaf, uint64_t pass)
{
    bool first = strcmp(json_string_value(json_object_get(node->attrs, "stop")), "first") == 0;
    size_t n = node->n_inputs, counts[8] = {0}, before[8] = {0}, left = n;
    unsigned first_leaf[8];
    struct list in[8], out = {0};
    assert_true(n <= 8);
    for (size_t i = 0; i < n; leaf += leaves(&node->inputs[i++])) {
        first_leaf[i] = leaf;
        in[i] = eval(x, &node->inputs[i], node->inputs[i].n, leaf, pass);
        assert_true(first || in[i].n > 0);
    }
    for (uint64_t p = 1; left > 0; p++) {
        size_t i = turn(node, p, counts);
        if (first && counts[i] == in[i].n)
            break;
        if (counts[i] - before[i] == in[i].n) {
            before[i] = counts[i];
            free(in[i].refs);
            in[i] = eval(x, &node->inputs[i], node->inputs[i].n, first_leaf[i], counts[i] / in[i].n);
        }
        list_add(&out, in[i].refs[counts[i]++ - before[i]]);
        left -= !first && counts[i] == in[i].n;
    }
    for (size_t i = 0; i < n; i++)
        free(in[i].refs);
    return out;
}

static struct list eval(const struct naive *x, const struct cw_chain *c, size_t end, unsigned leaf,
                        uint64_t pass)
{
    const struct cw_node *node = &c->nodes[end - 1];
    struct list out = {0};
    if (is(node, "mix"))
        return mix(x, node, leaf, pass);
    if (node->n_inputs) {
        for (size_t i = 0; i < node->n_inputs; i++) {
            struct list in = eval(x, &node->inputs[i], node->inputs[i].n, leaf, pass);
            for (size_t k = 0; k < in.n; k++)
                list_add(&out, in.refs[k]);
            free(in.refs);
            leaf += leaves(&node->inputs[i]);
        }
    } else if (is(node, "fake")) {
        for (int64_t i = 0; i < attr(node, "n"); i++)
            list_add(&out, (struct cw_ref){.row = (uint64_t)i, .leaf = leaf, .pass = (uint32_t)pass});
    } else if (is(node, "shuffle")) {
        return shuffle(x, c, end, leaf, pass);
    } else if (is(node, "repeat")) {
        int64_t count = attr(node, "count");
        for (int64_t o = 0; o < count; o++) {
            struct list in = eval(x, c, end - 1, leaf, (uint64_t)o + (uint64_t)count * pass);
            for (size_t k = 0; k < in.n; k++)
                list_add(&out, in.refs[k]);
            free(in.refs);
        }
    } else if (is(node, "batch")) {
        return eval(x, c, end - 1, leaf, pass);
    } else {
        struct list in = eval(x, c, end - 1, leaf, pass);
        size_t count = CW_MIN((size_t)attr(node, "count"), in.n);
        for (size_t k = is(node, "skip") ? count : 0; k < (is(node, "skip") ? in.n : count); k++)
            list_add(&out, in.refs[k]);
        free(in.refs);
    }
    return out;
}

/* ---- comparing ---- */

struct opened {
    struct cw_pipeline *p;
    struct cw_compiled *c;
    struct cw_sequence *s;
};

static int open_text(const char *text, struct opened *o, struct cw_error *err)
{
    *o = (struct opened){0};
    int r = cw_pipeline_parse(&table, text, strlen(text), NULL, &o->p, err);
    if (r >= 0)
        r = cw_compile(o->p, &o->c, err);
    if (r >= 0)
        r = cw_sequence_open(o->c, &(struct cw_source_env){.threads = 1}, &o->s, err);
    return r;
}

static void close_text(struct opened *o)
{
    cw_sequence_free(o->s);
    cw_compiled_free(o->c);
    cw_pipeline_unref(o->p);
}

static uint64_t rng = 1;

static uint64_t roll(uint64_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (rng >> 33) % n;
}

static void same(const struct cw_ref *a, const struct cw_ref *b, uint64_t at, const char *text)
{
    if (a->row != b->row || a->leaf != b->leaf || a->pass != b->pass)
        fail_msg("position %" PRIu64 ": (%" PRIu64 ", %u, %u), expected (%" PRIu64 ", %u, %u): %s", at,
                 a->row, a->leaf, a->pass, b->row, b->leaf, b->pass, text);
}

static void compare(const char *text, uint64_t seed, uint64_t epoch)
{
    struct opened o;
    struct cw_error err = {0};
    if (open_text(text, &o, &err) < 0)
        fail_msg("%s: %s", err.message, text);
    struct naive x = {.p = o.p, .seed = seed, .epoch = epoch, .window = o.s->window};
    struct list want = eval(&x, &o.p->chain, o.p->chain.n, 0, 0);
    assert_int_equal(o.s->n_positions, want.n);
    struct cw_budget budget;
    struct cw_epoch e;
    cw_budget_init(&budget, (size_t)64 << 20);
    assert_int_equal(cw_epoch_init(&e, o.s, seed, epoch, &budget, &err), 0);
    struct cw_ref *have = malloc((want.n + 1) * sizeof(*have));
    assert_int_equal(cw_epoch_refs(&e, 0, want.n, have, &err), 0);
    for (size_t i = 0; i < want.n; i++)
        same(&have[i], &want.refs[i], i, text);
    for (int k = 0; k < 8 && want.n; k++) { /* in pieces, in any order */
        uint64_t begin = roll(want.n), n = roll(want.n - begin) + 1;
        assert_int_equal(cw_epoch_refs(&e, begin, n, have, &err), 0);
        for (size_t i = 0; i < n; i++)
            same(&have[i], &want.refs[begin + i], begin + i, text);
    }
    cw_epoch_deinit(&e);
    assert_int_equal(budget.used, 0);
    free(have);
    free(want.refs);
    close_text(&o);
}

/* Sets *restarts if a mix begins inputs again: no repeat may come after it. Returns about how many elements
 * there are. */
static uint64_t random_chain(struct cw_text *t, int depth, bool *restarts)
{
    uint64_t n;
    cw_text_add(t, "[");
    if (depth < 2 && roll(3) == 0) {
        uint64_t inputs = 1 + roll(3);
        bool mixed = roll(2), last = mixed && roll(2);
        n = 0;
        cw_text_add(t, "{\"op\":\"%s\",\"inputs\":[", mixed ? "mix" : "concat");
        for (uint64_t i = 0; i < inputs; i++) {
            cw_text_add(t, "%s", i ? "," : "");
            if (last) /* an empty input can't begin again */
                cw_text_add(t, "[{\"op\":\"fake\",\"n\":%" PRIu64 "},{\"op\":\"shuffle\"}]", 1 + roll(60));
            else
                n += random_chain(t, depth + 1, restarts);
        }
        cw_text_add(t, "]");
        for (uint64_t i = 0; mixed && i < inputs; i++)
            cw_text_add(t, "%s%" PRIu64, i ? "," : ",\"weights\":[", 1 + roll(roll(2) ? 3 : 40));
        cw_text_add(t, "%s}", last ? "],\"stop\":\"last\"" : mixed ? "]" : "");
        *restarts |= last;
    } else {
        n = roll(5) == 0 ? roll(4) : roll(150);
        cw_text_add(t,
                    "{\"op\":\"fake\",\"n\":%" PRIu64 ",\"chunk\":%" PRIu64
                    ",\"random\":%s,\"single\":%s,\"bytes\":%" PRIu64 "}",
                    n, roll(2) ? 0 : 2 + roll(20), roll(3) ? "false" : "true", roll(5) ? "false" : "true",
                    roll(3) ? UINT64_C(8) : UINT64_C(4) << 20);
    }
    for (uint64_t i = 0, count = roll(5); i < count; i++) {
        uint64_t kind = roll(5), k;
        if (kind < 2) {
            cw_text_add(t, ",{\"op\":\"shuffle\",\"by\":\"%s\",\"reshuffle\":%s}",
                        roll(2) ? "record" : "chunk", roll(4) ? "true" : "false");
        } else if (kind == 2) {
            k = roll(4);
            if (n * k > 2000 || *restarts)
                continue;
            cw_text_add(t, ",{\"op\":\"repeat\",\"count\":%" PRIu64 "}", k);
            n *= k;
        } else {
            k = roll(4) == 0 ? roll(1000) : n ? roll(n + 1) : 0;
            cw_text_add(t, ",{\"op\":\"%s\",\"count\":%" PRIu64 "}", kind == 3 ? "take" : "skip", k);
            n = kind == 3 ? CW_MIN(n, k) : n - CW_MIN(n, k);
        }
    }
    if (depth == 0)
        cw_text_add(t, ",{\"op\":\"batch\",\"size\":%" PRIu64 "}", 1 + roll(20));
    cw_text_add(t, "]");
    return n;
}

static void test_random_chains(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < sample_size(1500); i++) {
        struct cw_text t = {0};
        rng = 1000 + i;
        cw_text_add(&t, "{\"cachew\":1,\"pipeline\":");
        random_chain(&t, 0, &(bool){false});
        cw_text_add(&t, "}");
        compare(t.data, i, i % 4);
        cw_text_deinit(&t);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    compare("{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":7}]}", 0, 0);
    compare("{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":0},{\"op\":\"shuffle\"},{\"op\":\"repeat\","
            "\"count\":5}]}",
            0, 0);
    compare("{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":100,\"chunk\":10,\"random\":false},{\"op\":"
            "\"shuffle\"},{\"op\":\"repeat\",\"count\":3},"
            "{\"op\":\"skip\",\"count\":95},{\"op\":\"take\",\"count\":120}]}",
            3, 1);
    for (int i = 0; i < 2; i++) { /* a seed of its own: with and without an order that never changes */
        char text[300];
        snprintf(
            text, sizeof(text),
            "{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":50},{\"op\":\"shuffle\"},{\"op\":\"shuffle\","
            "\"seed\":9,\"reshuffle\":%s},{\"op\":\"repeat\",\"count\":3}]}",
            i ? "true" : "false");
        compare(text, 3, 1);
    }
    compare("{\"cachew\":1,\"pipeline\":[{\"op\":\"concat\",\"inputs\":[[{\"op\":\"fake\",\"n\":20,\"chunk\":"
            "0,\"random\":false},{\"op\":\"shuffle\"}],"
            "[{\"op\":\"fake\",\"n\":9}]]},{\"op\":\"repeat\",\"count\":2},{\"op\":\"shuffle\"},{\"op\":"
            "\"repeat\",\"count\":2}]}",
            3, 1);
}

/* More positions than a table has, over sources, cuts, repeats and other shuffles. */
static void test_large_shuffles(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "{\"op\":\"fake\",\"n\":65536},{\"op\":\"shuffle\"}",
        "{\"op\":\"fake\",\"n\":65537},{\"op\":\"shuffle\"}",
        "{\"op\":\"fake\",\"n\":65700},{\"op\":\"shuffle\",\"reshuffle\":false},{\"op\":\"repeat\",\"count\":"
        "2}",
        "{\"op\":\"fake\",\"n\":66000},{\"op\":\"shuffle\",\"reshuffle\":false,\"seed\":5},{\"op\":"
        "\"repeat\",\"count\":2}",
        "{\"op\":\"fake\",\"n\":40000},{\"op\":\"shuffle\"},{\"op\":\"repeat\",\"count\":2},{\"op\":\"skip\","
        "\"count\":9},{\"op\":\"shuffle\"}",
        "{\"op\":\"fake\",\"n\":70000},{\"op\":\"shuffle\"},{\"op\":\"shuffle\"},{\"op\":\"take\",\"count\":"
        "66000},{\"op\":\"shuffle\",\"by\":\"chunk\"}",
        "{\"op\":\"concat\",\"inputs\":[[{\"op\":\"fake\",\"n\":66000},{\"op\":\"shuffle\"}],[{\"op\":"
        "\"fake\",\"n\":900}]]},{\"op\":\"shuffle\"}",
    };
    for (size_t i = 0; i < CW_COUNT_OF(chains); i++) {
        char text[400];
        snprintf(text, sizeof(text), "{\"cachew\":1,\"pipeline\":[%s]}", chains[i]);
        compare(text, 7, 3);
    }
}

/* Sorted data once stayed sorted from 65,536 records on: neighbours of a chunk met in the same windows. Now
 * only where chunks are asked for. */
static void test_neighbours_are_separated_at_any_size(void **state)
{
    (void)state;
    struct cw_error err = {0};
    uint64_t n = 66000;
    for (int by_chunk = 0; by_chunk < 2; by_chunk++) {
        char text[200];
        struct opened o;
        snprintf(text, sizeof(text),
                 "{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":%" PRIu64
                 ",\"bytes\":262144},{\"op\":\"shuffle\",\"by\":\"%s\"}]}",
                 n, by_chunk ? "chunk" : "record");
        assert_int_equal(open_text(text, &o, &err), 0);
        struct cw_budget budget;
        struct cw_epoch e;
        cw_budget_init(&budget, (size_t)64 << 20);
        assert_int_equal(cw_epoch_init(&e, o.s, 1, 0, &budget, &err), 0);
        struct cw_ref *refs = malloc(n * sizeof(*refs));
        uint8_t *seen = calloc(n, 1);
        assert_int_equal(cw_epoch_refs(&e, 0, n, refs, &err), 0);
        uint64_t near = 0;
        for (uint64_t i = 0; i < n; i++) {
            assert_true(refs[i].row < n && !seen[refs[i].row]);
            seen[refs[i].row] = 1;
            near += i % 256 && refs[i].row / 1024 == refs[i - 1].row / 1024;
        }
        /* Of the pairs of neighbours within a window, few stay in one chunk of 64 if all is permuted; all of
         * them if a window of 256 is part of a chunk. */
        if (!by_chunk)
            assert_true(near < n / 32);
        else
            assert_true(near > n / 4);
        cw_epoch_deinit(&e);
        free(refs);
        free(seen);
        close_text(&o);
    }
}

/* An endless repeat: each pass is permuted by itself, without end. */
static void test_endless(void **state)
{
    (void)state;
    struct opened endless, finite;
    struct cw_error err = {0};
    const char *a = "{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":50},{\"op\":\"repeat\",\"count\":-1},"
                    "{\"op\":\"shuffle\"},{\"op\":\"batch\",\"size\":4}]}",
               *b = "{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":50},{\"op\":\"shuffle\"},{\"op\":"
                    "\"repeat\",\"count\":3},{\"op\":\"batch\",\"size\":4}]}";
    assert_int_equal(open_text(a, &endless, &err), 0);
    assert_int_equal(open_text(b, &finite, &err), 0);
    assert_true(endless.s->n_positions == CW_ENDLESS);
    struct cw_budget budget;
    struct cw_epoch x, y;
    struct cw_ref left[150], right[150], one;
    cw_budget_init(&budget, (size_t)1 << 20);
    assert_int_equal(cw_epoch_init(&x, endless.s, 5, 0, &budget, &err), 0);
    assert_int_equal(cw_epoch_init(&y, finite.s, 5, 0, &budget, &err), 0);
    assert_int_equal(cw_epoch_refs(&x, 0, 150, left, &err), 0);
    assert_int_equal(cw_epoch_refs(&y, 0, 150, right, &err), 0);
    assert_memory_equal(left, right, sizeof(left));
    assert_int_equal(cw_epoch_refs(&x, UINT64_C(50) << 30, 1, &one, &err), 0); /* far out */
    assert_int_equal(one.pass, 1u << 30);
    cw_epoch_deinit(&x);
    cw_epoch_deinit(&y);
    close_text(&endless);
    close_text(&finite);
}

static void test_piece_size(void **state)
{
    (void)state;

    static const struct {
        const char *source;
        uint64_t batch, piece;
    } cases[] = {
        {"\"n\":100", 16, 16},                      /* N div 256 is 0: B */
        {"\"n\":100000", 16, 384},                  /* 390, a multiple of 16 */
        {"\"n\":100000", 1000, 1000},               /* at least B */
        {"\"n\":268435456", 16, 1048576},           /* 2^28 div 256 = 2^20 */
        {"\"n\":4294967296", 16, 1048576},          /* at most 2^20 */
        {"\"n\":100000,\"bytes\":1048576", 16, 64}, /* 64 MiB of source */
        {"\"n\":100000,\"bytes\":1048577", 16, 48}, /* 63 */
        {"\"n\":100000,\"width\":4194304", 16, 32}, /* 128 MiB of output */
        {"\"n\":100000,\"bytes\":100000000", 16, 16},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        char text[300];
        struct opened o;
        struct cw_error err = {0};
        snprintf(text, sizeof(text),
                 "{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",%s},{\"op\":\"batch\",\"size\":%" PRIu64 "}]}",
                 cases[i].source, cases[i].batch);
        if (open_text(text, &o, &err) < 0)
            fail_msg("%s", err.message);
        if (o.s->piece_size != cases[i].piece)
            fail_msg("piece of %" PRIu64 ", expected %" PRIu64 ": %s", o.s->piece_size, cases[i].piece, text);
        close_text(&o);
    }
}

static void test_refused(void **state)
{
    (void)state;

    static const struct {
        const char *chain, *why;
    } cases[] = {
        {"{\"op\":\"concat\",\"inputs\":[[{\"op\":\"fake\",\"n\":5},{\"op\":\"repeat\",\"count\":-1}],[{"
         "\"op\":\"fake\",\"n\":5}]]}",
         "endless"},
        {"{\"op\":\"fake\",\"n\":7},{\"op\":\"batch\",\"size\":3},{\"op\":\"repeat\",\"count\":2}",
         "is not a multiple of the batch size"},
        {"{\"op\":\"fake\",\"n\":7},{\"op\":\"repeat\",\"count\":4294967296}", "2^32"},
        {"{\"op\":\"fake\",\"n\":72057594037927936},{\"op\":\"shuffle\"},{\"op\":\"shuffle\",\"by\":"
         "\"chunk\"}",
         "chunks: expected fewer than 2^32"},
        {"{\"op\":\"fake\",\"n\":72057594037927936},{\"op\":\"shuffle\"},{\"op\":\"skip\",\"count\":1},{"
         "\"op\":\"shuffle\",\"by\":\"chunk\"}",
         "by \"record\""},
        {"{\"op\":\"fake\",\"n\":7,\"random\":false},{\"op\":\"shuffle\",\"seed\":4}",
         "seed is 4: expected -1, because this shuffle is by chunk (its input has compressed files or row "
         "groups)"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        char text[300];
        struct opened o;
        struct cw_error err = {0};
        snprintf(text, sizeof(text), "{\"cachew\":1,\"pipeline\":[%s]}", cases[i].chain);
        assert_int_equal(open_text(text, &o, &err), CW_E_PIPELINE);
        assert_non_null(strstr(err.message, cases[i].why));
        close_text(&o);
    }
}

static void test_orders_are_charged(void **state)
{
    (void)state;
    struct opened o;
    struct cw_error err = {0};
    assert_int_equal(
        open_text("{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":50000},{\"op\":\"shuffle\"}]}", &o,
                  &err),
        0);
    struct cw_budget budget;
    struct cw_epoch e;
    struct cw_ref one;
    cw_budget_init(&budget, 100000);
    assert_int_equal(cw_epoch_init(&e, o.s, 5, 0, &budget, &err), 0);
    assert_int_equal(cw_epoch_refs(&e, 0, 1, &one, &err), CW_E_BUDGET);
    assert_int_equal(budget.used, 0);
    budget.limit = 201000;
    assert_int_equal(cw_epoch_refs(&e, 0, 1, &one, &err), 0);
    assert_in_range(budget.used, 200000, 201000);
    cw_epoch_deinit(&e);
    assert_int_equal(budget.used, 0);
    close_text(&o);
}

static int count(void *arg)
{
    ++*(uint64_t *)arg;
    return 0;
}

static int at_once(void *arg)
{
    (void)arg;
    return 1;
}

/* Plans all ranges of three shuffles, one of a repeat, with a budget; returns how many permutations were
 * made. */
static uint64_t permutations_made(size_t limit, uint64_t *ret_windows, struct cw_ref *refs, size_t n)
{
    struct opened o;
    struct cw_error err = {0};
    assert_int_equal(open_text("{\"cachew\":1,\"pipeline\":[{\"op\":\"fake\",\"n\":9000,\"chunk\":10,"
                               "\"random\":false,\"bytes\":639132},{\"op\":\"shuffle\"},"
                               "{\"op\":\"repeat\",\"count\":3},{\"op\":\"shuffle\"},{\"op\":\"shuffle\"}]}",
                               &o, &err),
                     0);
    assert_int_equal(o.s->n_positions, n);
    struct cw_budget budget;
    struct cw_epoch e;
    uint64_t made = 0, size = o.s->window;
    cw_budget_init(&budget, limit);
    assert_int_equal(cw_epoch_init(&e, o.s, 5, 0, &budget, &err), 0);
    e.stopped = at_once;
    assert_int_equal(cw_epoch_refs(&e, 0, 1, refs, &err), CW_E_INTERRUPTED);
    assert_int_equal(budget.used, 0);
    e.stopped = count;
    e.stop_arg = &made;
    for (uint64_t at = 0; at < n; at += size)
        assert_int_equal(cw_epoch_refs(&e, at, CW_MIN(size, n - at), refs + at, &err), 0);
    cw_epoch_trim(&e);
    assert_in_range(budget.used, 1, 80000); /* of windows nothing; the orders of 900 + 2 * 2,700 chunks */
    *ret_windows = (n + size - 1) / size + 3 * ((n / 3 + size - 1) / size); /* of the two inner shuffles */
    assert_true(budget.peak <= limit);
    cw_epoch_deinit(&e);
    assert_int_equal(budget.used, 0);
    close_text(&o);
    return made;
}

/* Each window of a shuffle below another is made about once where memory allows; where it does not, once per
 * range at most. */
static void test_shuffles_of_shuffles_take_linear_time(void **state)
{
    (void)state;
    size_t n = 27000;
    struct cw_ref *one = malloc(n * sizeof(*one)), *other = malloc(n * sizeof(*other));
    uint64_t windows, ample = permutations_made((size_t)64 << 20, &windows, one, n),
                      scarce = permutations_made((size_t)96 << 10, &windows, other, n);
    assert_true(windows > 500);
    assert_in_range(ample, windows, windows + 5); /* and the orders of chunks, in each pass */
    assert_true(scarce > ample && scarce <= windows * 300);
    assert_memory_equal(one, other, n * sizeof(*one));
    free(one);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_random_chains),
        cmocka_unit_test(test_large_shuffles),
        cmocka_unit_test(test_neighbours_are_separated_at_any_size),
        cmocka_unit_test(test_endless),
        cmocka_unit_test(test_piece_size),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_orders_are_charged),
        cmocka_unit_test(test_shuffles_of_shuffles_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
