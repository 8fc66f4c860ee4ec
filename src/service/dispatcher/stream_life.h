/* The life of streams: a stream is found or created for a job; while it is used, its low-water mark moves;
 * without clients it is parked (taken from the workers) or forgotten. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* ret: a stream that the job of this Attach can share, or a new stream. */
int cw_dp_stream_get(struct cw_dispatcher *d, const Cachew__Attach *a, struct stream **ret,
                     struct cw_error *err) _must_check_;
/* Adds a stream. If there are too many, one without a job is forgotten. */
int cw_dp_stream_new(struct cw_dispatcher *d, const uint8_t id[16], const uint8_t fingerprint[16],
                     const char *json, uint64_t seed, const char *base_dir, struct stream **ret,
                     struct cw_error *err) _must_check_;
/* Call when the last job of the stream left. Removes the stream's ranges; its workers stay ready for DP_WARM.
 */
void cw_dp_stream_idle(struct cw_dispatcher *d, struct stream *s);
/* Moves the base of the stream's range table to the least cursor of its ranks, and removes and revokes
 * earlier ranges. */
void cw_dp_stream_mark(struct cw_dispatcher *d, struct stream *s);
/* Removes the stream from the tables and from the workers. References of pending journal entries keep the
 * struct. */
void cw_dp_stream_free(struct cw_dispatcher *d, struct stream *s);
/* Call on each tick: forgets or parks streams without clients, ends shunning, and looks for late ranges. */
void cw_dp_stream_tick(struct cw_dispatcher *d);
