/*
 * Rows of a range as bytes, on their way to the process that joins them (docs/protocol.md, "Rows"): not yet
 * padded, each with its own shape, and with the places of records that were skipped.
 */
#pragma once
#include "engine/assembly.h"

struct cw_part {
    uint8_t *data;
    size_t size;
    struct cw_record_id *ids; /* n; those of skipped records too */
    uint64_t n;
    size_t *offsets; /* n + 1: where each begins in data, and the end; NULL where they came from elsewhere */
    struct cw_quarantined *quarantined;
};

void cw_part_deinit(struct cw_part *m);
/* Elements from .. from + n - 1 of a; outside any budget. An element among them that failed, and is not
 * skipped, is an error: its own. */
int cw_part_read(const struct cw_assembly *a, uint64_t from, uint64_t n, struct cw_part *ret,
                 struct cw_error *err) _must_check_;
/* Appends all of m to dst, of the same pipeline. CW_E_BUDGET: nothing was appended. CW_E_DATA: m is not what
 * the pipeline makes, or does not fit in dst. */
int cw_part_join(struct cw_assembly *dst, const struct cw_part *m, struct cw_error *err) _must_check_;
