/* Explains a pipeline: describes it as compiled and, after running it for some seconds, reports where the
 * time goes, what limits the rate and what would raise it. All facts are put in one JSON object (docs/cli.md,
 * docs/explain.md), from which the text for users is made. `cachew explain` and the C interface call it. */
#pragma once
#include "base/text.h"
#include "explain/measure.h"

struct cw_explain_options {
    const char *name;              /* of the pipeline, shown to users */
    struct cw_measure_options run; /* how to run the pipeline; `seconds` includes the time to settle */
    const char *index_dir;         /* as for cw_local_open */
    /* caches are tried in a new directory below this one; NULL: below $TMPDIR, else /tmp */
    const char *cache_dir;
};

/* Adds to `facts` what is known of the pipeline without running it. Its sources must be open. */
int cw_explain_pipeline(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                        struct cw_error *err) _must_check_;
/* Runs the pipeline and adds `run`, `tuning`, `costs`, `bottleneck` and `remedies` to `facts`. */
int cw_explain_run(struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                   struct cw_error *err) _must_check_;
/* Tries the remedies that can be tried on this machine, each for o->run.seconds, and the unchanged pipeline
 * before and after them. Adds `checks` to `facts`. */
int cw_explain_check(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                     struct cw_error *err) _must_check_;
/* Adds the text for users to t: first the bottleneck and the remedies, if the pipeline ran; then the
 * pipeline, and the run. facts: from cw_explain_pipeline, and from cw_explain_run if it was called. */
void cw_explain_text(const json_t *facts, struct cw_text *t);
/* Adds the text about trials to t; nothing if facts has none. */
void cw_explain_check_text(const json_t *facts, struct cw_text *t);
