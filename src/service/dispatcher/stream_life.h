/* The life of streams: found or made for a job, their low-water mark, parked or forgotten without clients. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* *ret: a stream that the job of this Attach can share, or a new one. */
int cw_dp_stream_get(struct cw_dispatcher *d, const Cachew__Attach *a, struct stream **ret,
                     struct cw_error *err) _must_check_;
/* Adds a stream; one that is kept ready without a job makes room. */
int cw_dp_stream_new(struct cw_dispatcher *d, const uint8_t id[16], const uint8_t fingerprint[16],
                     const char *json, uint64_t seed, const char *base_dir, struct stream **ret,
                     struct cw_error *err) _must_check_;
/* Its last job left: its ranges are removed, its workers stay ready for a while. */
void cw_dp_stream_idle(struct cw_dispatcher *d, struct stream *s);
/* Moves the base of its ranges to the least cursor: earlier ranges are removed and revoked. */
void cw_dp_stream_mark(struct cw_dispatcher *d, struct stream *s);
/* Removes it from the tables and the workers; journal entries under way keep the struct. */
void cw_dp_stream_free(struct cw_dispatcher *d, struct stream *s);
/* Forgets streams without clients, ends shunning, and looks for late ranges. */
void cw_dp_stream_tick(struct cw_dispatcher *d);
