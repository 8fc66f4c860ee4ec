/*
 * Cachew: input pipelines for machine learning, in C.
 *
 *     struct cachew_error *err = NULL;
 *     struct cachew_pipeline *p;
 *     struct cachew_iterator *it;
 *     struct cachew_batch *b;
 *     int r = cachew_pipeline_load("train.json", &p, &err);
 *     if (r == 0)
 *         r = cachew_iterator_open(p, NULL, &it, &err);
 *     while (r == 0 && (r = cachew_iterator_next(it, -1, &b, &err)) == 0) {
 *         const struct cachew_component *image = cachew_batch_find(b, "image");
 *         ...
 *         cachew_batch_release(b);
 *     }
 *     if (r < 0)
 *         fprintf(stderr, "%s\n", cachew_error_message(err));
 *
 * Results. Functions that can fail return 0, or a negative enum cachew_status; a positive result is a
 * condition that the function documents. `ret` arguments are set only when the result is 0. The last
 * argument, err, may be NULL; else *err is set to a new error when the result is negative (and is not read
 * before), to be freed with cachew_error_free.
 *
 * Ownership. What a function `returns new` belongs to the caller, who frees it with the function of its type,
 * texts with cachew_free. `const` pointers are borrowed from the argument they were got from. All `_free`
 * functions accept NULL.
 *
 * Threads. Different objects may be used by different threads at the same time. One object is used by one
 * thread at a time, but for what is said otherwise: cachew_iterator_interrupt and cachew_batch_release may be
 * called from any thread at any time.
 *
 * Compatibility. Structures marked `opaque` are only reached through functions. Others may grow at their end.
 * Enumerations may grow.
 */
#ifndef CACHEW_H
#define CACHEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CACHEW_API __attribute__((visibility("default")))
#define CACHEW_CHECKED __attribute__((warn_unused_result))

/* "MAJOR.MINOR.PATCH" of the library. Static. */
CACHEW_API const char *cachew_version(void);
/* Frees a text that a function returned new. */
CACHEW_API void cachew_free(void *text);

/* ---- errors ---- */

enum cachew_status {
    CACHEW_OK = 0,
    CACHEW_E_RECORD = -1,   /* a record can't be computed */
    CACHEW_E_DATA = -2,     /* data are damaged or changed, beyond a single record */
    CACHEW_E_IO = -3,       /* the system refused: open, read, write */
    CACHEW_E_MEMORY = -4,   /* the system gave no memory */
    CACHEW_E_BUDGET = -5,   /* the memory budget is too small; the message says what the smallest is */
    CACHEW_E_PIPELINE = -6, /* the pipeline is wrong */
    CACHEW_E_OPTION = -7,   /* an option or argument is wrong */
    CACHEW_E_STATE = -8,    /* the state does not belong to this pipeline, data set and seed, or is damaged */
    CACHEW_E_SERVICE = -9,  /* the service can't be reached or refused */
    CACHEW_E_DEADLINE = -10,    /* no batch came in time */
    CACHEW_E_INTERRUPTED = -11, /* see cachew_iterator_interrupt */
    CACHEW_E_INTERNAL = -12,    /* an invariant of the library does not hold: please report it */
};

struct cachew_error; /* opaque */
CACHEW_API void cachew_error_free(struct cachew_error *e);
/* The negative status that the failed function returned. */
CACHEW_API int cachew_error_status(const struct cachew_error *e);
/* "record", "data", "io", "memory", "budget", "pipeline", "option", "state", "service", "deadline",
 * "interrupted", "internal". */
CACHEW_API const char *cachew_error_kind(const struct cachew_error *e);
/* One sentence for people, without a newline. Never NULL. */
CACHEW_API const char *cachew_error_message(const struct cachew_error *e);
/* Facts for programs; NULL where one does not apply. An operator's name; one of its attributes (or an
 * option), the value that was found and what was expected; a path; a record id. */
CACHEW_API const char *cachew_error_operator(const struct cachew_error *e);
CACHEW_API const char *cachew_error_attribute(const struct cachew_error *e);
CACHEW_API const char *cachew_error_value(const struct cachew_error *e);
CACHEW_API const char *cachew_error_expected(const struct cachew_error *e);
CACHEW_API const char *cachew_error_file(const struct cachew_error *e);
CACHEW_API const char *cachew_error_record(const struct cachew_error *e);

