/*
 * Fuzzes records of shards. The first byte chooses the format; the rest is the record. Values that are read
 * must lie in the record, and the element that is written from them must be read back as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/shard.h"
#include "formats/tfrecord.h"

#define MAX_BYTES ((size_t)1 << 20) /* of a component's values */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct cw_shard_schema schema = {
    .n = 5,
    .components = {{(char *)(uintptr_t)"b", {.dtype = CW_BYTES}},
                   {(char *)(uintptr_t)"f", {.dtype = CW_FLOAT32, .ndim = 1, .dims = {2}}},
                   {(char *)(uintptr_t)"h", {.dtype = CW_FLOAT16, .ndim = 2, .dims = {CW_VARIES, 3}}},
                   {(char *)(uintptr_t)"i", {.dtype = CW_INT16, .ndim = -1}},
                   {(char *)(uintptr_t)"u", {.dtype = CW_UINT8}}},
};

/* Stores copies of the values, which the caller frees. Returns false if they are too large. */
static bool take_values(const struct cw_shard_schema *s, const struct cw_shard_value *values,
                        const uint8_t *record, size_t size, struct cw_tensor *out)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct cw_shard_value *v = &values[i];
        enum cw_dtype dtype = s->components[i].type.dtype;
        if (v->size > MAX_BYTES)
            return false;
        if (v->data && (v->data < record || v->size > size || v->data > record + size - v->size))
            abort();
        void *scratch = malloc(cw_shard_scratch(v, dtype) + 1);
        out[i] = (struct cw_tensor){.data = malloc(v->size + 1), .size = v->size, .ndim = v->ndim};
        memcpy(out[i].dims, v->dims, sizeof(v->dims));
        cw_shard_copy(v, dtype, out[i].data, scratch);
        free(scratch);
    }
    return true;
}

static void free_values(struct cw_tensor *values)
{
    for (unsigned i = 0; i < schema.n; i++)
        free(values[i].data);
}

static void write_and_read(const struct cw_shard_schema *s, const struct cw_tensor *values)
{
    struct cw_shard_bytes bytes = {0};
    struct cw_shard_value again[CW_SHARD_COMPONENTS];
    struct cw_tensor copies[CW_SHARD_COMPONENTS] = {0};
    char why[CW_SHARD_WHY];
    size_t head = s->format == CW_SHARD_TAR ? 0 : CW_TFRECORD_HEADER;
    size_t frame = s->format == CW_SHARD_TAR ? 0 : CW_TFRECORD_FRAME;
    if (cw_shard_write(s, 7, values, &bytes, NULL) < 0 ||
        !cw_shard_read(s, bytes.data + head, bytes.size - frame, again, why) ||
        !take_values(s, again, bytes.data + head, bytes.size - frame, copies))
        abort();
    for (unsigned i = 0; i < s->n; i++) /* not float16: converting a signalling NaN makes it quiet */
        if (copies[i].size != values[i].size || copies[i].ndim != values[i].ndim ||
            memcmp(copies[i].dims, values[i].dims, (size_t)values[i].ndim * sizeof(int64_t)) != 0 ||
            (s->components[i].type.dtype != CW_FLOAT16 &&
             memcmp(copies[i].data, values[i].data, values[i].size) != 0))
            abort();
    free_values(copies);
    free(bytes.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_shard_schema s = schema;
    struct cw_shard_value values[CW_SHARD_COMPONENTS];
    struct cw_tensor copies[CW_SHARD_COMPONENTS] = {0};
    char why[CW_SHARD_WHY] = "";
    if (size == 0)
        return 0;
    s.format = (enum cw_shard_format)(data[0] % CW_N_SHARD_FORMATS);
    uint8_t *record = malloc(size); /* a heap block, so that ASan finds reads past its end */
    memcpy(record, data + 1, size - 1);
    if (!cw_shard_read(&s, record, size - 1, values, why)) {
        if (!why[0])
            abort();
    } else if (take_values(&s, values, record, size - 1, copies)) {
        write_and_read(&s, copies);
    }
    free_values(copies);
    free(record);
    return 0;
}
