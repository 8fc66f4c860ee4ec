/* Keeps the rows of a range by key, for a process that joins batches of several ranges. runner.h declares the
 * functions (cw_runner_part and the following); the consumer's thread calls them. */
#include "engine/range_rows.h"

#include <string.h>

#include "base/thread.h"
#include "engine/internal.h"

struct part {
    struct cw_range *s;
    unsigned key;
    uint64_t from, n;
    /* The batches that contain the rows, at most a full batch of rows. Copied from the range's list, which
     * may move meanwhile. */
    struct cw_assembly *batches[2];
    struct cw_assembly *joined;
};

/* Copies the rows into a new batch. The rows are complete, and only the consumer's thread drops them, so the
 * mutex need not be held while the copy counts as running. */
static int part_try(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct part *p = arg;
    uint64_t size = cw_key_size(r->compiled, p->key);
    struct cw_assembly *a = NULL;
    int status = cw_assembly_new(&r->layout, &r->memory.slabs, size, p->key, &a, err);
    for (uint64_t at = p->from; at < p->from + p->n && status >= 0;) {
        uint64_t slot = at % size, n = CW_MIN(size - slot, p->from + p->n - at);
        status = cw_assembly_join(a, p->batches[at / size - p->from / size], slot, n, err);
        at += n;
    }
    if (status < 0)
        a = cw_assembly_free(a);
    p->joined = a;
    return status;
}

/* Moves the reasons of skipped records. The part with the last row of a batch gets all reasons of that
 * batch. */
static void part_take_reasons(struct cw_runner *r, struct part *p)
{
    const struct key_rows *k = &p->s->keyed.by_key[p->key];
    uint64_t size = cw_key_size(r->compiled, p->key), end = p->from + p->n;
    for (uint64_t i = p->from / size; i * size < end; i++)
        if (end >= i * size + k->batches[i]->n_assigned)
            cw_quarantined_move(&k->batches[i]->quarantined, &p->joined->quarantined);
}

static int part_join(struct cw_runner *r, struct part *p, struct cw_assembly **ret, struct cw_error *err)
{
    const struct key_rows *k = &p->s->keyed.by_key[p->key];
    uint64_t first = p->from / cw_key_size(r->compiled, p->key);
    /* a starved block may take the memory of the rows while they are copied (compute.c) */
    if (r->memory.starved == STARVED_ALONE)
        return 2;
    for (uint64_t i = 0; i < 2 && first + i < k->n; i++)
        p->batches[i] = k->batches[first + i];
    r->sched.n_running++;
    pthread_mutex_unlock(&r->sched.mutex);
    int status = part_try(r, p, err);
    pthread_mutex_lock(&r->sched.mutex);
    cw_sched_leave(r, &r->sched.n_running);
    cw_sched_wake(r); /* because threads may wait until nothing runs */
    if (status == CW_E_BUDGET)
        status = cw_memory_try(r, part_try, p, p->s, true, CW_AT_ONCE, err);
    else
        cw_memory_served(r); /* it may have lacked memory in an earlier attempt */
    if (status == 0 && p->joined->error) {
        status = cw_error_copy(err, p->joined->error);
        p->joined = cw_assembly_free(p->joined);
    }
    if (status == 0) {
        part_take_reasons(r, p);
        r->memory.n_assemblies++;
        r->memory.n_handed++;
        p->joined->closed = true;
        *ret = p->joined;
    }
    return status;
}

/* Returns 0 if all of these rows are computed; 2: not yet; 1: the range has fewer; < 0: the range ends in an
 * error before them. Mutex held. */
static int rows_check(const struct cw_runner *r, const struct cw_range *s, unsigned key, uint64_t from,
                      uint64_t n, struct cw_error *err)
{
    const struct key_rows *k = &s->keyed.by_key[key];
    uint64_t size = cw_key_size(r->compiled, key), end = from + n;
    if (r->sched.fatal.status)
        return cw_error_copy(err, &r->sched.fatal);
    if (end <= s->counts.arrived[key]) {
        for (uint64_t i = from / size; i * size < end; i++) {
            const struct cw_assembly *a = i < k->n ? k->batches[i] : NULL;
            if (!a)
                return cw_error_set(err, CW_E_BUG,
                                    "element %llu of key %u is requested a second time; this is a defect of "
                                    "Cachew, please report it",
                                    (unsigned long long)from, key);
            if (!cw_range_copyable(s, a))
                return 2;
        }
        return 0;
    }
    if (!cw_range_computed(s))
        return 2;
    return s->failed ? cw_error_copy(err, s->failed) : 1;
}

