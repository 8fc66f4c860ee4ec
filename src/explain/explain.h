/* What the compiler made of a pipeline and, after running it for some seconds, where the time goes, what
 * limits the rate and what would help: for `cachew explain` and the C interface. Everything is put in one
 * JSON object (docs/cli.md and docs/explain.md tell its keys), and the text for people is made of that. */
#pragma once
#include "base/text.h"
#include "session/local.h"

struct cw_explain_options {
    const char *name; /* of the pipeline, for people */
    uint64_t seed;
    unsigned threads;
    size_t memory;
    bool optimize;
    double seconds;        /* to run it */
    double rate;           /* elements per second that are taken at most; 0: as many as come */
    double wait;           /* deadline for a batch; 0: none */
    const char *index_dir; /* as for cw_local_open */
    /* where caches are tried, in a directory of their own; NULL: among temporary files */
    const char *cache_dir;
    /* set by another thread: what runs ends with CW_E_INTERRUPTED; may be NULL */
    const volatile int *interrupt;
};

/* Adds to facts what is known of the pipeline, whose sources are open. */
int cw_explain_pipeline(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                        struct cw_error *err) _must_check_;
/* Runs it and adds `run`, `tuning`, `costs`, `bottleneck` and `remedies`. */
int cw_explain_run(struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                   struct cw_error *err) _must_check_;
/* Tries those of the remedies that can be tried here, each for o->seconds, and the pipeline as it is before
 * and after them, and adds `checks`. */
int cw_explain_check(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                     struct cw_error *err) _must_check_;
/* Each for people; NULL or an object without what they tell: nothing. */
void cw_explain_pipeline_text(const json_t *facts, struct cw_text *t);
void cw_explain_run_text(const json_t *facts, struct cw_text *t);
void cw_explain_check_text(const json_t *facts, struct cw_text *t);
