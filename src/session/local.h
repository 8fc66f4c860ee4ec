/* A session takes a pipeline from its text to its batches, in this process. struct cw_local owns everything
 * that this needs. cli/, api/, explain/ and remote/ use it. */
#pragma once
#include "session/reading.h"
#include "order/iterator.h"

/* Larger files are refused: they are no pipelines. */
#define CW_MAX_PIPELINE_BYTES ((size_t)16 << 20)

/* The numbers of the batches that must come next, counted independently of the iterator, to find a batch that
 * is delivered out of order. */
struct cw_expected {
    uint64_t epoch, g; /* the first batch that was not received yet */
    uint64_t received; /* order any: bit i is set if batch g + i * world_size was received */
    struct cw_iterator_options options;
};

struct cw_local {
    json_t *root; /* the pipeline as JSON, settings applied */
    /* set before compiling: moves of operators that do not change results are not made */
    bool as_written;
    struct cw_pipeline *pipeline;
    struct cw_compiled *compiled;
    struct cw_sequence *sequence;
    struct cw_iterator *iterator;
    struct cw_expected expected;            /* numbers that the iterator's batches must have */
    struct cw_cache *cache;                 /* NULL: none */
    struct cw_reading_probe *reading_probe; /* NULL: there is none */
    /* the probe's result: how fast records are read; NULL: the records are in memory, or the speed is not
     * known */
    const struct cw_reading *reading;
    struct cw_autocache *autocache; /* chooses the cache point; NULL: the first one stays in use */
    struct cw_producer *remote;     /* the iterator's producer, if a service computes; else NULL */
    /* files must lie in these directories or below; none: files may lie anywhere */
    const char *const *data_roots;
    size_t n_data_roots;
    /* another thread sets it: then opening sources and making the iterator end with CW_E_INTERRUPTED. May be
     * NULL */
    const volatile int *interrupt;
    struct cw_tuned_log tuned; /* tuning records from before the run (tuning.h) */
};

/* Reads and compiles a pipeline file. settings: "PATH=VALUE" (`2.size=64`), where VALUE is JSON, or else a
 * string. Opens no data. */
int cw_local_load(struct cw_local *l, const char *file, const char *const *settings, size_t n_settings,
                  struct cw_error *err) _must_check_;
/* As cw_local_load, from text and without settings. Relative paths are relative to base_dir. */
int cw_local_parse(struct cw_local *l, const char *text, size_t size, const char *base_dir,
                   struct cw_error *err) _must_check_;
/* As cw_local_parse, from JSON, to which l->root gets a reference. */
int cw_local_compile(struct cw_local *l, const json_t *root, const char *base_dir,
                     struct cw_error *err) _must_check_;
/* Returns the pipeline as JSON, as written in the order in which it runs. New reference; NULL: out of memory.
 */
json_t *cw_local_root_as_run(const struct cw_local *l);
/* Opens the sources, and makes their indexes where these are missing. index_dir NULL: cw_index_dir(). memory:
 * bytes that decompression may take meanwhile. */
int cw_local_open(struct cw_local *l, const char *index_dir, unsigned threads, size_t memory,
                  struct cw_error *err) _must_check_;
/* Makes the iterator over the opened sequence. Makes l->autocache, too, if the runner is adaptive. */
int cw_local_iterate(struct cw_local *l, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_error *err) _must_check_;
/* Makes the iterator over a producer, which it takes over, also on failure. */
int cw_local_over(struct cw_local *l, struct cw_producer *producer, const struct cw_iterator_options *o,
                  const json_t *state, struct cw_error *err) _must_check_;
/* As cw_iterator_offer and cw_iterator_next. CW_E_BUG: the batch has another number g than the next batch
 * must have. */
int cw_local_offer(struct cw_local *l, uint64_t timeout_ns, struct cw_batch **ret,
                   struct cw_error *err) _must_check_;
int cw_local_next(struct cw_local *l, uint64_t timeout_ns, struct cw_batch **ret,
                  struct cw_error *err) _must_check_;
/* Sets l->reading for the opened sequence, unless it is set already. memory: bytes of the run's budget. Takes
 * up to 0.4 s where records are not in memory. */
void cw_local_probe_reading(struct cw_local *l, uint64_t memory);
void cw_local_deinit(struct cw_local *l);

/* Returns the directory of indexes: $CACHEW_INDEX_DIR, else $XDG_CACHE_HOME/cachew/index, else
 * ~/.cache/cachew/index. The caller frees it; NULL: there is none. */
char *cw_index_dir(void);
