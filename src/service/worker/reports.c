#include "service/worker/reports.h"

#include <string.h>

#include "base/crash.h"

static void report_send(struct cw_reports *all, struct cw_report *r)
{
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = r->epoch,       .begin = r->begin,          .end = r->end,
        .n_batches = r->n_batches, .elements = r->elements, .n_elements = r->n_elements};
    Cachew__Completed completed = {CW_MESSAGE(completed), .report = &report, .lease = r->lease,
                                   .last = r->last, .stream = {.data = r->stream, .len = sizeof(r->stream)}};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_COMPLETED,
                          .completed = &completed};
    m.id = r->id = ++all->uplink->next_id;
    cw_crash_point("worker-completed");
    cw_uplink_send(all->uplink, &m);
}

static void reports_append(struct cw_reports *all, struct cw_report *r)
{
    r->next = NULL;
    *all->tail = r;
    all->tail = &r->next;
}

void cw_reports_completed(struct cw_reports *all, struct cw_worker_stream *s, struct cw_answer *a)
{
    struct cw_report *r = malloc(sizeof(*r));
    if (!r) {
        cw_streams_end_without_memory(s);
        return;
    }
    *r = (struct cw_report){.epoch = a->epoch,
                            .begin = a->begin,
                            .end = a->end,
                            .n_batches = a->n_batches,
                            .lease = a->lease,
                            .elements = CW_STEAL(a->elements),
                            .n_elements = a->n_elements,
                            .last = a->last};
    memcpy(r->stream, s->stream->name, sizeof(r->stream));
    struct cw_grant *g = cw_grants_find(&s->grants, a->epoch, a->begin);
    if (g && g->number == a->lease)
        g->end = a->end; /* it may have been shortened */
    reports_append(all, r);
    report_send(all, r);
}

/* Hands an acknowledged report to its grant, if that is still there; else frees it. */
static void report_keep(struct cw_reports *all, struct cw_report *r)
{
    struct cw_worker_stream *s = cw_streams_find(
        all->streams, (ProtobufCBinaryData){.data = r->stream, .len = sizeof(r->stream)});
    struct cw_grant *g = s ? cw_grants_find(&s->grants, r->epoch, r->begin) : NULL;
    if (g && g->number == r->lease && !g->report)
        g->report = r;
    else
        cw_report_free(r);
}

void cw_reports_answered(struct cw_reports *all, uint64_t id, bool acknowledged)
{
    struct cw_report **at = &all->list;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct cw_report *r = *at;
    if (!r)
        return;
    *at = r->next;
    if (!r->next)
        all->tail = at;
    if (acknowledged)
        report_keep(all, r);
    else
        cw_report_free(r);
}

void cw_reports_forget(struct cw_reports *all, ProtobufCBinaryData stream)
{
    struct cw_report **at = &all->list;
    while (*at)
        if (stream.len == sizeof((*at)->stream) && memcmp(stream.data, (*at)->stream, stream.len) == 0)
            cw_report_free(CW_POP(*at));
        else
            at = &(*at)->next;
    all->tail = at;
}

void cw_reports_send_all(struct cw_reports *all)
{
    for (struct cw_worker_stream *s = all->streams->list; s; s = s->next)
        for (struct cw_grant *g = s->grants.list; g; g = g->next)
            if (g->report)
                reports_append(all, CW_STEAL(g->report));
    for (struct cw_report *r = all->list; r; r = r->next)
        report_send(all, r);
}

void cw_reports_init(struct cw_reports *all, struct cw_streams *streams, struct cw_uplink *uplink)
{
    *all = (struct cw_reports){.streams = streams, .uplink = uplink, .tail = &all->list};
}

void cw_reports_deinit(struct cw_reports *all)
{
    while (all->list)
        cw_report_free(CW_POP(all->list));
}
