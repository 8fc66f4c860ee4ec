/*
 * What ranges gave, to the dispatcher: said until it is acknowledged, and again to the next one, of all
 * ranges that are still leased: it may have no journal. The loop's thread only.
 */
#include <string.h>

#include "service/worker/worker_impl.h"

#include "base/crash.h"

static void say_report(struct cw_worker *w, struct report *r)
{
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = r->epoch,       .begin = r->begin,          .end = r->end,
        .n_batches = r->n_batches, .elements = r->elements, .n_elements = r->n_elements};
    Cachew__Completed completed = {CW_MESSAGE(completed), .report = &report, .lease = r->lease,
                                   .last = r->last, .stream = {.data = r->stream, .len = sizeof(r->stream)}};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_COMPLETED,
                          .completed = &completed};
    m.id = r->id = next_number(&w->next_id);
    cw_crash_point("worker-completed");
    cw_control_say(w, &m);
}

void cw_report_free(struct report *r)
{
    if (!r)
        return;
    free(r->elements);
    free(r);
}

static void append(struct cw_worker *w, struct report *r)
{
    r->next = NULL;
    *w->reports_tail = r;
    w->reports_tail = &r->next;
}

void cw_reports_completed(struct cw_worker *w, struct worker_stream *s, struct cw_answer *a)
{
    struct report *r = malloc(sizeof(*r));
    if (!r) {
        cw_worker_log(w, "out of memory: a stream ends");
        cw_streams_end(w, s);
        return;
    }
    *r = (struct report){.epoch = a->epoch,
                         .begin = a->begin,
                         .end = a->end,
                         .n_batches = a->n_batches,
                         .lease = a->lease,
                         .elements = CW_STEAL(a->elements),
                         .n_elements = a->n_elements,
                         .last = a->last};
    memcpy(r->stream, s->stream->name, sizeof(r->stream));
    struct lease *l = cw_streams_find_lease(s, a->epoch, a->begin);
    if (l && l->number == a->lease)
        l->end = a->end; /* it may have been shortened */
    append(w, r);
    say_report(w, r);
}

/* Acknowledged: it is kept with its lease, if that is still there. */
static void settle(struct cw_worker *w, struct report *r)
{
    struct worker_stream *s = cw_streams_find(
        w, (ProtobufCBinaryData){.data = r->stream, .len = sizeof(r->stream)});
    struct lease *l = s ? cw_streams_find_lease(s, r->epoch, r->begin) : NULL;
    if (l && l->number == r->lease && !l->report)
        l->report = r;
    else
        cw_report_free(r);
}

void cw_reports_answered(struct cw_worker *w, uint64_t id, bool done)
{
    struct report **at = &w->reports;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct report *r = *at;
    if (!r)
        return;
    *at = r->next;
    if (!r->next)
        w->reports_tail = at;
    if (done)
        settle(w, r);
    else
        cw_report_free(r);
}

void cw_reports_forget(struct cw_worker *w, ProtobufCBinaryData stream)
{
    struct report **at = &w->reports;
    while (*at)
        if (stream.len == sizeof((*at)->stream) && memcmp(stream.data, (*at)->stream, stream.len) == 0)
            cw_report_free(CW_POP(*at));
        else
            at = &(*at)->next;
    w->reports_tail = at;
}

void cw_reports_say(struct cw_worker *w)
{
    for (struct worker_stream *s = w->streams; s; s = s->next)
        for (struct lease *l = s->leases; l; l = l->next)
            if (l->report)
                append(w, CW_STEAL(l->report));
    for (struct report *r = w->reports; r; r = r->next)
        say_report(w, r);
}

void cw_reports_init(struct cw_worker *w)
{
    w->reports_tail = &w->reports;
}

void cw_reports_deinit(struct cw_worker *w)
{
    while (w->reports)
        cw_report_free(CW_POP(w->reports));
}
