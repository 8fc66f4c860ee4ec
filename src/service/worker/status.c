/* Collects the status of a worker in w->status. Its readers are pages.c, heartbeat.c and other threads
 * (through worker.h). Only the thread of the worker's loop calls cw_status_update. */
#include "service/worker/status.h"

#include <stdio.h>

#include "base/machine.h"
#include "base/thread.h"
#include "host/host.h"
#include "service/worker/worker_impl.h"

void cw_status_update(struct cw_worker *w)
{
    const struct cw_clients *clients = &w->clients;
    struct cw_worker_status s = {.registered = w->uplink.state == CW_UPLINK_REGISTERED,
                                 .refused = w->uplink.state == CW_UPLINK_REFUSED,
                                 .draining = w->common.draining,
                                 .id = w->common.id,
                                 .n_out = clients->n_out,
                                 .n_batches = clients->stats.n_batches,
                                 .n_bytes = clients->stats.n_bytes,
                                 .memory_used = atomic_load(&clients->handed_out.used)};
    snprintf(s.why, sizeof(s.why), "%s", w->uplink.why);
    for (const struct cw_worker_stream *t = w->streams.list; t; t = t->next) {
        s.n_streams++;
        s.n_leases += t->grants.n;
        s.memory_used += cw_stream_memory_used(t->stream);
    }
    for (const struct cw_client *c = clients->list; c; c = c->next)
        s.n_clients++;
    for (const struct cw_answer *a = w->reports.list; a; a = a->next)
        s.n_reports++;
    CW_GUARD(&w->mutex);
    w->status = s;
    pthread_cond_broadcast(&w->status_changed);
}

uint64_t cw_status_cpu_ns(void)
{
    return (uint64_t)(cw_cpu_s(false) * 1e9) + cw_host_cpu_ns();
}
