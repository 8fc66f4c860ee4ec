/* Explains a pipeline: what the compiler made of it and, after running it for some seconds, where the time
 * goes, what limits the rate and what would help. All facts are put in one JSON object (docs/cli.md,
 * docs/explain.md), and the text for people is made of that. `cachew explain` and the C interface call it. */
#pragma once
#include "base/text.h"
#include "explain/measure.h"

struct cw_explain_options {
    const char *name;              /* of the pipeline, for people */
    struct cw_measure_options run; /* how to run it; `seconds` with those that it settles */
    const char *index_dir;         /* as for cw_local_open */
    /* caches are tried in a new directory below this one; NULL: below the one for temporary files */
    const char *cache_dir;
};

/* Adds what is known of the pipeline without running it. Its sources must be open. */
int cw_explain_pipeline(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                        struct cw_error *err) _must_check_;
/* Runs it and adds `run`, `tuning`, `costs`, `bottleneck` and `remedies`. */
int cw_explain_run(struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                   struct cw_error *err) _must_check_;
/* Adds `checks`: tries the remedies that can be tried on this machine, each for o->seconds, and the pipeline
 * as it is before and after them. */
int cw_explain_check(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                     struct cw_error *err) _must_check_;
/* Adds the text for people. Adds nothing if facts is NULL, or lacks the facts for it. */
void cw_explain_pipeline_text(const json_t *facts, struct cw_text *t);
void cw_explain_run_text(const json_t *facts, struct cw_text *t);
void cw_explain_check_text(const json_t *facts, struct cw_text *t);
