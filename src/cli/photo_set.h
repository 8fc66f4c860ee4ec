/*
 * Makes a set of photographs, like ImageNet's in size and number of bytes: the data of `cachew demo`, of the
 * tests and of the benchmarks. Pictures are cut at random places and scales out of real photographs, or out
 * of drawn landscapes (cli/photo_draw.h). The label of a picture is the number of the photograph.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"

#define PHOTO_SET_MOST 10000000 /* pictures */
#define PHOTO_SET_MOST_THREADS 256

struct photo_set {
    const char *dir; /* of the set: TFRecord shards, or a directory of JPEG files for each label */
    bool tfrecord;
    const struct cli_texts
        *sources;                 /* directories with photographs (JPEG, PNG); none: landscapes are drawn */
    uint64_t count, shards, seed; /* shards: number of TFRecord files */
    unsigned threads;             /* 1 to PHOTO_SET_MOST_THREADS */
    bool progress;                /* print to stderr how many pictures are made */
    atomic_int *stop;             /* not 0: end with CW_E_INTERRUPTED */
};

struct photo_set_report {
    bool existed; /* the directory holds this set already: nothing was made */
    unsigned n_photographs;
    uint64_t bytes; /* of all pictures */
    double seconds;
};

/* Makes the set. It depends on all but `threads`. It is made in DIR.partial, which is renamed when the set is
 * complete, and removed after an error. CW_E_OPTION: the directory holds something else. */
int photo_set_make(const struct photo_set *set, struct photo_set_report *ret,
                   struct cw_error *err) _must_check_;
