/*
 * Sequencers: which batch of a course is handed out next. In exact order it is the next one; unordered, it
 * may also be one of this rank's that is ready before its turn.
 */
#pragma once
#include "remote/assembly.h"

struct course;

/* As cw_producer_ops.next. The consumer's thread; mutex not held. */
int cw_course_next(struct course *c, uint64_t n_ahead, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
