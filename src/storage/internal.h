/* struct cw_file, which file.c and file_check.c share. */
#pragma once
#include <stdatomic.h>

#include "storage/file.h"

struct cw_file {
    struct cw_stat was;            /* status when it was indexed */
    atomic_int_least64_t ctime_ns; /* the last change time with which its content was the same */
    cw_file_same *same;            /* compares the content with the index; NULL: nothing does */
    const void *index;
    size_t number;                    /* of the file in the index */
    atomic_uint_least64_t looked_at;  /* the turn in which it was found unchanged, plus 1; 0: none */
    atomic_uint_least64_t checked_ns; /* by cw_now_ns: the file was unchanged after that */
    /* file.c only, but for path: */
    atomic_int pins;        /* CLOSED, or the number of users of fd */
    int fd;                 /* valid while pins >= 0 */
    atomic_uchar recent;    /* used since the clock's hand passed */
    atomic_uchar no_nowait; /* the file system does not know RWF_NOWAIT */
    char path[];
};

/* file.c */
/* Makes another handle of an open file, which accepts any change time and is not in the table, to compare its
 * content. The caller frees *ret, also on failure. */
int cw_file_duplicate(const struct cw_file *f, int fd, struct cw_file **ret,
                      struct cw_error *err) _must_check_;

/* file_check.c: checks that the open file is still what was indexed. 1: with nowait, that takes reading. */
int cw_file_check_fd(struct cw_file *f, int fd, bool nowait, struct cw_error *err) _must_check_;