/* ---- pipelines ---- */

/* A chain of operators as written. Iterators copy what they need: a pipeline may be changed or freed while
 * they run. */
struct cachew_pipeline; /* opaque */

/* Reads a pipeline file (JSON). Relative paths in it are relative to the file. The pipeline is checked in
 * full; no data are touched. */
CACHEW_API int cachew_pipeline_load(const char *file, struct cachew_pipeline **ret,
                                    struct cachew_error **err) CACHEW_CHECKED;
/* The same from a text that ends with NUL; relative paths are relative to base_dir (NULL: the working
 * directory). */
CACHEW_API int cachew_pipeline_parse(const char *json, const char *base_dir, struct cachew_pipeline **ret,
                                     struct cachew_error **err) CACHEW_CHECKED;
/* Returns new an empty pipeline, to be filled by cachew_pipeline_add; NULL: no memory. base_dir as for
 * cachew_pipeline_parse. */
CACHEW_API struct cachew_pipeline *cachew_pipeline_new(const char *base_dir);
/* Appends an operator. attributes: a JSON object in a text, {"component": "image", "size": [224, 224]}; NULL:
 * all defaults. Name and attributes are checked at once, types when the pipeline is used. An error leaves the
 * pipeline as it was. */
CACHEW_API int cachew_pipeline_add(struct cachew_pipeline *p, const char *op, const char *attributes,
                                   struct cachew_error **err) CACHEW_CHECKED;
/* The same for an operator that stands first and has n pipelines as inputs (concat); they are copied. */
CACHEW_API int cachew_pipeline_add_inputs(struct cachew_pipeline *p, const char *op, const char *attributes,
                                          const struct cachew_pipeline *const *inputs, size_t n,
                                          struct cachew_error **err) CACHEW_CHECKED;
/* What happens when a record can't be computed: "raise" (default), "skip" or "replace". */
CACHEW_API int cachew_pipeline_set_on_error(struct cachew_pipeline *p, const char *on_error,
                                            struct cachew_error **err) CACHEW_CHECKED;
/* Checks the whole pipeline, types included, without touching data. */
CACHEW_API int cachew_pipeline_check(const struct cachew_pipeline *p,
                                     struct cachew_error **err) CACHEW_CHECKED;
/* Returns new the pipeline as JSON, as cachew_pipeline_parse and `cachew run` read it; NULL: no memory. */
CACHEW_API char *cachew_pipeline_json(const struct cachew_pipeline *p);
CACHEW_API void cachew_pipeline_free(struct cachew_pipeline *p);

/* Returns new a JSON object that describes all operators and their attributes, those of plug-ins too, the one
 * that `cachew ops --json` prints; NULL: no memory. */
CACHEW_API char *cachew_operators_json(void);

/* The interpreter and the program that run Python functions (operators map, filter_function, flat_map,
 * map_batches, iterable), for processes that are started from now on. Without this: $CACHEW_PYTHON, or
 * python3 beside the running program, or python3 in $PATH, with the package cachew. */
CACHEW_API int cachew_set_python(const char *python, const char *program,
                                 struct cachew_error **err) CACHEW_CHECKED;

/* Loads a plug-in, a shared object with operators (cachew/plugin.h): pipelines may use them from now on. A
 * file that is loaded already is left as it is. CACHEW_E_OPTION: it can't be loaded, is no plug-in, was made
 * for another ABI, has a wrong descriptor, or an operator with a name that is taken; nothing is added then.
 * There is no unloading. From any thread at any time. A plug-in is code in this process: load what you trust.
 */
CACHEW_API int cachew_load_plugin(const char *path, struct cachew_error **err) CACHEW_CHECKED;

/* ---- types ---- */

enum cachew_dtype {
    CACHEW_BOOL = 0,
    CACHEW_UINT8 = 1,
    CACHEW_UINT16 = 2,
    CACHEW_UINT32 = 3,
    CACHEW_UINT64 = 4,
    CACHEW_INT8 = 5,
    CACHEW_INT16 = 6,
    CACHEW_INT32 = 7,
    CACHEW_INT64 = 8,
    CACHEW_FLOAT16 = 9,
    CACHEW_BFLOAT16 = 10,
    CACHEW_FLOAT32 = 11,
    CACHEW_FLOAT64 = 12,
    CACHEW_BYTES = 13, /* byte strings of varying length; one per element */
};

