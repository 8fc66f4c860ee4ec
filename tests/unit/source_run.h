/* One block of rows of a source and the maps after it, computed without an engine. Include after cmocka.h. */
#pragma once
#include "data_files.h"
#include "ops/table.h"
#include "pipeline/program.h"
#include "pipeline/source.h"

/* One block of rows of a chain, computed. */
struct run {
    struct cw_pipeline *pipeline;
    struct cw_compiled *compiled;
    struct cw_source *source;
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_block b;
    struct cw_error err;
};

static inline void run_deinit(struct run *r)
{
    cw_arena_deinit(&r->arena);
    cw_source_free(r->source);
    cw_compiled_free(r->compiled);
    cw_pipeline_unref(r->pipeline);
    assert_int_equal(atomic_load(&r->budget.used), 0);
}

/* Compiles and opens; the first status that is not 0. */
static inline int run_open(struct run *r, const char *chain)
{
    char text[4000];
    *r = (struct run){0};
    cw_budget_init(&r->budget, (size_t)64 << 20);
    cw_arena_init(&r->arena, &r->budget);
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    int s = cw_pipeline_parse(cw_ops(), text, strlen(text), temp_dir, &r->pipeline, &r->err);
    if (s == 0)
        s = cw_compile(r->pipeline, &r->compiled, &r->err);
    struct cw_source_env env = {.base_dir = temp_dir, .threads = 2};
    const struct cw_op *op = s == 0 ? r->compiled->programs[0].ops[0] : NULL;
    return s == 0 ? op->desc->open(op, &env, &r->source, &r->err) : s;
}

static inline int run_rows(struct run *r, const uint64_t *rows, size_t n)
{
    const struct cw_program *p = &r->compiled->programs[0];
    struct cw_tensor *raw = calloc(n + 1, sizeof(*raw));
    r->b = (struct cw_block){.n = n, .all_ok = true, .rows = rows, .arena = &r->arena};
    r->b.status = cw_arena_alloc(&r->arena, n, NULL);
    memset(r->b.status, 0, n);
    r->b.columns = cw_arena_alloc(&r->arena, p->n_values * sizeof(*r->b.columns), NULL);
    memset(r->b.columns, 0, p->n_values * sizeof(*r->b.columns));
    int s = 0;
    for (size_t i = 0; r->source->ops->locate && s == 0 && i < n; i++) {
        struct cw_extent e;
        s = r->source->ops->locate(r->source, rows[i], &e, &r->err);
        raw[i] = (struct cw_tensor){.data = cw_arena_alloc(&r->arena, e.length, NULL), .size = e.length};
        s = s == 0 ? cw_file_read(e.file, e.offset, raw[i].data, e.length, false, &r->err) : s;
    }
    if (s == 0 && r->source->ops->load)
        s = r->source->ops->load(r->source, &(struct cw_load){.rows = rows, .n = n, .arena = &r->arena}, raw,
                                 &r->err);
    r->b.raw = raw;
    s = s == 0 ? r->source->ops->produce(r->source, p->ops[0], &r->b, &r->err) : s;
    for (unsigned i = 1; s == 0 && i < p->n_ops; i++)
        s = p->ops[i]->desc->run(p->ops[i], &r->b, &r->err);
    free(raw);
    r->b.raw = NULL;
    return s;
}

static inline struct cw_tensor value(const struct run *r, const char *component, size_t row)
{
    const struct cw_program *p = &r->compiled->programs[0];
    for (unsigned i = 0; i < p->n_outputs; i++)
        if (strcmp(p->outputs[i].name, component) == 0)
            return cw_block_row(&r->b, p->outputs[i].value, row);
    fail_msg("no component %s", component);
    return (struct cw_tensor){0};
}

static inline int64_t int_of(const struct run *r, const char *component, size_t row)
{
    int64_t v;
    memcpy(&v, value(r, component, row).data, 8);
    return v;
}

static inline void expect_text(const struct run *r, const char *component, size_t row, const char *expected)
{
    struct cw_tensor t = value(r, component, row);
    assert_int_equal(t.size, strlen(expected));
    assert_memory_equal(t.data, expected, t.size);
}

static inline void expect_error(const char *chain, int status, const char *part)
{
    struct run r;
    assert_int_equal(run_open(&r, chain), status);
    assert_contains(r.err.message, part);
    run_deinit(&r);
}

/* The reason why a row failed; "" where it did not. */
static inline const char *fault_of(const struct run *r, size_t row)
{
    for (const struct cw_fault *f = r->b.faults; f; f = f->next)
        if (f->row == row)
            return f->message;
    return "";
}
