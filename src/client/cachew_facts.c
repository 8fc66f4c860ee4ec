/* What can be told of a pipeline once its sources are open, without running it. */
#include "client/cachew_impl.h"

/* Of an epoch over all ranks. 1: not known beforehand. */
static int count_batches(const struct cw_local *l, uint64_t *ret)
{
    const struct cw_compiled *c = l->compiled;
    uint64_t n = l->sequence->n_positions;
    if (!c->counted)
        return 1;
    *ret = n >= CW_ENDLESS ? UINT64_MAX : n / c->batch_size + (!c->drop_remainder && n % c->batch_size);
    return 0;
}

int cachew_pipeline_batches(const struct cachew_pipeline *p, const struct cachew_options *options, uint64_t *ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_local l = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    uint64_t n = 0;
    unsigned threads;
    int r = cw_api_read_options(options, &o, &e);
    if (r >= 0)
        r = cw_api_open(p, &o, &l, &threads, &e);
    if (r >= 0)
        r = count_batches(&l, &n);
    cw_local_deinit(&l);
    if (r < 0)
        return cw_api_fail(r, &e, err);
    if (r == 0) /* the last round is padded */
        *ret = n == UINT64_MAX ? n : n / o.world_size + (n % o.world_size != 0);
    return r;
}