/* "bool", "uint8", ..., "bytes"; NULL for an unknown number. Static. */
CACHEW_API const char *cachew_dtype_name(enum cachew_dtype dtype);
/* Bytes of a value; 0 for CACHEW_BYTES. */
CACHEW_API size_t cachew_dtype_size(enum cachew_dtype dtype);

#define CACHEW_MAX_NDIM 6 /* of an element; a batch has one more */
#define CACHEW_VARIES \
    (-1) /* a dimension that differs from element to element, or a rank that is not known beforehand */

/* ---- data sets in memory ---- */

/* One component of all elements, one after the other. */
struct cachew_array {
    const char *name;
    enum cachew_dtype dtype;
    int ndim;
    const int64_t *dims; /* of one element: ndim, each at least 1 */
    const void *data;    /* C-contiguous. CACHEW_BYTES: all strings, one after the other */
    /* CACHEW_BYTES: string i is data[offsets[i]] .. data[offsets[i + 1] - 1], n_elements + 1 of them; else
     * NULL */
    const uint64_t *offsets;
};

/* Data for the operator `arrays`: {"op": "arrays", "data": "<id>"}. Pipelines and iterators that name the id
 * keep the data, as this object does. Immutable: any thread may use it. */
struct cachew_arrays; /* opaque */

/* data and offsets stay where they are and must not change (with a cache, data that did end the iteration:
 * CACHEW_E_DATA); names and dims are copied. release(arg), which may be NULL, is called by the thread that
 * drops the last reference; it is not called when the result is negative. All data are read once, for the id.
 */
CACHEW_API int cachew_arrays_new(const struct cachew_array *arrays, size_t n_arrays, uint64_t n_elements,
                                 void (*release)(void *arg), void *arg, struct cachew_arrays **ret,
                                 struct cachew_error **err) CACHEW_CHECKED;

/* Consumes a stream of the Arrow C stream interface (a struct per batch, a component per column) and releases
 * it, in case of error too. Its data are used where they are, in as many batches as it has, and released as
 * above; bools, and what stands behind a dictionary, are expanded. Taken are integers, floats and bool;
 * strings and binary of all kinds, as CACHEW_BYTES; fixed-size lists of numbers, as dimensions; lists of
 * numbers, as a first dimension that varies; dictionaries of numbers and strings. Nulls and other types are
 * errors that name the column. */
struct ArrowArrayStream; /* <cachew/arrow.h> has it */
CACHEW_API int cachew_arrays_from_arrow(struct ArrowArrayStream *stream, struct cachew_arrays **ret,
                                        struct cachew_error **err) CACHEW_CHECKED;

/* 32 hexadecimal digits: a hash of names, dtypes, shapes and content. Borrowed. */
CACHEW_API const char *cachew_arrays_id(const struct cachew_arrays *a);
/* How many elements. */
CACHEW_API uint64_t cachew_arrays_count(const struct cachew_arrays *a);
CACHEW_API void cachew_arrays_free(struct cachew_arrays *a);

/* ---- schema: what elements of a pipeline look like ---- */

struct cachew_schema; /* opaque; does not refer to the pipeline */
/* Compiles the pipeline, without touching data. */
CACHEW_API int cachew_pipeline_schema(const struct cachew_pipeline *p, struct cachew_schema **ret,
                                      struct cachew_error **err) CACHEW_CHECKED;
/* Components, in byte order of their names, as batches have them. Of one that is not there (i >= count) the
 * name is NULL, the dtype one without a name, all else CACHEW_VARIES. */
CACHEW_API size_t cachew_schema_count(const struct cachew_schema *s);
CACHEW_API const char *cachew_schema_name(const struct cachew_schema *s, size_t i);
CACHEW_API enum cachew_dtype cachew_schema_dtype(const struct cachew_schema *s, size_t i);
/* Dimensions of one element, without that of the batch; CACHEW_VARIES: not known beforehand. */
CACHEW_API int cachew_schema_ndim(const struct cachew_schema *s, size_t i);
/* Dimension k < ndim, or CACHEW_VARIES. */
CACHEW_API int64_t cachew_schema_dim(const struct cachew_schema *s, size_t i, int k);
/* Elements of a full batch (the largest, where there are several sizes); 0: the pipeline does not batch, and
 * components have no batch dimension. */
