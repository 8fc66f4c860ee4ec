/* What the files of this folder share: struct cw_file (file.c, file_check.c), lists of paths (paths.c,
 * pattern.c). */
#pragma once
#include <stdatomic.h>
#include <sys/types.h>

#include "objects/object.h"
#include "storage/file.h"

struct cw_file {
    struct cw_stat was;            /* status when it was indexed */
    atomic_int_least64_t ctime_ns; /* the last change time with which the content was found to be the same */
    cw_file_same *same;            /* compares the content with the index; NULL: no comparison possible */
    struct cw_object *object;      /* the file is an object of a server; NULL: a local file */
    const void *index;             /* for same; borrowed */
    size_t number;                 /* of the file in the index, for same */
    /* the turn (cw_file_unchanged) in which the file was last found unchanged, plus 1; 0: none */
    atomic_uint_least64_t looked_at;
    atomic_uint_least64_t checked_ns; /* the file was unchanged at this time or later, by cw_now_ns */
    /* only file.c uses these, except path: */
    atomic_int pins;     /* CLOSED, or the number of users of fd */
    int fd;              /* valid while pins >= 0 */
    atomic_uchar recent; /* the file was used since the hand of the clock algorithm (file.c) last passed it */
    atomic_uchar no_nowait; /* the file system does not support RWF_NOWAIT */
    char path[];
};

/* file.c */
/* Makes a second handle of an open file, to compare its content. The handle accepts any change time and is
 * not in the table of open descriptors. The caller frees *ret, also on failure. */
int cw_file_duplicate(const struct cw_file *f, int fd, struct cw_file **ret,
                      struct cw_error *err) _must_check_;

/* file_check.c: checks that the open file is unchanged since it was indexed. Returns 0; 1: with nowait, the
 * check would have to read the file; CW_E_DATA: it changed. */
int cw_file_check_fd(struct cw_file *f, int fd, bool nowait, struct cw_error *err) _must_check_;

/* paths.c */
/* Adds a copy of path. */
int cw_paths_add(struct cw_paths *p, const char *path, struct cw_error *err) _must_check_;
/* object_pattern.c */
/* Adds the objects that match a pattern, which is an address. literal: the pattern without backslashes, up to
 * its first wildcard. wild: it has one. */
int cw_glob_objects(const char *pattern, const char *literal, bool wild, struct cw_paths *found,
                    struct cw_error *err) _must_check_;

/* Sorts by bytes. */
void cw_paths_sort(struct cw_paths *p);
/* Returns what a file that is not a regular one is: "a directory", "a pipe", "a socket" or "a device". */
const char *cw_mode_name(mode_t mode);
