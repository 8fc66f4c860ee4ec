/*
 * Fuzzes Arrow files and streams. The input is the file. Every row of every column that has a form as a
 * component is gathered, from memory after decoding and, of batches that are not compressed, with reads of
 * the file; every value must lie in memory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ops/source/arrow_rows.h"
#include "storage/file.h"

#define MOST_MEMORY ((size_t)64 << 20) /* of a batch */
#define MOST_ROWS 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

static void use_rows(const struct cw_type *type, const struct row_group_column *out, size_t n)
{
    uint64_t sum = 0;
    size_t row = out->numbers ? cw_type_bytes(type) : 0;
    for (size_t i = 0; i < n * row; i++)
        sum += out->numbers[i];
    for (size_t i = 0; out->slices && i < n; i++)
        for (size_t k = 0; k < out->slices[i].size; k++)
            sum += out->slices[i].data[k];
    for (size_t i = 0; out->valid && i < n; i++)
        sum += out->valid[i];
    sink = sum;
}

static void use_column(const struct row_group_at *at, struct cw_budget *budget)
{
    const struct cw_arrow_file *f = at->meta;
    const struct cw_arrow_batch *b = &f->batches[at->number];
    const struct cw_type *type = &at->table->type;
    size_t n = (size_t)CW_MIN(b->n_rows, MOST_ROWS), row = cw_type_fixed(type) ? cw_type_bytes(type) : 0;
    struct cw_arena arena;
    cw_arena_init(&arena, budget);
    struct row_group_wanted *w = cw_arena_alloc(&arena, (n + 1) * sizeof(*w), NULL);
    for (size_t i = 0; i < n; i++) /* more than a run, if there are many */
        w[i] = (struct row_group_wanted){i < n / 2 ? i : b->n_rows - n + i, i};
    for (int in_place = 0; n > 0 && in_place <= (b->codec == CW_ARROW_UNCOMPRESSED); in_place++) {
        struct row_group_column out = {0};
        struct cw_error err = {0};
        void *values = NULL;
        size_t bytes;
        if (row)
            out.numbers = cw_arena_alloc(&arena, n * row, NULL);
        else
            out.slices = cw_arena_alloc(&arena, n * sizeof(*out.slices), NULL);
        if ((!out.numbers && !out.slices) ||
            (!in_place && arrow_values_read(at, &arena, &values, &bytes, &err) < 0))
            continue;
        int r = arrow_gather(at, values, w, n, &out, n, &arena, &err);
        if (r == 0)
            use_rows(type, &out, n);
        else if (!err.message[0])
            abort();
        arrow_values_free(values);
    }
    cw_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct cw_stat stat;
    struct cw_file *file = NULL;
    struct cw_arrow_file f;
    struct cw_budget budget;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    cw_budget_init(&budget, MOST_MEMORY);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (cw_stat(path, &stat, NULL) < 0 || cw_file_new(path, &stat, &file, NULL) < 0)
        abort();
    if (cw_arrow_open(file, &f, NULL) == 0) {
        for (size_t g = 0; g < f.n_batches; g++)
            for (size_t i = 0; i < f.n_columns; i++) {
                const struct cw_table_column table = {.name = f.columns[i].name, .type = f.columns[i].type};
                const struct row_group_at at = {
                    .file = file, .meta = &f, .number = g, .column = i, .table = &table};
                if (!f.columns[i].unreadable && cw_type_bytes(&table.type) < MOST_MEMORY / MOST_ROWS)
                    use_column(&at, &budget);
            }
        cw_arrow_close(&f);
    }
    cw_file_free(file);
    close(fd);
    return 0;
}
