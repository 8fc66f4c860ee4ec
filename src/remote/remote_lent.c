/* Memory that workers on this host lend: mapped once per piece, given back batch by batch, kept over the end
 * of a connection. The loop's thread, mutex held. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/array.h"
#include "remote/remote_impl.h"

#define MAX_REGIONS 4096

struct mapping *cw_mapping_new(const uint8_t worker[16])
{
    struct mapping *m = calloc(1, sizeof(*m));
    if (m) {
        m->refs = 1;
        cw_list_init(&m->batches);
        memcpy(m->worker, worker, sizeof(m->worker));
    }
    return m;
}

void cw_mapping_unref(struct mapping *m)
{
    if (!m || --m->refs > 0)
        return;
    for (size_t i = 0; i < m->n_regions; i++)
        munmap(m->regions[i].data, m->regions[i].size);
    free(m->regions);
    free(m);
}

void cw_mapping_add(struct mapping *m, struct remote_batch *b)
{
    m->refs++;
    cw_list_add(&m->batches, &b->lent_link);
}

void cw_mapping_remove(struct remote_batch *b)
{
    cw_link_out(&b->lent_link);
    cw_mapping_unref(b->mapping);
}

const struct region *cw_mapping_region(const struct mapping *m, uint64_t id)
{
    for (size_t i = 0; m && i < m->n_regions; i++)
        if (m->regions[i].id == id)
            return &m->regions[i];
    return NULL;
}

/* Maps it. Whoever made it can't shrink it any more: seals and size are looked at before. 1: this process
 * can't have it, and *err says why. */
static int map_region(struct link *l, const Cachew__Region *m, const int *fds, size_t n_fds,
                      struct region *ret, struct cw_error *err)
{
    struct stat st;
    if (n_fds == 0) {
        (void)cw_error_set(err, CW_E_SERVICE,
                           "no descriptor came with it: there may be too many open files (ulimit -n)");
        return 1;
    }
    int seals = fcntl(fds[0], F_GET_SEALS);
    if (n_fds > 1 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fds[0], &st) < 0 ||
        (uint64_t)st.st_size < m->size || m->size == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "worker %" PRIu64 ": region %" PRIu64 " is no sealed memory of %" PRIu64 " bytes",
                            l->worker, m->region, m->size);
    void *data = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fds[0], 0);
    if (data == MAP_FAILED) {
        cw_error_errno(err, CW_E_SERVICE, errno,
                       "%" PRIu64 " bytes of it can't be mapped (ulimit -v limits the address space)",
                       m->size);
        return 1;
    }
    /* a child must not write to it, and has copies of what it may read (remote_fork.c) */
    (void)madvise(data, m->size, MADV_DONTFORK);
    *ret = (struct region){.id = m->region, .data = data, .size = m->size};
    return 0;
}

int cw_mapping_on_region(struct link *l, const Cachew__Region *m, const int *fds, size_t n_fds,
                         struct cw_error *err)
{
    struct mapping *map = l->mapping;
    struct region region;
    if (!map || map->n_regions == MAX_REGIONS || cw_mapping_region(map, m->region))
        return cw_error_set(err, CW_E_SERVICE,
                            "worker %" PRIu64 ": region %" PRIu64 " came: expected a new one, and at most %d",
                            l->worker, m->region, MAX_REGIONS);
    if (CW_ARRAY_ROOM(map->regions, map->regions_room, map->n_regions + 1, "regions", err) < 0)
        return CW_E_MEMORY;
    int r = map_region(l, m, fds, n_fds, &region, err);
    if (r == 1) { /* the connection ends with this, and the next one does without */
        struct cw_error why = *err;
        l->copies = why;
        l->same_again = true;
        return cw_error_set(err, CW_E_SERVICE,
                            "this process can't have the memory that worker %" PRIu64
                            " lends, and asks for copies: %.300s",
                            l->worker, why.message);
    }
    if (r == 0)
        map->regions[map->n_regions++] = region;
    return r;
}

void cw_mapping_leave(struct mapping *m)
{
    Cachew__Keep keep = {CW_MESSAGE(keep)};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_KEEP, .keep = &keep};
    /* else all is free when this process ends */
    (void)!cw_conn_send(m->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL);
}

int cw_mapping_again(struct mapping *m, struct cw_conn *c, struct cw_error *err)
{
    size_t n = 0;
    CW_LIST_EACH_OF (b, struct remote_batch, lent_link, &m->batches)
        n += b->n_lent;
    _cleanup_free_ uint64_t *names = malloc((m->n_regions + n + 1) * sizeof(*names));
    if (!names)
        return cw_error_nomem(err, (m->n_regions + n) * sizeof(*names), "what a worker lent");
    Cachew__Keep keep = {CW_MESSAGE(keep), .regions = names, .slabs = names + m->n_regions};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_KEEP, .keep = &keep};
    for (; keep.n_regions < m->n_regions; keep.n_regions++)
        names[keep.n_regions] = m->regions[keep.n_regions].id;
    CW_LIST_EACH_OF (b, const struct remote_batch, lent_link, &m->batches)
        for (unsigned i = 0; i < b->n_lent; i++)
            keep.slabs[keep.n_slabs++] = b->lent[i];
    m->conn = c;
    return m->n_regions ? cw_conn_send(c, &e, NULL, 0, NULL, NULL, NULL, 0, err) : 0;
}
