/* Memory that workers on this host share with this process. Links and batches own references; the loop's
 * thread maps and unmaps. The mutex must be held, unless a comment says otherwise. */
#include "remote/shm_loan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/array.h"

#define MAX_REGIONS 4096     /* most regions of one worker */
#define SLABS_PER_RETURN 256 /* most slabs that one message Return names */

struct shm_region {
    uint64_t id;
    uint8_t *data;
    size_t size;
};

struct shm_map *cw_shm_map_new(const uint8_t worker[16])
{
    struct shm_map *m = calloc(1, sizeof(*m));
    if (m) {
        m->refs = 1;
        cw_list_init(&m->loans);
        memcpy(m->worker, worker, sizeof(m->worker));
    }
    return m;
}

void cw_shm_map_unref(struct shm_map *m)
{
    if (!m || --m->refs > 0)
        return;
    for (size_t i = 0; i < m->n_regions; i++)
        munmap(m->regions[i].data, m->regions[i].size);
    free(m->regions);
    free(m);
}

/* Returns the region with this id; NULL: the map has none. m may be NULL. */
static const struct shm_region *shm_map_region(const struct shm_map *m, uint64_t id)
{
    for (size_t i = 0; m && i < m->n_regions; i++)
        if (m->regions[i].id == id)
            return &m->regions[i];
    return NULL;
}

/* Maps a region. Checks its seals and size first, so that the worker can't shrink the memory later. Returns
 * the same as cw_shm_map_add_region. */
static int shm_region_map(struct shm_region *ret, uint64_t worker, const Cachew__Region *m, const int *fds,
                          size_t n_fds, struct cw_error *err)
{
    struct stat st;
    if (n_fds == 0) {
        (void)cw_error_set(err, CW_E_SERVICE,
                           "no file descriptor of the memory arrived: this process may have too many open "
                           "files (ulimit -n)");
        return 1;
    }
    int seals = fcntl(fds[0], F_GET_SEALS);
    if (n_fds > 1 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fds[0], &st) < 0 ||
        (uint64_t)st.st_size < m->size || m->size == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "worker %" PRIu64 " sent memory (region %" PRIu64
                            ") that is not sealed shared memory of %" PRIu64 " bytes" CW_OTHER_VERSION,
                            worker, m->region, m->size);
    void *data = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fds[0], 0);
    if (data == MAP_FAILED) {
        cw_error_errno(err, CW_E_SERVICE, errno,
                       "can't map %" PRIu64
                       " bytes of the memory (a limit of the address space, ulimit -v, may be too small)",
                       m->size);
        return 1;
    }
    /* a forked child must not write to it, and gets copies of the batches that it may read (shm_loan_fork.c)
     */
    (void)madvise(data, m->size, MADV_DONTFORK);
    *ret = (struct shm_region){.id = m->region, .data = data, .size = m->size};
    return 0;
}

int cw_shm_map_add_region(struct shm_map *m, uint64_t worker, const Cachew__Region *region, const int *fds,
                          size_t n_fds, struct cw_error *err)
{
    if (!m || m->n_regions == MAX_REGIONS || shm_map_region(m, region->region))
        return cw_error_set(err, CW_E_SERVICE,
                            "worker %" PRIu64 " shared region %" PRIu64
                            " of its memory: expected a new region, and at most %d regions" CW_OTHER_VERSION,
                            worker, region->region, MAX_REGIONS);
    if (CW_ARRAY_ROOM(m->regions, m->capacity, m->n_regions + 1, "regions", err) < 0)
        return CW_E_MEMORY;
    int r = shm_region_map(&m->regions[m->n_regions], worker, region, fds, n_fds, err);
    m->n_regions += r == 0;
    return r;
}

void cw_shm_map_leave(struct shm_map *m)
{
    Cachew__Keep keep = {CW_MESSAGE(keep)};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_KEEP, .keep = &keep};
    /* if sending fails, the worker frees the memory when this process ends */
    (void)!cw_conn_send(m->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL);
}

int cw_shm_map_resume(struct shm_map *m, struct cw_conn *c, struct cw_error *err)
{
    size_t n = 0;
    CW_LIST_EACH_OF (l, struct shm_loan, link, &m->loans)
        n += l->n;
    _cleanup_free_ uint64_t *ids = malloc((m->n_regions + n + 1) * sizeof(*ids));
    if (!ids)
        return cw_error_nomem(err, (m->n_regions + n) * sizeof(*ids), "the shared memory of a worker");
    Cachew__Keep keep = {CW_MESSAGE(keep), .regions = ids, .slabs = ids + m->n_regions};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_KEEP, .keep = &keep};
    for (; keep.n_regions < m->n_regions; keep.n_regions++)
        ids[keep.n_regions] = m->regions[keep.n_regions].id;
    CW_LIST_EACH_OF (l, const struct shm_loan, link, &m->loans)
        for (unsigned i = 0; i < l->n; i++)
            keep.slabs[keep.n_slabs++] = l->slabs[i];
    m->conn = c;
    return m->n_regions ? cw_conn_send(c, &e, NULL, 0, NULL, NULL, NULL, 0, err) : 0;
}

/* ---- loans ---- */

int cw_shm_loan_new(struct shm_map *m, uint64_t worker, const Cachew__Batch *batch, struct shm_loan **ret,
                    struct cw_error *err)
{
    struct shm_loan *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "a batch");
    l->map = m;
    for (size_t i = 0; i < batch->n_slabs; i++) {
        const Cachew__Slab *s = batch->slabs[i];
        const struct shm_region *region = shm_map_region(m, s->region);
        if (i >= CW_COUNT_OF(l->slabs) || !region || s->offset > region->size ||
            s->size > region->size - s->offset) {
            free(l);
            return cw_error_set(
                err, CW_E_SERVICE,
                "worker %" PRIu64 " sent a batch in memory that it did not share" CW_OTHER_VERSION, worker);
        }
        l->memory[i] = (struct cw_memory){.data = region->data + s->offset, .size = s->size};
        l->slabs[l->n++] = s->slab;
    }
    *ret = l;
    return 0;
}

void cw_shm_loan_begin(struct shm_loan *l)
{
    l->map->refs++;
    cw_list_add(&l->map->loans, &l->link);
}

void cw_shm_loan_end(struct shm_loan *l)
{
    cw_link_out(&l->link);
    cw_shm_map_unref(l->map);
}

void cw_shm_loans_return(struct shm_loan **list, struct shm_loan **ret_done)
{
    while (*list) {
        uint64_t slabs[SLABS_PER_RETURN];
        struct shm_loan *l, **at = list;
        struct shm_map *map = (*list)->map;
        Cachew__Return m = {CW_MESSAGE(return), .slabs = slabs};
        Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_RETURN_SLABS,
                              .return_slabs = &m};
        while ((l = *at) && m.n_slabs + CW_COUNT_OF(l->slabs) <= CW_COUNT_OF(slabs)) {
            if (l->map != map) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            for (unsigned i = 0; i < l->n; i++)
                slabs[m.n_slabs++] = l->slabs[i];
            l->next = *ret_done;
            *ret_done = l;
        }
        if (map->conn && cw_conn_send(map->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL) < 0)
            return; /* sending failed, and the connection ends */
    }
}
