/* Statistics of cache points: what a process measured of each cache variant, that is, of using one of the
 * cache points or none. No locks: callers own all structs. */
#include "policy/cache_stats.h"

#include "base/macro.h"

/* A time counts as measured from this many positions on. */
#define KNOWN 16.0
/* Reading does not pay if it takes more than this many times as long as computing. */
#define SLOWER 1.25
/* After only FEW positions, reading does not pay if it takes more than MUCH_SLOWER times as long. */
#define MUCH_SLOWER 4.0
#define FEW 4.0

double cw_cache_compute_s(const struct cw_cache_stats *s)
{
    size_t k = 0;
    while (k + 1 < s->n && !(s->variants[k].compute_s > 0))
        k++;
    return s->variants[k].compute_s;
}

bool cw_cache_is_slow(double n_read, double read_s, double n_computed, double compute_s)
{
    return n_read >= FEW && n_computed >= KNOWN &&
           read_s > (n_read >= KNOWN ? SLOWER : MUCH_SLOWER) * compute_s;
}

static void cache_sum_add(struct cw_cache_sum *k, double compute_s, const struct cw_cache_variant_stats *m)
{
    bool known = compute_s > 0 && (m->was_read || m->read_s > 0),
         from_storage = m->was_read && m->store_s > 0;
    k->workers++;
    k->bytes += m->bytes;
    k->cached += m->cached;
    k->written += m->written;
    k->unread += m->unread;
    k->known += known;
    k->saved_s += known ? compute_s - m->read_s : 0;
    k->computing += compute_s > 0;
    k->compute_s += compute_s;
    k->reading += m->was_read;
    k->read_s += m->was_read ? m->read_s : 0;
    k->store_s += m->was_read ? m->store_s : 0;
    k->stored += from_storage;
    k->speed += from_storage ? m->bytes / m->store_s : 0;
}

void cw_cache_sums_add(struct cw_cache_sum *sums, const struct cw_cache_stats *first,
                       const struct cw_cache_stats *s)
{
    double compute_s = cw_cache_compute_s(s);
    for (size_t i = 1; i < first->n; i++)
        for (size_t k = 1; k < s->n; k++)
            if (s->variants[k].cache_point == first->variants[i].cache_point)
                cache_sum_add(&sums[i - 1], compute_s, &s->variants[k]);
}

void cw_cache_facts_of(const struct cw_cache_stats *first, const struct cw_cache_sum *sums, int32_t in_use,
                       double per_batch, struct cw_facts *f, struct cw_cache_point_facts *points)
{
    const struct cw_cache_sum *read = NULL;
    f->cache_points = points;
    f->cache_point = -1;
    for (size_t i = 1; i < first->n; i++) {
        const struct cw_cache_sum *k = &sums[i - 1];
        bool used = first->variants[i].cache_point == in_use;
        if (used) {
            f->cache_point = f->n_cache_points;
            f->unread = k->unread >= k->workers / 2;
        }
        if (k->reading > 0 && (!read || used))
            read = k;
        points[f->n_cache_points++] = (struct cw_cache_point_facts){
            .name = first->variants[i].name,
            .prefix_s = k->known > 0 ? per_batch * k->saved_s / k->known : 0,
            .bytes = per_batch * k->bytes / k->workers,
            .cached = k->cached / k->workers,
            .written = CW_MIN(k->written, 1)};
    }
    if (read)
        f->storage.read_bytes_per_s = read->stored > 0 ? read->speed / read->stored * read->workers : 0;
}
