/*
 * Fuzzes Parquet files. The input is the file: its footer is parsed, and every column chunk of a column that
 * has a form as a component is decoded. Every value must lie in memory that belongs to the values.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/parquet.h"
#include "storage/file.h"

#define MOST_MEMORY ((size_t)64 << 20) /* of a chunk; more is not decoded */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

static void use_values(const struct cw_parquet_column *c, const struct cw_parquet_values *v)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < v->n_rows; row++) {
        sum += v->valid ? v->valid[row] : 1;
        for (size_t i = 0; v->slices && i < v->slices[row].size; i++)
            sum += v->slices[row].data[i];
        for (size_t i = 0; !v->slices && i < v->item; i++)
            sum += v->numbers[row * v->item + i];
        if (v->slices && c->max_rep && v->slices[row].size % v->item != 0)
            abort();
    }
    sink = sum;
}

static void use_chunk(const struct cw_parquet_column *c, const struct cw_parquet_chunk *k, uint64_t n_rows,
                      const uint8_t *file)
{
    char why[CW_PARQUET_WHY] = "";
    struct cw_parquet_values v;
    if (c->unreadable || k->size + cw_parquet_decode_bytes(c, k, n_rows) > MOST_MEMORY)
        return;
    uint8_t *data = malloc(k->size + CW_PARQUET_SLACK);
    memcpy(data, file + k->offset, k->size);
    memset(data + k->size, 0, CW_PARQUET_SLACK);
    int r = cw_parquet_decode(c, k, n_rows, &data, &v, why);
    if (r == CW_E_DATA && !why[0])
        abort();
    if (r == 0) {
        use_values(c, &v);
        cw_parquet_values_deinit(&v);
    }
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct cw_stat stat;
    struct cw_file *file = NULL;
    struct cw_parquet_file f;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (cw_stat(path, &stat, NULL) < 0 || cw_file_new(path, &stat, &file, NULL) < 0)
        abort();
    if (cw_parquet_open(file, &f, NULL) == 0) {
        for (size_t g = 0; g < f.n_groups; g++)
            for (size_t i = 0; i < f.n_columns; i++)
                use_chunk(&f.columns[i], &f.groups[g].chunks[i], f.groups[g].n_rows, data);
        cw_parquet_close(&f);
    }
    cw_file_free(file);
    close(fd);
    return 0;
}
