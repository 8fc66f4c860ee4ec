/* The tree that index operators make: sequence.c builds it, epoch.c looks positions up in it. Immutable once built. */
#pragma once
#include "pipeline/sequence.h"

enum seq_kind { SEQ_SOURCE, SEQ_CONCAT, SEQ_CUT, SEQ_REPEAT, SEQ_SHUFFLE };

struct cw_seq {
    enum seq_kind kind;
    uint64_t n;
    struct cw_seq **children;
    size_t n_children;
    unsigned leaf;          /* SOURCE */
    const struct cw_source *source;
    uint64_t from;          /* CUT: first position of the child */
    uint64_t count;         /* REPEAT: passes; CW_ENDLESS */
    uint64_t passes;        /* numbers of combined passes of the finite repeats from here down: below 2^32, as in a cw_ref */
    char *salt;             /* SHUFFLE */
    /* SHUFFLE: chunks of the child. Either all of `uniform` positions (the last may be shorter), or by cumulative ends. */
    uint64_t uniform;
    uint64_t n_chunks;
    uint64_t *ends;
};
