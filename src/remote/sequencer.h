/* Sequencers choose which batch of a course is handed out next. A course is the plan of an epoch's batches
 * (course.h). In exact order it is the batch with the next number; unordered, it may also be a later batch of
 * this rank that is ready. */
#pragma once
#include "remote/assembly.h"

struct course;

/* Waits for the batch n_ahead batches after the next one of the course, and takes it; passes the batches
 * before it, which belong to other ranks. *ret: its assembly, which the caller owns. Returns the same as
 * cw_producer_ops.next (order/producer.h). The consumer's thread; the mutex of struct remote must not be
 * held. */
int cw_course_next(struct course *c, uint64_t n_ahead, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
