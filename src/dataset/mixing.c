/* Estimates how many chunks the elements of a batch come from, and describes that in a sentence. */
#include "dataset/mixing.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "dataset/orders.h"

/* Consecutive elements that are judged in a pipeline without batches. */
#define ROW UINT64_C(256)

/* Returns how many of `parts` equal parts of n positions the `batch` positions of a random selection come
 * from, on average. */
static double mixing_parts_met(double n, double parts, uint64_t batch)
{
    double missed = 1;
    for (uint64_t i = 0; i < batch && missed > 0; i++)
        missed *= fmax(1 - n / parts / (n - (double)i), 0);
    return parts * (1 - missed);
}

/* Returns a source that can't be read record by record; NULL: there is none. */
static const struct cw_source *mixing_find_compressed(const struct cw_seq *s)
{
    const struct cw_source *found = s->source && s->source->compressed ? s->source : NULL;
    for (size_t i = 0; i < s->n_children && !found; i++)
        found = mixing_find_compressed(s->children[i]);
    return found;
}

static void mixing_describe(struct cw_mixing *m, bool batched)
{
    const char *slash = m->compressed ? strrchr(m->compressed, '/') : NULL;
    const char *name = slash ? slash + 1 : m->compressed;
    char why[300], batch[48];
    snprintf(why, sizeof(why),
             !name           ? "because by=\"chunk\" is set"
             : m->row_groups ? "because %.255s is read by row groups"
                             : "because %.255s is compressed",
             name);
    snprintf(batch, sizeof(batch), "%s%" PRIu64 " %s", batched ? "a batch of " : "", m->batch,
             batched ? "comes" : "consecutive elements come");
    snprintf(m->says, sizeof(m->says),
             "shuffle (operator %u) is by chunk, %s: %s from about %.0f of %" PRIu64
             " chunks of %.0f records (shuffled by record: from %.0f); %s",
             m->position, why, batch, m->chunks_per_batch, m->chunks, m->chunk_records, m->chunks_by_record,
             m->row_groups ? "write smaller row groups, or the rows in random order"
             : name        ? "write the files uncompressed, or in random order"
                           : "this is good enough if neighbouring records have nothing in common");
    cw_text_clean(m->says, sizeof(m->says)); /* a file may have any name */
}

/* Returns whether a shuffle by chunk does not mix all positions, and the estimate. Each of several shuffles
 * by chunk in a row multiplies the number of chunks that the positions of a window come from. */
static bool mixing_estimate(const struct cw_sequence *q, const struct cw_seq *shuffle, struct cw_mixing *ret)
{
    const struct cw_compiled *c = q->compiled;
    double window = (double)q->window, n = (double)shuffle->n, parts = 1;
    for (const struct cw_seq *s = shuffle; s->n_children == 1 && !s->joins; s = s->children[0]) {
        if (!s->shuffle)
            continue;
        if (s->shuffle->kind != CW_SHUFFLE_CHUNKS || s->n <= q->window)
            return false;
        parts *= window * (double)s->shuffle->n_chunks / (double)s->n + 1;
    }
    const struct cw_source *compressed = mixing_find_compressed(shuffle);
    *ret = (struct cw_mixing){
        .position = shuffle->shuffle->position,
        .compressed = compressed ? compressed->compressed : NULL,
        .row_groups = compressed && compressed->row_groups,
        .chunks = shuffle->shuffle->n_chunks,
        .chunk_records = n / (double)shuffle->shuffle->n_chunks,
        .batch = c->batch_size > 1 ? c->batch_size : CW_MIN(ROW, q->window),
    };
    ret->chunks_per_batch = mixing_parts_met(window, fmin(parts, (double)ret->chunks), ret->batch);
    ret->chunks_by_record = mixing_parts_met(n, (double)ret->chunks, ret->batch);
    mixing_describe(ret, c->batch_size > 1);
    return true;
}

static void mixing_walk(const struct cw_sequence *q, const struct cw_seq *s, cw_mixing_found found, void *arg)
{
    struct cw_mixing m;
    if (s->shuffle && s->shuffle->kind == CW_SHUFFLE_CHUNKS && mixing_estimate(q, s, &m))
        found(arg, &m);
    for (size_t i = 0; i < s->n_children && !s->shuffle; i++)
        mixing_walk(q, s->children[i], found, arg);
}

void cw_mixing_each(const struct cw_sequence *q, cw_mixing_found found, void *arg)
{
    mixing_walk(q, q->root, found, arg);
}
