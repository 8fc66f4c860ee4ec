/* Reports of finished ranges to the dispatcher. A report is an answer of kind CW_ANSWER_COMPLETED from a
 * stream (mailbox.h). It is sent on each new connection until the dispatcher acknowledges it. An acknowledged
 * report stays with the range's grant (grants.h), and is sent again after a reconnect, as long as the range
 * is leased. The loop's thread only; owned by worker.c. */
#pragma once
#include "service/worker/streams.h"
#include "service/worker/uplink.h"

struct cw_reports {
    struct cw_streams *streams;
    struct cw_uplink *uplink;
    /* reports that are not acknowledged, in the order of sending. Owned. `re` of a report is the id of its
     * last message */
    struct cw_answer *list;
};

/* Frees all reports. */
void cw_reports_deinit(struct cw_reports *all);
/* Call when a range of stream s is finished: sends its report. Takes ownership of the report a. */
void cw_reports_completed(struct cw_reports *all, struct cw_worker_stream *s, struct cw_answer *a);
/* Call when the dispatcher answered the message `id`; does nothing if that was not a report. acknowledged
 * true: the report moves to the range's grant, if there still is one. False: the dispatcher does not know the
 * stream any more, and the report is freed. */
void cw_reports_answered(struct cw_reports *all, uint64_t id, bool acknowledged);
/* Frees the reports of a stream. */
void cw_reports_forget(struct cw_reports *all, ProtobufCBinaryData stream);
/* Call on a new connection: sends all reports, also those of grants. */
void cw_reports_send_all(struct cw_reports *all);