CACHEW_API uint64_t cachew_schema_batch_size(const struct cachew_schema *s);
CACHEW_API void cachew_schema_free(struct cachew_schema *s);

/* ---- iterators ---- */

/* Fill with CACHEW_OPTIONS_INIT, then set what should differ. */
struct cachew_options {
    size_t size;    /* sizeof(struct cachew_options) of the program */
    int64_t seed;   /* of shuffles and draws; -1: the pipeline's, else 0 */
    int64_t epochs; /* -1: the pipeline's, else 1; INT64_MAX: without end, but for an epoch without batches */
    unsigned threads; /* that compute; 0: as many as there are CPUs for this process (affinity and cgroup) */
    /* this iterator gets batch g where g (in the epoch of a state: g - the state's g) modulo world_size is
     * rank */
    unsigned rank;
    unsigned world_size; /* 0: 1 */
    int optimize;        /* 0: run operators as written; the results are the same, bit by bit */
    /* bytes for everything but batches handed out; 0: half of what the cgroup or the machine has */
    uint64_t memory;
    const char *state; /* go on from here: a text from cachew_iterator_state; NULL: from the start */
    /* where indexes of data sets are kept; NULL: $CACHEW_INDEX_DIR, else ~/.cache/cachew/index */
    const char *index_dir;
    /* without a state: the epoch to begin with, 0 or less than epochs, which is the one to end before */
    int64_t first_epoch;
    /* opening ends soon, with CACHEW_E_INTERRUPTED, when another thread has set it; NULL: none does */
    const volatile int *interrupt;
    /* "HOST:PORT" of a dispatcher: workers of that service compute; NULL: this process does. ("local", a
     * service that is started on demand, is the Python package's: here it is an error) */
    const char *service;
    /* the job's name in the service, the same for all ranks; NULL: a unique one, for a world_size of 1 */
    const char *job;
    const char *token;     /* the service's; NULL: $CACHEW_TOKEN, if it is set */
    const char *transport; /* from workers: "auto", "shm", "unix" or "tcp"; NULL: "auto" */
    /* until a worker of the service has seen the data; 0: 60, and 15 for a dispatcher that is not there yet;
     * negative: without limit */
    double open_timeout_s;
    /* "exact"; "any": batches are handed out as they are ready, so that a late one does not hold up others.
     * NULL: "exact", with at-most-once "any" */
    const char *order;
    /* of a service: "exactly-once"; "at-most-once" (in order "any"): what is lost with a worker is not
     * computed again. NULL: "exactly-once" */
    const char *guarantee;
    /* speak TLS to the service's processes: their certificates are from this authority (a PEM file) */
    const char *tls_ca;
    /* ours, where the service asks for one (PEM); then tls_key, too, is needed. With it and without tls_ca:
     * the system's authorities */
    const char *tls_cert;
    const char *tls_key; /* its key (PEM) */
    /* batches of a service that are asked for before they are wanted, at most 4096; 0: as many as take 64 MiB
     * (256 MiB where they are lent), 2 to 64 */
    unsigned credits;
    /* where elements are kept that pass autocache or cache, for later epochs and others; NULL: nowhere. Not
     * with a service. Reading it puts in a handler of SIGBUS, which asks the one there was before for what is
     * none of its files (docs/caching.md) */
    const char *cache_dir;
    const char *cache;    /* which of these: "auto" (NULL), "off", or the number of one, from 0 */
    uint64_t cache_bytes; /* what may lie in cache_dir; 0: what does, and half of what is free */
    /* told which cache points can't be used, where there is a cache, and how well a shuffle by chunk mixes,
     * where an iterator begins with epoch 0 and without a state; of a service, what is waited for when that
     * takes long (after 5 s, 10 s, 20 s ...); on the thread that opens or asks for a batch; NULL: no notes
     */
    void (*note)(void *arg, const char *text);
    void *note_arg;
};

