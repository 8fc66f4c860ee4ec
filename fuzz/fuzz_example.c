/* Fuzzes tf.train.Example: walks the bytes, and extracts all values of all features into memory of exactly
 * their size. */
#include <stdlib.h>
#include <string.h>

#include "formats/example.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_values(const struct cw_feature *f, const uint8_t *data, size_t size)
{
    int64_t n = f->kind == CW_FEATURE_NONE ? -1 : cw_feature_count(f);
    if (n < 0)
        return;
    if ((uint64_t)n > size)
        abort(); /* more values than bytes: a value takes at least one byte */
    size_t item = f->kind == CW_FEATURE_BYTES   ? sizeof(struct cw_bytes_view)
                  : f->kind == CW_FEATURE_FLOAT ? 4
                                                : 8;
    void *out = malloc((size_t)n * item);
    memset(out, 0xa5, (size_t)n * item);
    if (f->kind == CW_FEATURE_FLOAT) {
        cw_feature_floats(f, out);
    } else if (f->kind == CW_FEATURE_INT64) {
        cw_feature_integers(f, sizeof(int64_t), out);
    } else {
        const struct cw_bytes_view *v = out;
        cw_feature_bytes(f, out);
        for (int64_t i = 0; i < n; i++) /* each value must lie in the record */
            if (v[i].data < data || v[i].size > size || v[i].data + v[i].size > data + size)
                abort();
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_example_walk w;
    struct cw_feature f;
    int r;
    cw_example_walk_init(&w, data, size);
    while ((r = cw_example_next(&w, &f)) > 0)
        take_values(&f, data, size);
    if (r < 0 && (!w.why || w.where > size))
        abort();
    return 0;
}
