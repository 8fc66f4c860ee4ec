/*
 * An iterable can only be read from its start, so one worker of a service reads it: the origin of the stream,
 * which the dispatcher names. All workers, the origin too, request the elements of their ranges from it. It
 * keeps elements that a range may need a second time. A stream (stream.c) owns one of these where its source
 * is an iterable.
 */
#pragma once
#include "dataset/sequence.h"
#include "pipeline/source.h"
#include "service/worker/common.h"
#include "service/worker/mailbox.h"

struct cw_origin;

/* ---- the stream's thread ---- */

/* name: of the stream, 16 bytes. The source is sequence->stream. interrupt: not 0: the stream ends. The
 * origin's own thread sends answers through the mailbox. All stay the caller's. */
int cw_origin_new(const uint8_t *name, const struct cw_sequence *sequence, const volatile int *interrupt,
                  struct cw_mailbox *mailbox, struct cw_origin **ret, struct cw_error *err) _must_check_;
const struct cw_pull_away *cw_origin_away(const struct cw_origin *o);
/* Ends the thread that reads the source. After the runner was freed, before the source is. NULL is ignored.
 */
void cw_origin_stop(struct cw_origin *o);

/* ---- the loop's thread ---- */

/* The dispatcher names the worker that is the origin, and clients need nothing before `passed`. */
void cw_origin_name(struct cw_origin *o, const struct cw_worker_common *common,
                    const Cachew__WorkerAddress *a, const Cachew__Place *passed);
/* Queues a request of another worker. PULLED, with this id, answers it. */
int cw_origin_serve(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const Cachew__Pull *m,
                    struct cw_error *err) _must_check_;
/* The stream ends: closes the connection to the origin. NULL is ignored. */
void cw_origin_close(struct cw_origin *o);
/* After the stream's thread has ended. NULL is ignored. */
void cw_origin_free(struct cw_origin *o);
