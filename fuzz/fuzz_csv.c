/*
 * Fuzzes CSV files. The first byte chooses the delimiter and the sizes of the pieces in which the rest is fed
 * to the walk; the records must not depend on them. Then each record is split into fields, which must lie in
 * it.
 */
#include <string.h>

#include "formats/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

/* Feeds the data in pieces of `step` bytes. Each piece is a heap block, so that ASan finds reads past its
 * end. */
static int walk(struct cw_csv_walk *w, char delimiter, const uint8_t *data, size_t size, size_t step)
{
    int r = cw_csv_walk_init(w, "fuzz", UINT64_MAX, delimiter, NULL);
    for (size_t at = 0, n; r == 0 && at < size; at += n) {
        n = CW_MIN(step, size - at);
        uint8_t *piece = malloc(n);
        memcpy(piece, data + at, n);
        r = cw_walk_feed(&w->base, at, piece, n, NULL);
        free(piece);
    }
    return r < 0 ? r : cw_walk_end(&w->base, size, NULL);
}

static void use_record(const uint8_t *record, size_t size, char delimiter)
{
    uint8_t *exact = malloc(size), *out = malloc(size);
    memcpy(exact, record, size);
    struct cw_csv_split s = cw_csv_split(exact, size, delimiter);
    struct cw_csv_field f;
    size_t n = 0;
    int r;
    while ((r = cw_csv_next(&s, &f)) > 0) {
        const uint8_t *text = (const uint8_t *)f.text;
        struct cw_csv_field t = cw_csv_trim(&f);
        if (text < exact || text + f.size > exact + size || cw_csv_unescape(&f, (char *)out) > f.size ||
            t.size > f.size)
            abort();
        n += f.size;
        sink += cw_csv_missing(&t);
    }
    if (n > size)
        abort();
    free(exact);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char delimiter = cw_format_delimiter(CW_FORMAT_CSV + (data[0] & 3));
    struct cw_csv_walk whole, pieces;
    int r = walk(&whole, delimiter, data + 1, size - 1, size);
    int again = walk(&pieces, delimiter, data + 1, size - 1, 1 + (size_t)(data[0] >> 2));
    const struct cw_record_list *a = &whole.base.list, *b = &pieces.base.list;
    if (r != again || a->n != b->n)
        abort();
    uint64_t end = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (a->offsets[i] != b->offsets[i] || a->lengths[i] != b->lengths[i] || a->offsets[i] < end ||
            a->lengths[i] == 0)
            abort();
        end = a->offsets[i] + a->lengths[i];
        if (end > size - 1)
            abort();
        use_record(data + 1 + a->offsets[i], a->lengths[i], delimiter);
    }
    cw_walk_deinit(&whole.base);
    cw_walk_deinit(&pieces.base);
    return 0;
}
