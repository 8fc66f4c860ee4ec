/*
 * Reports of finished ranges to the dispatcher. A report is sent until it is acknowledged, and again to the
 * next dispatcher as long as its range is leased. The loop's thread only; owned by worker.c.
 */
#pragma once
#include "service/worker/streams.h"
#include "service/worker/uplink.h"

struct cw_reports {
    struct cw_streams *streams;
    struct cw_uplink *uplink;
    /* COMPLETED, not acknowledged, in the order of sending; `re` is the id of the message on this connection
     */
    struct cw_answer *list;
};

void cw_reports_deinit(struct cw_reports *all);
/* A range is finished: sends its report. Takes the answer over. */
void cw_reports_completed(struct cw_reports *all, struct cw_worker_stream *s, struct cw_answer *a);
/* The dispatcher answered report `id`. acknowledged: its grant keeps it; else the dispatcher does not know
 * the stream any more, and it is freed. */
void cw_reports_answered(struct cw_reports *all, uint64_t id, bool acknowledged);
/* Frees the reports of a stream. */
void cw_reports_forget(struct cw_reports *all, ProtobufCBinaryData stream);
/* Sends all reports, on a new connection. */
void cw_reports_send_all(struct cw_reports *all);
