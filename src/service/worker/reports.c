/* Reports of finished ranges to the dispatcher. The loop's thread only; owned by worker.c. */
#include "service/worker/reports.h"

#include <string.h>

#include "base/crash.h"

static void report_send(struct cw_reports *all, struct cw_answer *a)
{
    struct cw_report *r = &a->report;
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = a->epoch,       .begin = a->begin,          .end = a->end,
        .n_batches = r->n_batches, .elements = r->elements, .n_elements = r->n_elements};
    Cachew__Completed completed = {CW_MESSAGE(completed), .report = &report, .lease = r->lease,
                                   .last = r->last, .stream = {.data = r->stream, .len = sizeof(r->stream)}};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_COMPLETED,
                          .completed = &completed};
    m.id = a->re = ++all->uplink->next_id;
    cw_crash_point("worker-completed");
    cw_uplink_send(all->uplink, &m);
}

static void reports_append(struct cw_reports *all, struct cw_answer *a)
{
    a->next = NULL;
    *CW_LIST_END(all->list) = a;
}

void cw_reports_completed(struct cw_reports *all, struct cw_worker_stream *s, struct cw_answer *a)
{
    struct cw_grant *g = cw_grants_find(&s->grants, a->epoch, a->begin);
    if (g && g->number == a->report.lease)
        g->end = a->end; /* the range may have been ended early */
    memcpy(a->report.stream, s->stream->name, sizeof(a->report.stream));
    reports_append(all, a);
    report_send(all, a);
}

void cw_reports_answered(struct cw_reports *all, uint64_t id, bool acknowledged)
{
    struct cw_answer **at = &all->list;
    while (*at && (*at)->re != id)
        at = &(*at)->next;
    if (!*at)
        return;
    struct cw_answer *a = CW_POP(*at);
    struct cw_worker_stream *s = cw_streams_find(
        all->streams, (ProtobufCBinaryData){.data = a->report.stream, .len = sizeof(a->report.stream)});
    struct cw_grant *g = s && acknowledged ? cw_grants_find(&s->grants, a->epoch, a->begin) : NULL;
    if (g && g->number == a->report.lease && !g->report)
        g->report = a;
    else
        cw_answer_free(a);
}

void cw_reports_forget(struct cw_reports *all, ProtobufCBinaryData stream)
{
    for (struct cw_answer **at = &all->list; *at;)
        if (stream.len == sizeof((*at)->report.stream) &&
            memcmp(stream.data, (*at)->report.stream, stream.len) == 0)
            cw_answer_free(CW_POP(*at));
        else
            at = &(*at)->next;
}

void cw_reports_send_all(struct cw_reports *all)
{
    for (struct cw_worker_stream *s = all->streams->list; s; s = s->next)
        for (struct cw_grant *g = s->grants.list; g; g = g->next)
            if (g->report)
                reports_append(all, CW_STEAL(g->report));
    for (struct cw_answer *a = all->list; a; a = a->next)
        report_send(all, a);
}

void cw_reports_deinit(struct cw_reports *all)
{
    while (all->list)
        cw_answer_free(CW_POP(all->list));
}
