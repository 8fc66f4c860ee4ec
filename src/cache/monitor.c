/* Records the steps of the store's thread, and reports its trouble. */
#include "cache/monitor.h"

#include "base/cost_clock.h"
#include "base/notice.h"
#include "base/thread.h"
#include "cache/files.h"

#define BACKOFF_NS UINT64_C(1000000000)       /* the first delay; each further one is twice as long */
#define BACKOFF_MOST_NS UINT64_C(60000000000) /* the longest delay */

void cw_cache_monitor_init(struct cw_cache_monitor *m, const char *dir)
{
    *m = (struct cw_cache_monitor){.dir = dir};
    pthread_mutex_init(&m->mutex, NULL);
    cw_cond_init(&m->work);
    cw_cond_init(&m->progress);
}

void cw_cache_monitor_deinit(struct cw_cache_monitor *m)
{
    pthread_cond_destroy(&m->work);
    pthread_cond_destroy(&m->progress);
    pthread_mutex_destroy(&m->mutex);
}

void cw_cache_monitor_step(struct cw_cache_monitor *m, const char *step)
{
    CW_GUARD(&m->mutex);
    m->step = step;
    m->step_ns = cw_now_ns();
}

void cw_cache_monitor_trouble(struct cw_cache_monitor *m, struct cw_cache_backoff *b, const char *file, int e)
{
    if (b) {
        b->ns = b->ns ? CW_MIN(2 * b->ns, BACKOFF_MOST_NS) : BACKOFF_NS;
        b->until_ns = cw_now_ns() + b->ns;
    }
    CW_GUARD(&m->mutex);
    bool *noticed = file ? &m->file_noticed : &m->disk_noticed;
    if (e && !*noticed)
        cw_notice("cachew: cache %s%s%s: %s; the run goes on without %s", m->dir, file ? "/" : "",
                  file ? file : "", cw_cache_why(e), file ? "it" : "writing to it for a while");
    *noticed |= e != 0;
}

uint64_t cw_cache_monitor_deadline(const struct cw_cache_monitor *m, uint64_t began_ns)
{
    uint64_t since_ns = m->step ? CW_MAX(m->step_ns, began_ns) : cw_now_ns();
    return since_ns + cw_cost_patience_ns(CW_CACHE_STEP_NS);
}
