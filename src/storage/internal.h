/* What file.c and file_check.c share. */
#pragma once
#include <stdatomic.h>

#include "storage/file.h"

struct cw_file {
    struct cw_stat was;            /* when it was indexed */
    atomic_int_least64_t ctime_ns; /* the last that its content was the same with */
    cw_file_same *same;            /* NULL: nothing to compare with */
    const void *index;
    size_t number;                    /* in index */
    atomic_uint_least64_t looked_at;  /* the turn in which it was unchanged, and 1; 0: none */
    atomic_uint_least64_t checked_ns; /* by cw_now_ns: it was unchanged after that */
    /* file.c only, but for path: */
    atomic_int pins;        /* CLOSED, or how many reads use fd now */
    int fd;                 /* valid while pins >= 0 */
    atomic_uchar recent;    /* used since the clock's hand passed */
    atomic_uchar no_nowait; /* the file system does not know RWF_NOWAIT */
    char path[];
};

/* file.c */
/* Another handle of an open file, to compare what has its name now, whatever its change time. Not in the
 * table. The caller frees it, also where this fails. */
int cw_file_duplicate(const struct cw_file *f, int fd, struct cw_file **ret,
                      struct cw_error *err) _must_check_;

/* file_check.c: whether what is open still is what was indexed. 1: that takes reading. */
int cw_file_check_fd(struct cw_file *f, int fd, bool nowait, struct cw_error *err) _must_check_;
