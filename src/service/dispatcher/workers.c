/* The table of workers: lookup, and adding workers. */
#include "service/dispatcher/workers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/map_each.h"
#include "service/dispatcher/state.h"

struct worker *cw_dp_worker_find(struct cw_dispatcher *d, uint64_t id)
{
    return cw_dp_map_next(&d->workers.by_id, id, NULL,
                          offsetof(struct worker, by_id)); /* the hash is the id */
}

struct worker *cw_dp_worker_find_incarnation(struct cw_dispatcher *d, const uint8_t incarnation[16])
{
    DP_MAP_EACH(w, struct worker, by_incarnation, &d->workers.by_incarnation, cw_hash64(incarnation, 16))
    if (memcmp(w->incarnation, incarnation, 16) == 0)
        return w;
    return NULL;
}

int cw_dp_worker_new(struct cw_dispatcher *d, uint64_t id, const uint8_t incarnation[16], struct worker **ret,
                     struct cw_error *err)
{
    struct worker *w = malloc(sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a worker");
    *w = (struct worker){.id = id, .rates.cache_part = NAN};
    memcpy(w->incarnation, incarnation, 16);
    cw_list_init(&w->assignments);
    bool by_id = cw_map_add(&d->workers.by_id, &w->by_id, id) == 0;
    if (!by_id ||
        cw_map_add(&d->workers.by_incarnation, &w->by_incarnation, cw_hash64(incarnation, 16)) < 0) {
        if (by_id)
            cw_map_remove(&d->workers.by_id, &w->by_id);
        free(w);
        return cw_error_nomem(err, sizeof(*w), "a worker");
    }
    cw_list_add(&d->workers.list, &w->link);
    d->workers.n++;
    *ret = w;
    return 0;
}

bool cw_dp_worker_able(const struct worker *w)
{
    return w->ready && w->leaving == WORKER_STAYS;
}

bool cw_dp_worker_full(const struct worker *w)
{
    return w->room.short_of_memory || (w->info->max_streams > 0 && w->room.n_streams >= w->info->max_streams);
}

Cachew__WorkerAddress cw_dp_worker_address(const struct worker *w)
{
    return (Cachew__WorkerAddress){CW_MESSAGE(worker_address),      .worker = w->id,
                                   .host = w->last_peer->host,      .unix_path = w->info->unix_path,
                                   .addresses = w->info->addresses, .n_addresses = w->info->n_addresses};
}

const char *cw_dp_worker_place(const struct worker *w)
{
    return w->info->n_addresses > 0 ? w->info->addresses[0] : w->info->unix_path;
}
