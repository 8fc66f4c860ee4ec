/*
 * A part: rows of a range as bytes, sent to the process that joins them into a batch (docs/protocol.md,
 * "Rows"). Rows are not yet padded, so each has its own shape. Skipped records keep their places.
 */
#pragma once
#include "engine/assembly.h"

struct cw_part {
    uint8_t *data;
    size_t size;
    struct cw_record_id *ids; /* n, including the ids of skipped records */
    uint64_t n;
    /* n + 1: where each row begins in data, and the end; NULL if the part came from another process */
    size_t *offsets;
    struct cw_quarantined *quarantined;
};

void cw_part_deinit(struct cw_part *m);
/* Copies elements from .. from + n - 1 of a into *ret, whose memory is outside any budget. If one of them
 * failed and is not skipped, returns its error. */
int cw_part_read(const struct cw_assembly *a, uint64_t from, uint64_t n, struct cw_part *ret,
                 struct cw_error *err) _must_check_;
/* Appends all rows of m to dst, a batch of the same pipeline. CW_E_BUDGET: nothing was appended. CW_E_DATA: m
 * does not match the pipeline's components, or does not fit in dst. */
int cw_part_join(struct cw_assembly *dst, const struct cw_part *m, struct cw_error *err) _must_check_;