bool cw_runner_part_there(struct cw_runner *r, const struct cw_range *s, unsigned key, uint64_t from,
                          uint64_t n)
{
    struct cw_error err = {0};
    CW_GUARD(&r->sched.mutex);
    return rows_check(r, s, key, from, n, &err) == 0;
}

int cw_runner_part(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t from, uint64_t n,
                   struct cw_assembly **ret, struct cw_error *err)
{
    uint64_t size = cw_key_size(r->compiled, key);
    CW_GUARD(&r->sched.mutex);
    int status = rows_check(r, s, key, from, n, err);
    if (status != 0)
        return status;
    struct cw_assembly **batch = &s->keyed.by_key[key].batches[from / size];
    if (n == size && from % size == 0 && !(*batch)->finishing) {
        if ((*batch)->error) /* the batch stays in the range, so that a second request gets the same error */
            return cw_error_copy(err, (*batch)->error);
        *ret = CW_STEAL(*batch); /* given away without a copy */
        s->keyed.n_held--;
        r->memory.n_handed++;
    } else {
        status = part_join(r, &(struct part){.s = s, .key = key, .from = from, .n = n}, ret, err);
    }
    if (status == 0)
        cw_quarantined_move(&s->quarantined, &(*ret)->quarantined);
    return status;
}

static void rows_forget(struct cw_runner *r, struct cw_range *s, unsigned key)
{
    struct key_rows *k = &s->keyed.by_key[key];
    for (uint64_t size = cw_key_size(r->compiled, key);
         k->first < k->n && (k->first + 1) * size <= k->dropped; k->first++) {
        struct cw_assembly *a = k->batches[k->first];
        if (!a)
            continue;
        if (!cw_assembly_complete(a) || a->finishing)
            return;
        k->batches[k->first] = NULL;
        cw_memory_drop_assembly(r, a); /* its reasons were moved with its last row */
        s->keyed.n_held--;
        cw_memory_released(r);
    }
}

void cw_range_forget_rows(struct cw_runner *r, struct cw_range *s)
{
    for (unsigned k = 0; s->rows && k < cw_n_keys(r->compiled); k++)
        rows_forget(r, s, k);
}

void cw_runner_drop_rows(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t upto)
{
    CW_GUARD(&r->sched.mutex);
    s->keyed.by_key[key].dropped = CW_MAX(s->keyed.by_key[key].dropped, upto);
    rows_forget(r, s, key);
}

int cw_runner_summary(struct cw_runner *r, struct cw_range *s, uint64_t *ret_elements, struct cw_error *err)
{
    CW_GUARD(&r->sched.mutex);
    int status = r->sched.fatal.status;
    if (status)
        *err = r->sched.fatal;
    else if (!cw_range_computed(s))
        status = 2;
    memcpy(ret_elements, s->counts.arrived, cw_n_keys(r->compiled) * sizeof(*ret_elements));
    return status == 0 && s->failed ? cw_error_copy(err, s->failed) : status;
}

bool cw_runner_stream_over(struct cw_runner *r, struct cw_range *s)
{
    CW_GUARD(&r->sched.mutex);
    return s->end < s->limit;
}

int cw_runner_keys(struct cw_runner *r, struct cw_range *s, uint16_t **ret, size_t *ret_n,
                   struct cw_error *err)
{
    CW_GUARD(&r->sched.mutex);
    bool one = r->compiled->n_buckets <= 1;
    size_t n = *ret_n = one ? s->counts.arrived[0] : s->keyed.n_keys;
    uint16_t *keys = *ret = calloc(n + 1, sizeof(*keys));
    if (keys && !one && n > 0)
        memcpy(keys, s->keyed.keys, n * sizeof(*keys));
    return keys ? 0 : cw_error_nomem(err, n * sizeof(*keys), "keys");
}

uint64_t cw_runner_rows_most(struct cw_runner *r)
{
    const struct cw_compiled *c = r->compiled;
    uint64_t size = c->batch_size;
    for (unsigned k = 0; k < c->n_buckets; k++)
        size = CW_MIN(size, c->bucket_sizes[k]);
    CW_GUARD(&r->sched.mutex);
    uint64_t most = size * CW_MAX(r->memory.max_assemblies / 4, 1u), group = CW_MAX(c->group, UINT64_C(1));
    most = CW_MIN(most, UINT64_C(1) << 20) / group * group;
    return CW_MAX(most, group); /* because ranges begin at multiples of the group */
}
