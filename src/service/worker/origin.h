/* The origin of a stream. A source that is a Python iterable can only be read from its start, so only one
 * worker reads it: the origin, which the dispatcher chooses. All workers, including the origin, request the
 * elements of their ranges from the origin. It keeps elements that a range may need a second time. A stream
 * (stream.c) with such a source owns a struct cw_origin, on every worker. */
#pragma once
#include "dataset/sequence.h"
#include "pipeline/source.h"
#include "service/worker/common.h"
#include "service/worker/mailbox.h"

struct cw_origin;

/* ---- the stream's thread ---- */

/* Makes the origin, and starts its thread, which sends answers through the mailbox. name: id of the stream,
 * 16 bytes. The source is sequence->stream. interrupt: set to not 0 when the stream ends. All pointers are
 * borrowed until cw_origin_free. */
int cw_origin_new(const uint8_t *name, const struct cw_sequence *sequence, const volatile int *interrupt,
                  struct cw_mailbox *mailbox, struct cw_origin **ret, struct cw_error *err) _must_check_;
/* Returns the functions with which the runner requests elements. Owned by the origin. */
const struct cw_pull_away *cw_origin_away(const struct cw_origin *o);
/* Ends the thread that reads the source. Call after the runner is freed, and before the source is. Accepts
 * NULL. */
void cw_origin_stop(struct cw_origin *o);

/* ---- the loop's thread ---- */

/* The dispatcher named the worker that is the origin. passed: clients need no elements before this place. */
void cw_origin_name(struct cw_origin *o, const struct cw_worker_common *common,
                    const Cachew__WorkerAddress *a, const Cachew__Place *passed);
/* Queues a Pull of another worker, with message id `id`. It is answered with PULLED. */
int cw_origin_serve(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const Cachew__Pull *m,
                    struct cw_error *err) _must_check_;
/* Call when the stream ends: closes the connection to the origin. Accepts NULL. */
void cw_origin_close(struct cw_origin *o);
/* Frees the origin. Call after the stream's thread has ended. Accepts NULL. */
void cw_origin_free(struct cw_origin *o);
