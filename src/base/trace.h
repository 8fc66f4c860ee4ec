/*
 * Spans of ranges and batches, as a file in Chrome's trace format (chrome://tracing,
 * ui.perfetto.dev): docs/metrics.md, "Traces". Any thread. Lines are written whole, so that the file of a
 * killed process can be read. Spans that do not fit are counted.
 */
#pragma once
#include "base/error.h"

#define CW_TRACE_BYTES ((uint64_t)256 << 20) /* limit for the size of a file: about a million spans */

struct cw_trace;

/* Creates the file, or empties it. process: the process's name in the display. limit: bytes of the file at
 * most. CW_E_OPTION: the file can't be written. */
int cw_trace_open(const char *path, const char *process, uint64_t limit, struct cw_trace **ret,
                  struct cw_error *err) _must_check_;
/* What a span is about: a range of a stream (batch = CW_TRACE_RANGE), or a request for batch number `batch`
 * of a range, counted from the range's begin, or for elements of a key. */
#define CW_TRACE_RANGE UINT64_MAX

struct cw_traced {
    const uint8_t *stream; /* 16 bytes */
    uint64_t epoch, begin, batch;
    unsigned key;
};

/* Adds a span. name: a constant without characters that JSON escapes. Times are those of cw_now_ns. t NULL:
 * does nothing. */
void cw_trace_span(struct cw_trace *t, const char *name, const struct cw_traced *what, uint64_t from_ns,
                   uint64_t to_ns);
/* Ends the file and frees t. CW_E_IO: not everything could be written. */
int cw_trace_close(struct cw_trace *t, struct cw_error *err) _must_check_;
