/* What the compiler made of a pipeline and, after running it for some seconds, where the time goes: for `cachew explain` and the C interface.
 * Everything is put in one JSON object (docs/cli.md tells its keys), and the text for people is made of that. */
#pragma once
#include "base/text.h"
#include "client/local.h"

struct cw_explain_options {
    const char *name;   /* of the pipeline, for people */
    uint64_t seed;
    unsigned threads;
    size_t memory;
    bool optimize;
    double seconds;     /* to run it */
    double wait;        /* deadline for a batch; 0: none */
    const volatile int *interrupt; /* set by another thread: cw_explain_run ends with CW_E_INTERRUPTED; may be NULL */
};

/* Adds to facts what is known of the pipeline, whose sources are open. */
int cw_explain_pipeline(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts, struct cw_error *err) _must_check_;
/* Runs it and adds `run`. */
int cw_explain_run(struct cw_local *l, const struct cw_explain_options *o, json_t *facts, struct cw_error *err) _must_check_;
/* Both for people; the latter takes the value of `run`. */
void cw_explain_pipeline_text(const json_t *facts, struct cw_text *t);
void cw_explain_run_text(const json_t *run, struct cw_text *t);