#define CACHEW_OPTIONS_INIT \
    {sizeof(struct cachew_options), \
     -1, \
     -1, \
     0, \
     0, \
     1, \
     1, \
     0, \
     NULL, \
     NULL, \
     0, \
     NULL, \
     NULL, \
     NULL, \
     NULL, \
     NULL, \
     0, \
     NULL, \
     NULL, \
     NULL, \
     NULL, \
     NULL, \
     0, \
     NULL, \
     NULL, \
     0, \
     NULL, \
     NULL}

struct cachew_iterator; /* opaque */
struct cachew_batch;    /* opaque */

/* Opens the pipeline's sources (and makes indexes that are missing, which reads the data once) and begins to
 * compute, on threads of its own. options NULL: defaults. The sequence of batches is a function of pipeline,
 * data and seed alone; threads, memory, optimize and stopping points do not change it. */
CACHEW_API int cachew_iterator_open(const struct cachew_pipeline *p, const struct cachew_options *options,
                                    struct cachew_iterator **ret, struct cachew_error **err) CACHEW_CHECKED;
/* How many batches each rank gets in an epoch, padding included; UINT64_MAX: endlessly many. Opens the
 * sources. 1: not known beforehand (behind a filter, or with bucket_by_length). Of the options, epochs and
 * state do not matter. */
CACHEW_API int cachew_pipeline_batches(const struct cachew_pipeline *p, const struct cachew_options *options,
                                       uint64_t *ret, struct cachew_error **err) CACHEW_CHECKED;
/* What cachew_iterator_state gives of an iterator with these options before its first batch: the beginning,
 * or options.state, where that fits. Opens the sources and computes nothing. CACHEW_E_OPTION with a service,
 * which knows the data: there it takes an iterator. */
CACHEW_API int cachew_pipeline_state(const struct cachew_pipeline *p, const struct cachew_options *options,
                                     char **ret, struct cachew_error **err) CACHEW_CHECKED;
/* Opens the sources and, where seconds is not 0, runs the pipeline for so long. *ret is a new text that says
 * what was fused, how the data divide, where the time goes, what limits the rate and what would help: the one
 * that `cachew explain` prints, as JSON or for people. With seconds up to 40 MB are written to a directory
 * that is removed, in options.cache_dir or else $TMPDIR, to see how fast a cache would be there. Of the
 * options, epochs, rank, world_size and state do not matter. */
CACHEW_API int cachew_pipeline_explain(const struct cachew_pipeline *p, const struct cachew_options *options,
                                       double seconds, int json, char **ret,
                                       struct cachew_error **err) CACHEW_CHECKED;
/* The next batch of this rank, new (cachew_batch_release); any number may be held at a time. 1: the last
 * epoch is over. Waits at most timeout_s seconds (negative: without limit), then fails with
 * CACHEW_E_DEADLINE; after that, and after CACHEW_E_INTERRUPTED, it may be called again and nothing is lost.
 * (An error with attribute "job" and value "paused" means that the job was paused in the service.) After
 * other errors there are no more batches: they fail again. */
CACHEW_API int cachew_iterator_next(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                                    struct cachew_error **err) CACHEW_CHECKED;
/* Like cachew_iterator_next, but the position stays before the batch until the caller accepts it. For callers
 * that may lose a batch after it was returned, such as an interpreter in which a signal raises an exception.
 * Asking for another batch accepts it. */
CACHEW_API int cachew_iterator_offer(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                                     struct cachew_error **err) CACHEW_CHECKED;
CACHEW_API void cachew_iterator_accept(struct cachew_iterator *it);
/* Returns new the position after the batch handed out last, as JSON of at most 1 KB, for options.state (the
 * world size may differ then, in order "exact"; in order "any" each rank goes on from a state of its own);
 * NULL: no memory. */
CACHEW_API char *cachew_iterator_state(const struct cachew_iterator *it);
/* From any thread: waits of cachew_iterator_next end at once with CACHEW_E_INTERRUPTED, as do later ones,
 * until it is called with on = 0. */
