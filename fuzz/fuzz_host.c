/*
 * Fuzzes the answer of a host process, which runs a user's code and may write anything to its memory. The
 * first three bytes choose the counts and the type that the engine expects. Everything that is accepted must
 * lie within the answer.
 */
#include <stdlib.h>
#include <string.h>

#include "host/exchange.h"

static volatile uint8_t sink;

static void touch(const void *data, size_t size)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < size; i++)
        sink ^= at[i];
}

static struct cw_type choose(uint8_t byte)
{
    struct cw_type type = cw_type_scalar((enum cw_dtype)(byte % CW_N_DTYPES));
    if (type.dtype == CW_BYTES)
        return type;
    type.ndim = (byte >> 4) % 4 - 1;
    for (int i = 0; i < type.ndim; i++)
        type.dims[i] = byte & 0x80 ? CW_VARIES : 1 + i;
    return type;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_exchange_answer a;
    const char *why;
    if (size < 3)
        return 0;
    struct cw_type type = choose(data[0]);
    size_t n = data[1] & 0x3f;
    bool counted = data[1] & 0x40;
    size -= 3;
    uint8_t *copy = malloc(
        size + 1); /* aligned, as shared memory is; a heap block, so that ASan finds reads past its end */
    if (!copy)
        return 0;
    memcpy(copy, data + 3, size);
    if (cw_exchange_read(copy, size, n, 2, counted, &a, &why)) {
        touch(a.status, n);
        touch(a.errors, a.errors_size);
        if (counted)
            touch(a.counts, n * sizeof(*a.counts));
        for (unsigned k = 0; k < 2; k++) {
            struct cw_tensor t;
            const uint64_t *offsets = NULL;
            if (a.n && cw_exchange_row(&a, k, &type, a.n - 1, &t))
                touch(t.data, t.size);
            for (size_t row = 0; row < (a.n < 70 ? a.n : 70); row++)
                if (cw_exchange_row(&a, k, &type, row, &t))
                    touch(t.data, t.size);
            if (cw_exchange_column_whole(&a, k, &type, &t, &offsets)) {
                touch(t.data, t.size);
                if (offsets)
                    touch(offsets, (a.n + 1) * sizeof(*offsets));
            }
        }
    }
    free(copy);
    return 0;
}
