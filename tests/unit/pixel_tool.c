/*
 * Runs image operators over files without the engine, for tests/test_pixels.py:
 *
 *   pixel_tool [--unfused] [--rounds N] OPS OUT FILE...
 *
 * OPS is a JSON list of operators on the component "image", which starts as the file's bytes; FILE may be
 * @LIST, a file of names. For each file OUT gets a line "ok DTYPE DIM ..." and the values, or "fail OPERATOR:
 * reason". The draws of file i have element id i. With --rounds all is done N times and the time per image is
 * printed.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ops/image/image_chain.h"
#include "ops/table.h"
#include "pipeline/bind.h"
#include "pipeline/pipeline.h"

#define MAX_OPS 16

static struct cw_op ops[MAX_OPS], fused_ops[MAX_OPS];
static const struct cw_op *run_ops[MAX_OPS];
static unsigned n_ops, n_run;
static uint64_t keys[MAX_OPS];

static void die(const struct cw_error *err, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err ? err->message : "");
    exit(2);
}

static void load_op(struct cw_op *op, const json_t *o, unsigned i)
{
    struct cw_error err = {0};
    const char *name = json_string_value(json_object_get(o, "op"));
    op->desc = name ? cw_op_find(cw_ops(), name) : NULL;
    if (!op->desc)
        die(NULL, name ? name : "no op");
    json_t *attrs = json_deep_copy(o), *full;
    json_object_del(attrs, "op");
    if (!json_object_get(attrs, "component"))
        json_object_set_new(attrs, "component", json_string("image"));
    if (cw_attrs_check(op->desc, attrs, &full, &err) < 0)
        die(&err, name);
    json_decref(attrs);
    op->attrs = full;
    op->index = op->position = i;
    keys[i] = 1000003u * (i + 1);
}

static void load_ops(const char *text)
{
    struct cw_error err = {0};
    json_t *list = json_loads(text, 0, NULL);
    n_ops = (unsigned)json_array_size(list);
    if (!n_ops || n_ops > MAX_OPS)
        die(NULL, "a list of operators");
    for (unsigned i = 0; i < n_ops; i++)
        load_op(&ops[i], json_array_get(list, i), i);
    json_decref(list);
    struct cw_type bytes = cw_type_scalar(CW_BYTES);
    struct cw_bind b = {.next_value = 1};
    if (cw_bind_put(&b, "image", 0, &bytes, &err) < 0)
        die(&err, "bind");
    for (unsigned i = 0; i < n_ops; i++) {
        b.op = &ops[i];
        b.next = i + 1 < n_ops ? &ops[i + 1] : NULL;
        if (ops[i].desc->bind(&b, &ops[i], &err) < 0)
            die(&err, ops[i].desc->name);
        ops[i].out[0].live = true;
    }
    cw_bind_deinit(&b);
}

static void plan(bool fuse)
{
    struct cw_error err = {0};
    const struct cw_op *all[MAX_OPS];
    for (unsigned i = 0; i < n_ops; i++)
        all[i] = &ops[i];
    for (unsigned i = 0; i < n_ops;) {
        size_t n = fuse ? cw_image_chain_match(all + i, n_ops - i) : 0;
        if (n) {
            if (cw_image_chain_new(all + i, (unsigned)n, &fused_ops[n_run], &err) != 0)
                die(&err, "fusion");
            run_ops[n_run] = &fused_ops[n_run];
        } else {
            run_ops[n_run] = all[i];
            n = 1;
        }
        n_run++;
        i += (unsigned)n;
    }
}

static uint8_t *read_file(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        die(NULL, path);
    fseek(f, 0, SEEK_END);
    *ret_size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*ret_size + 1);
    if (!data || fread(data, 1, *ret_size, f) != *ret_size)
        die(NULL, path);
    fclose(f);
    return data;
}

static void write_result(FILE *out, const struct cw_block *b)
{
    const struct cw_type *type = &ops[n_ops - 1].out[0].type;
    if (b->status[0] != CW_ROW_OK) {
        fprintf(out, "fail %s: %s\n", b->faults ? b->faults->op : "?", b->faults ? b->faults->message : "?");
        return;
    }
    struct cw_tensor t = cw_block_row(b, ops[n_ops - 1].out[0].value, 0);
    fprintf(out, "ok %s", cw_dtype_name(type->dtype));
    for (int i = 0; i < t.ndim; i++)
        fprintf(out, " %lld", (long long)t.dims[i]);
    fputc('\n', out);
    fwrite(t.data, 1, t.size, out);
}

static void run_file(const uint8_t *data, size_t size, uint64_t eid, struct cw_arena *arena, FILE *out)
{
    struct cw_error err = {0};
    uint8_t status = CW_ROW_OK;
    struct cw_tensor in = {.data = (void *)data, .size = size};
    struct cw_column columns[MAX_OPS + 1] = {{.rows = &in}};
    struct cw_block b = {.n = 1,
                         .status = &status,
                         .all_ok = true,
                         .columns = columns,
                         .eids = &eid,
                         .keys = keys,
                         .arena = arena};
    for (unsigned i = 0; i < n_run && status == CW_ROW_OK; i++)
        if (run_ops[i]->desc->run(run_ops[i], &b, &err) < 0)
            die(&err, run_ops[i]->desc->name);
    if (out)
        write_result(out, &b);
    cw_arena_reset(arena, (size_t)64 << 20);
}

static char **read_names(const char *list, int *ret_n)
{
    size_t size;
    char *text = (char *)read_file(list, &size);
    text[size] = 0;
    char **names = calloc(size + 1, sizeof(*names));
    *ret_n = 0;
    for (char *s = strtok(text, "\n"); s; s = strtok(NULL, "\n"))
        names[(*ret_n)++] = s;
    return names;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    bool fuse = true;
    int rounds = 0, at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--unfused") == 0)
            fuse = false;
        else if (strcmp(argv[at], "--rounds") == 0 && at + 1 < argc)
            rounds = atoi(argv[++at]);
    }
    if (argc - at < 3)
        die(NULL, "usage: pixel_tool [--unfused] [--rounds N] OPS OUT FILE...");
    load_ops(argv[at]);
    plan(fuse);
    FILE *out = fopen(argv[at + 1], "wb");
    if (!out)
        die(NULL, argv[at + 1]);
    char **names = argv + at + 2;
    int n = argc - at - 2;
    if (names[0][0] == '@')
        names = read_names(names[0] + 1, &n);
    uint8_t **data = calloc((size_t)n, sizeof(*data));
    size_t *sizes = calloc((size_t)n, sizeof(*sizes));
    struct cw_budget budget;
    cw_budget_init(&budget, (size_t)8 << 30);
    struct cw_arena arena;
    cw_arena_init(&arena, &budget);
    for (int i = 0; i < n; i++) {
        data[i] = read_file(names[i], &sizes[i]);
        run_file(data[i], sizes[i], (uint64_t)i, &arena, out);
    }
    double begin = now();
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < n; i++)
            run_file(data[i], sizes[i], (uint64_t)(i + k * n), &arena, NULL);
    if (rounds)
        printf("%.2f us per image, %u operators\n", (now() - begin) / rounds / n * 1e6, n_run);
    cw_arena_deinit(&arena);
    return fclose(out) == 0 ? 0 : 1;
}