CACHEW_API void cachew_iterator_interrupt(struct cachew_iterator *it, int on);
/* Returns new a JSON object: {"seconds", "threads", "busy_s", "idle_s", "wait_s", "read_bytes",
 * "memory_peak_bytes", "batches_held", "bottleneck", "operators": [{"op", "position", "seconds", "share",
 * "elements", "fused_into"?}, ..., {"part", "seconds", "share"}, ...], "links"?, "cache"?}. All but wait_s
 * (of the caller) and seconds are sums over threads. links, with a service: [{"worker", "transport",
 * "batches", "bytes", "wire_bytes", "note"?},
 * ...], where wire_bytes are fewer than bytes if they were compressed on their way, and 0 if they were lent.
 * NULL: no memory. */
CACHEW_API char *cachew_iterator_profile(const struct cachew_iterator *it);
/* Records of batches handed out so far that could not be computed: how many were skipped and replaced (either
 * may be NULL), and, returned new, the first 10,000 of them as a JSON list [{"record", "operator", "action",
 * "reason", "file"?, "by"?}]; NULL: no memory. */
CACHEW_API char *cachew_iterator_quarantine(const struct cachew_iterator *it, uint64_t *ret_skipped,
                                            uint64_t *ret_replaced);
/* Batches that were handed out and not yet released. */
CACHEW_API size_t cachew_iterator_held(const struct cachew_iterator *it);
/* Ends it. Batches that are held stay valid; the iterator's threads end when the last of them is released. */
CACHEW_API void cachew_iterator_free(struct cachew_iterator *it);

/* ---- batches ---- */

struct cachew_component {
    const char *name;
    enum cachew_dtype dtype;
    int ndim;            /* with the batch dimension, where there is one */
    const int64_t *dims; /* ndim */
    void *data;          /* C-contiguous; may be written to. CACHEW_BYTES: all strings, one after the other */
    size_t size;         /* of data, in bytes */
    const uint64_t *lengths; /* CACHEW_BYTES: of each string, one per record; else NULL */
};

enum cachew_flag {
    CACHEW_REPLACEMENT = 1, /* of a record: stands in for one that failed */
    /* of a batch: a repetition that fills up the last round of ranks; not part of the epoch */
    CACHEW_PADDING = 2,
};

/* Gives a batch back, and with it the memory of its components. From any thread. */
CACHEW_API void cachew_batch_release(struct cachew_batch *b);
/* Components, in byte order of their names. */
CACHEW_API size_t cachew_batch_count(const struct cachew_batch *b);
/* NULL: there is none at this place, or of this name. */
CACHEW_API const struct cachew_component *cachew_batch_component(const struct cachew_batch *b, size_t i);
CACHEW_API const struct cachew_component *cachew_batch_find(const struct cachew_batch *b, const char *name);
/* Records in it. */
CACHEW_API uint32_t cachew_batch_records(const struct cachew_batch *b);
/* Its place: epoch, number in the epoch (over all ranks). */
CACHEW_API uint64_t cachew_batch_epoch(const struct cachew_batch *b);
CACHEW_API uint64_t cachew_batch_g(const struct cachew_batch *b);
/* enum cachew_flag that hold for the whole batch. */
CACHEW_API uint32_t cachew_batch_flags(const struct cachew_batch *b);
/* Writes the id of record i, "<file key>:<row>[.ordinal]", as snprintf does: at most size bytes with the NUL;
 * returns the length. */
CACHEW_API size_t cachew_batch_record_id(const struct cachew_batch *b, uint32_t i, char *buffer, size_t size);
/* enum cachew_flag of record i. */
CACHEW_API uint32_t cachew_batch_record_flags(const struct cachew_batch *b, uint32_t i);

/* 128 bits. The sum of the hashes of all batches that are not padding, over all ranks and resumed parts, is
 * what `cachew run --digest` prints as digest; of the set hashes (they know neither order nor epoch),
 * set_digest. */
struct cachew_hash {
    uint64_t low, high;
};
CACHEW_API struct cachew_hash cachew_batch_hash(const struct cachew_batch *b);
CACHEW_API struct cachew_hash cachew_batch_set_hash(const struct cachew_batch *b);
/* Sum modulo 2^128. */
CACHEW_API struct cachew_hash cachew_hash_add(struct cachew_hash a, struct cachew_hash b);
/* 32 hexadecimal digits and a NUL. */
CACHEW_API void cachew_hash_print(struct cachew_hash h, char buffer[33]);

#ifdef __cplusplus
}
#endif
#endif
