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
 * Terms. A pipeline is a chain of operators. A source operator gives elements, each of which has named
 * components (arrays or byte strings). An epoch is one pass over the data. Its batches are numbered g = 0, 1,
 * ... and are divided among world_size ranks: the processes that train together.
 *
 * Results. Functions that can fail return 0, or a negative enum cachew_status; a positive result is a
 * condition that the function documents. `ret` arguments are set only when the result is 0. The last
 * argument, err, may be NULL. Otherwise, when the result is negative, *err is set to a new error, which the
 * caller frees with cachew_error_free; the old value of *err is not read.
 *
 * Ownership. An object that a function `returns new` belongs to the caller, who frees it with the function of
 * its type; texts with cachew_free. A `const` pointer that a function returns is borrowed from the object
 * that the function was called with, and is valid as long as that object. All `_free` functions accept NULL.
 *
 * Threads. Different objects may be used by different threads at the same time. One object may be used by
 * only one thread at a time, unless its functions say otherwise: cachew_iterator_interrupt and
 * cachew_batch_release may be called from any thread at any time.
 *
 * Compatibility. Structures marked `opaque` are accessed only through functions. Later versions may add
 * fields at the end of other structures, and values to enumerations.
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

/* The library's version, "MAJOR.MINOR.PATCH". Static. */
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
    CACHEW_E_BUDGET = -5,   /* the memory budget is too small; the message names a budget that suffices */
    CACHEW_E_PIPELINE = -6, /* the pipeline is wrong */
    CACHEW_E_OPTION = -7,   /* an option or argument is wrong */
    CACHEW_E_STATE = -8,    /* the state does not belong to this pipeline, data set and seed, or is damaged */
    CACHEW_E_SERVICE = -9,  /* the service can't be reached or refused */
    CACHEW_E_DEADLINE = -10,    /* the timeout passed before a batch was ready */
    CACHEW_E_INTERRUPTED = -11, /* interrupted by cachew_iterator_interrupt or options.interrupt */
    CACHEW_E_INTERNAL = -12,    /* an invariant of the library does not hold: please report it */
};

struct cachew_error; /* opaque */
CACHEW_API void cachew_error_free(struct cachew_error *e);
/* The negative status that the failed function returned. */
CACHEW_API int cachew_error_status(const struct cachew_error *e);
/* "record", "data", "io", "memory", "budget", "pipeline", "option", "state", "service", "deadline",
 * "interrupted", "internal". */
CACHEW_API const char *cachew_error_kind(const struct cachew_error *e);
/* The message for people: one line, without a newline. Never NULL. */
CACHEW_API const char *cachew_error_message(const struct cachew_error *e);
/* Facts for programs; each is NULL if it does not apply. The name of an operator; the name of an attribute of
 * that operator, or of an option; the value that was found; the values that were expected; the path of a
 * file; the id of a record. */
CACHEW_API const char *cachew_error_operator(const struct cachew_error *e);
CACHEW_API const char *cachew_error_attribute(const struct cachew_error *e);
CACHEW_API const char *cachew_error_value(const struct cachew_error *e);
CACHEW_API const char *cachew_error_expected(const struct cachew_error *e);
CACHEW_API const char *cachew_error_file(const struct cachew_error *e);
CACHEW_API const char *cachew_error_record(const struct cachew_error *e);
/* The errno of the system call that failed (ENOENT also if no file matches a pattern); 0: it does not apply.
 */
CACHEW_API int cachew_error_errno(const struct cachew_error *e);
/* About the element that can't be computed, a JSON object: its position ("epoch", "position"), and, if a
 * Python function failed, "traceback", "exception" and "components" (docs/hosts.md, Failures). NULL: it does
 * not apply. */
CACHEW_API const char *cachew_error_detail(const struct cachew_error *e);

/* ---- pipelines ---- */

/* A chain of operators. Iterators copy what they need, so a pipeline may be changed or freed while its
 * iterators run. */
struct cachew_pipeline; /* opaque */

/* Reads a pipeline file (JSON). Relative paths in it are relative to the file. The pipeline is checked in
 * full; no data are touched. */
CACHEW_API int cachew_pipeline_load(const char *file, struct cachew_pipeline **ret,
                                    struct cachew_error **err) CACHEW_CHECKED;
/* As cachew_pipeline_load, from a JSON text that ends with NUL. Relative paths are relative to base_dir
 * (NULL: the working directory). */
CACHEW_API int cachew_pipeline_parse(const char *json, const char *base_dir, struct cachew_pipeline **ret,
                                     struct cachew_error **err) CACHEW_CHECKED;
/* Returns new an empty pipeline, to be filled by cachew_pipeline_add; NULL: no memory. base_dir as for
 * cachew_pipeline_parse. */
CACHEW_API struct cachew_pipeline *cachew_pipeline_new(const char *base_dir);
/* Appends an operator. attributes: the text of a JSON object, such as {"component": "image", "size": [224,
 * 224]}; NULL: all defaults. The name and the attributes are checked at once, the types of components when
 * the pipeline is used. After an error the pipeline is unchanged. */
CACHEW_API int cachew_pipeline_add(struct cachew_pipeline *p, const char *op, const char *attributes,
                                   struct cachew_error **err) CACHEW_CHECKED;
/* As cachew_pipeline_add, for an operator that has n pipelines as its inputs, such as concat. It must be the
 * first of its pipeline. The inputs are copied. */
CACHEW_API int cachew_pipeline_add_inputs(struct cachew_pipeline *p, const char *op, const char *attributes,
                                          const struct cachew_pipeline *const *inputs, size_t n,
                                          struct cachew_error **err) CACHEW_CHECKED;
/* Sets what happens when a record can't be computed: "raise" (default) ends the run with an error, "skip"
 * leaves the record out, "replace" puts another record in its place. */
CACHEW_API int cachew_pipeline_set_on_error(struct cachew_pipeline *p, const char *on_error,
                                            struct cachew_error **err) CACHEW_CHECKED;
/* Checks the whole pipeline, types included, without touching data. */
CACHEW_API int cachew_pipeline_check(const struct cachew_pipeline *p,
                                     struct cachew_error **err) CACHEW_CHECKED;
/* Returns new the pipeline as JSON, as cachew_pipeline_parse and `cachew run` read it; NULL: no memory. */
CACHEW_API char *cachew_pipeline_json(const struct cachew_pipeline *p);
CACHEW_API void cachew_pipeline_free(struct cachew_pipeline *p);

/* Returns new the JSON object that `cachew ops --json` prints: it describes all operators, those of loaded
 * plug-ins too, and their attributes. NULL: no memory. */
CACHEW_API char *cachew_operators_json(void);

/* Sets the Python interpreter, and the program that it runs, for processes that run Python functions
 * (operators map, filter_function, flat_map, map_batches, iterable). Applies to processes that are started
 * from now on; idle ones are ended. Without this call the interpreter is $CACHEW_PYTHON, else python3 in the
 * directory of the running program, else python3 in $PATH; it must have the package cachew. */
CACHEW_API int cachew_set_python(const char *python, const char *program,
                                 struct cachew_error **err) CACHEW_CHECKED;

/* Loads a plug-in, which is a shared object with operators (cachew/plugin.h). Pipelines may use these
 * operators from now on. Loading the same file again does nothing. CACHEW_E_OPTION: the file can't be loaded,
 * is no plug-in, was made for another ABI, has a wrong descriptor, or has an operator whose name is taken; no
 * operator is added then. A plug-in can't be unloaded. May be called from any thread at any time. A plug-in
 * is code in this process: load only files that you trust. */
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

/* The name of a dtype: "bool", "uint8", ..., "bytes"; NULL for an unknown number. Static. */
CACHEW_API const char *cachew_dtype_name(enum cachew_dtype dtype);
/* The size of a value in bytes; 0 for CACHEW_BYTES and for an unknown number. */
CACHEW_API size_t cachew_dtype_size(enum cachew_dtype dtype);

#define CACHEW_MAX_NDIM 6 /* most dimensions of a component of an element; in a batch it has one more */
/* a dimension that differs from element to element, or a rank that is not known beforehand */
#define CACHEW_VARIES (-1)

/* ---- data sets in memory ---- */

/* One component of a data set: its values for all elements, one after the other. */
struct cachew_array {
    const char *name;
    enum cachew_dtype dtype;
    int ndim;
    const int64_t *dims; /* of one element: ndim, each at least 1 */
    const void *data;    /* C-contiguous. CACHEW_BYTES: all strings, one after the other */
    /* CACHEW_BYTES: n_elements + 1 offsets; string i is data[offsets[i]] .. data[offsets[i + 1] - 1]. Other
     * dtypes: NULL */
    const uint64_t *offsets;
};

/* A data set in memory, for the operator `arrays`: {"op": "arrays", "data": "<id>"}. The data live as long as
 * this object, or any pipeline or iterator that names the id. Immutable: any thread may use it. */
struct cachew_arrays; /* opaque */

/* Makes a data set of the caller's arrays. data and offsets are not copied, and must not change while the
 * data set lives (if a cache notices a change, the iteration ends with CACHEW_E_DATA); names and dims are
 * copied. The thread that drops the last reference calls release(arg), unless release is NULL; after a
 * negative result it is not called. This function reads all data once, to compute the id. */
CACHEW_API int cachew_arrays_new(const struct cachew_array *arrays, size_t n_arrays, uint64_t n_elements,
                                 void (*release)(void *arg), void *arg, struct cachew_arrays **ret,
                                 struct cachew_error **err) CACHEW_CHECKED;

/* Makes a data set of a stream of the Arrow C stream interface, whose batches are structs; each column
 * becomes a component. Always releases the stream, also after an error. The buffers of the batches are used
 * in place, without copying, and are released with the last reference to the data set; only bools and
 * dictionary-encoded columns are expanded into new memory. Accepted types: integers, floats and bool; strings
 * and binary of all kinds, as CACHEW_BYTES; fixed-size lists of numbers, as dimensions; lists of numbers, as
 * a first dimension that varies; dictionaries of numbers and strings. Nulls and other types are errors that
 * name the column. */
struct ArrowArrayStream; /* <cachew/arrow.h> has it */
CACHEW_API int cachew_arrays_from_arrow(struct ArrowArrayStream *stream, struct cachew_arrays **ret,
                                        struct cachew_error **err) CACHEW_CHECKED;

/* As cachew_arrays_from_arrow, with n_rows of the stream's rows only: element i is row rows[i]. rows, which
 * is copied, may have a row more than once. Rows that are left out may have nulls. The id is that of a stream
 * of exactly these rows. */
CACHEW_API int cachew_arrays_from_arrow_rows(struct ArrowArrayStream *stream, const uint64_t *rows,
                                             uint64_t n_rows, struct cachew_arrays **ret,
                                             struct cachew_error **err) CACHEW_CHECKED;

/* The id: 32 hexadecimal digits, a hash of names, dtypes, shapes and content. Borrowed. */
CACHEW_API const char *cachew_arrays_id(const struct cachew_arrays *a);
/* The number of elements. */
CACHEW_API uint64_t cachew_arrays_count(const struct cachew_arrays *a);
CACHEW_API void cachew_arrays_free(struct cachew_arrays *a);

/* ---- schema: the components of a pipeline's elements, and their types ---- */

struct cachew_schema; /* opaque; does not refer to the pipeline */
/* Compiles the pipeline, without touching data, and makes its schema. */
CACHEW_API int cachew_pipeline_schema(const struct cachew_pipeline *p, struct cachew_schema **ret,
                                      struct cachew_error **err) CACHEW_CHECKED;
/* The number of components, and the name and dtype of component i. Components are in byte order of their
 * names, as in batches. If i >= count, the name is NULL, the dtype is a number without a name, and ndim and
 * dim are CACHEW_VARIES. */
CACHEW_API size_t cachew_schema_count(const struct cachew_schema *s);
CACHEW_API const char *cachew_schema_name(const struct cachew_schema *s, size_t i);
CACHEW_API enum cachew_dtype cachew_schema_dtype(const struct cachew_schema *s, size_t i);
/* The number of dimensions in one element, without the batch dimension; CACHEW_VARIES: unknown before the
 * run. */
CACHEW_API int cachew_schema_ndim(const struct cachew_schema *s, size_t i);
/* The size of dimension k < ndim; CACHEW_VARIES: it differs from element to element. */
CACHEW_API int64_t cachew_schema_dim(const struct cachew_schema *s, size_t i, int k);
/* The number of elements in a full batch (the largest one if the pipeline has several batch sizes); 0: the
 * pipeline does not batch, and components have no batch dimension. */
CACHEW_API uint64_t cachew_schema_batch_size(const struct cachew_schema *s);
CACHEW_API void cachew_schema_free(struct cachew_schema *s);

/* ---- iterators ---- */

/* Initialise with CACHEW_OPTIONS_INIT, then set the fields that should differ from the defaults. */
struct cachew_options {
    size_t size;  /* sizeof(struct cachew_options) when the caller was compiled */
    int64_t seed; /* of shuffles and random draws; -1: the pipeline's seed if it has one, else 0 */
    /* number of epochs; -1: the pipeline's number, else 1; INT64_MAX: endless (an epoch without batches still
     * ends the iteration) */
    int64_t epochs;
    /* compute threads; 0: one for each CPU that this process may use (affinity, cgroup); of several ranks
     * that a launcher started on this host, each takes an equal part */
    unsigned threads;
    /* This iterator gets the batches g of an epoch with g mod world_size == rank. In the epoch that a state
     * resumes, g counts from the state's g. */
    unsigned rank;
    unsigned world_size; /* number of ranks; 0 means 1 */
    int optimize; /* 0: run operators as written, without fusion; the results are the same, bit by bit */
    /* budget in bytes for all memory but that of batches handed out; 0: half of the cgroup's or machine's
     * memory */
    uint64_t memory;
    const char *state; /* resume from here: a text from cachew_iterator_state; NULL: begin at the start */
    /* directory for indexes of data files; NULL: $CACHEW_INDEX_DIR, else ~/.cache/cachew/index */
    const char *index_dir;
    /* Without a state: the epoch to begin with; 0, or less than `epochs`. The iterator ends before epoch
     * number `epochs`. */
    int64_t first_epoch;
    /* When another thread sets this flag during the opening, it ends soon with CACHEW_E_INTERRUPTED; NULL: no
     * flag */
    const volatile int *interrupt;
    /* "HOST:PORT" of a dispatcher: the workers of that service compute; NULL: this process computes. (The
     * value "local" of the Python package, a service that is started on demand, is an error here.) */
    const char *service;
    /* with a service: the name of the job, the same for all its ranks; NULL: a unique name, if world_size is
     * 1 */
    const char *job;
    const char *token;     /* the service's token; NULL: $CACHEW_TOKEN, if it is set */
    const char *transport; /* how batches come from workers: "auto", "shm", "unix" or "tcp"; NULL: "auto" */
    /* with a service: most seconds until a worker has opened the data; 0: 60, but 15 if the dispatcher does
     * not answer at all; negative: no limit */
    double open_timeout_s;
    /* "exact", or "any": batches are handed out as soon as they are ready, so that a late batch does not
     * delay others. NULL: "exact", or "any" if the guarantee is at-most-once */
    const char *order;
    /* with a service: "exactly-once", or "at-most-once" (needs order "any"): batches lost with a worker are
     * not computed again. NULL: "exactly-once" */
    const char *guarantee;
    /* with a service: use TLS, and accept only processes whose certificates this authority signed (a PEM
     * file) */
    const char *tls_ca;
    /* this client's certificate (a PEM file), if the service requires one; needs tls_key. Without tls_ca, the
     * service's certificates are checked against the system's authorities */
    const char *tls_cert;
    const char *tls_key; /* the private key of tls_cert (a PEM file) */
    /* with a service: the number of batches to request in advance, at most 4096; 0: 2 to 64, as many as fit
     * in 64 MiB, or in 256 MiB if batches are in memory shared with workers */
    unsigned credits;
    /* Directory where elements are cached at the operators autocache and cache, for later epochs and for
     * other runs; NULL: no cache. Not with a service. Reading a cache installs a handler of SIGBUS, which
     * passes faults outside the cache's files to the handler that was installed before (docs/caching.md). */
    const char *cache_dir;
    /* where to cache: "auto" (the default, NULL), "off", or the number of one of these operators, from 0 */
    const char *cache;
    uint64_t cache_bytes; /* limit of cache_dir; 0: its present size plus half of the free space */
    /* Gets notes for the user: which autocache and cache operators can't be used, if there is a cache; how
     * well a shuffle by chunk mixes, if the iterator begins with epoch 0 and without a state; with a service,
     * what is being waited for when that takes long (after 5 s, 10 s, 20 s ...). Called on the thread that
     * opens the iterator or requests a batch. NULL: no notes */
    void (*note)(void *arg, const char *text);
    void *note_arg;
    /* with a service: where the pipeline is cut. The workers run the operators up to there, this process
     * those after it; the batches are the same. "worker": the workers run all; "client": as few as possible;
     * "auto": where few bytes cross the network; or an operator, by its number in the chain, from 0, or by
     * its name. NULL: "worker" */
    const char *cut;
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
     NULL, \
     NULL}

struct cachew_iterator; /* opaque */
struct cachew_batch;    /* opaque */

/* Opens the pipeline's sources (making missing indexes, which reads the data once) and starts computing on
 * threads of its own. options NULL: defaults. The sequence of batches depends on pipeline, data and seed
 * alone; threads, memory, optimize and the points at which runs stop and resume do not change it. */
CACHEW_API int cachew_iterator_open(const struct cachew_pipeline *p, const struct cachew_options *options,
                                    struct cachew_iterator **ret, struct cachew_error **err) CACHEW_CHECKED;
/* Sets *ret to the number of batches that each rank gets in an epoch, padding included; UINT64_MAX: endless.
 * Opens the sources. Returns 1 if the number is not known before the run (after a filter, or with
 * bucket_by_length). The options epochs and state have no effect. */
CACHEW_API int cachew_pipeline_batches(const struct cachew_pipeline *p, const struct cachew_options *options,
                                       uint64_t *ret, struct cachew_error **err) CACHEW_CHECKED;
/* Sets *ret to the number of elements of an epoch, over all ranks: the rows of all its batches if no record
 * fails, padding not counted; UINT64_MAX: endless. Opens the sources. Returns 1 if the number is not known
 * before the run (after a filter, for example). The options epochs and state have no effect. */
CACHEW_API int cachew_pipeline_elements(const struct cachew_pipeline *p, const struct cachew_options *options,
                                        uint64_t *ret, struct cachew_error **err) CACHEW_CHECKED;
/* Sets *ret, new, to the state that an iterator with these options has before its first batch: the start of
 * the run, or options.state after checking it. Opens the sources and computes nothing. With a service it
 * fails with CACHEW_E_OPTION, because the data are at the workers: open an iterator and use
 * cachew_iterator_state. */
CACHEW_API int cachew_pipeline_state(const struct cachew_pipeline *p, const struct cachew_options *options,
                                     char **ret, struct cachew_error **err) CACHEW_CHECKED;
/* Opens the sources and, unless seconds is 0, runs the pipeline for that time. *ret is a new text, the one
 * that `cachew explain` prints: which operators were fused, where the time goes, what limits the rate, and
 * what would help. json: as JSON, instead of text for people. If seconds is not 0, up to 40 MB are written to
 * a temporary directory in options.cache_dir, else $TMPDIR, to measure how fast a cache would be there. The
 * options epochs, rank, world_size and state have no effect. */
CACHEW_API int cachew_pipeline_explain(const struct cachew_pipeline *p, const struct cachew_options *options,
                                       double seconds, int json, char **ret,
                                       struct cachew_error **err) CACHEW_CHECKED;
/* Writes the elements of epoch 0, in their order, to files in the directory path, which the operator
 * `materialized` reads (docs/materialize.md). format: "cachew", "tfrecord" or "tar"; NULL: "cachew".
 * shard_bytes: a file ends with the element with which it has so many bytes; 0: 256 MiB. progress (may be
 * NULL) is called before each batch with the elements and bytes that are written so far; it must not call the
 * library. If an earlier call with the same pipeline, data and options was ended before the data were
 * complete, it continues after the last finished file. *ret is a new JSON text: {shards, elements, bytes,
 * set_digest}. Of the options seed, threads, memory, optimize, index_dir and interrupt have an effect. With
 * options.service its workers write the files, so they must reach path too; then job, the first part of the
 * job's name, token, transport, open_timeout_s, note and tls_* have an effect as well. */
CACHEW_API int cachew_pipeline_materialize(const struct cachew_pipeline *p,
                                           const struct cachew_options *options, const char *path,
                                           const char *format, uint64_t shard_bytes,
                                           void (*progress)(void *arg, uint64_t elements, uint64_t bytes),
                                           void *progress_arg, char **ret,
                                           struct cachew_error **err) CACHEW_CHECKED;
/* Sets *ret to the next batch of this rank, new (cachew_batch_release). The caller may hold any number of
 * batches. Returns 1 if the last epoch is over. Waits at most timeout_s seconds (negative: no limit), then
 * fails with CACHEW_E_DEADLINE. After CACHEW_E_DEADLINE and CACHEW_E_INTERRUPTED it may be called again, and
 * no batch is lost. (An error with attribute "job" and value "paused" means that a user paused the job in the
 * service.) After any other error, later calls fail with the same error. */
CACHEW_API int cachew_iterator_next(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                                    struct cachew_error **err) CACHEW_CHECKED;
/* As cachew_iterator_next, but cachew_iterator_state stays before the batch until the caller accepts the
 * batch. For callers that may lose a batch after it was returned, such as an interpreter in which a signal
 * raises an exception. Requesting another batch accepts the one before. */
CACHEW_API int cachew_iterator_offer(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                                     struct cachew_error **err) CACHEW_CHECKED;
CACHEW_API void cachew_iterator_accept(struct cachew_iterator *it);
/* Returns new the state after the last batch that was handed out: JSON of at most 1 KB, for options.state;
 * NULL: no memory. In order "exact" an iterator with another world_size may resume from it; in order "any"
 * each rank resumes from its own state. */
CACHEW_API char *cachew_iterator_state(const struct cachew_iterator *it);
/* Interrupts the iterator (on = 1): a cachew_iterator_next that waits ends at once with CACHEW_E_INTERRUPTED,
 * and so do later calls that would wait, until this function is called with on = 0. May be called from any
 * thread. */
CACHEW_API void cachew_iterator_interrupt(struct cachew_iterator *it, int on);
/* Returns new a JSON object: {"seconds", "threads", "busy_s", "idle_s", "wait_s", "read_bytes",
 * "memory_peak_bytes", "batches_held", "bottleneck", "operators": [{"op", "position", "seconds", "share",
 * "elements", "fused_into"?}, ..., {"part", "seconds", "share"}, ...], "links"?, "cache"?}. Times are sums
 * over all threads, except seconds (elapsed time) and wait_s (the caller's waiting). links, with a service:
 * [{"worker", "transport", "batches", "bytes", "wire_bytes", "note"?}, ...]. wire_bytes were sent over a
 * socket: fewer than bytes if batches were compressed, 0 if they were in shared memory. NULL: no memory. */
CACHEW_API char *cachew_iterator_profile(const struct cachew_iterator *it);
/* Reports the records that could not be computed, of the batches handed out so far. *ret_skipped and
 * *ret_replaced are their numbers; both pointers may be NULL. Returns new the first 10,000 of these records
 * as a JSON list
 * [{"record", "operator", "action", "reason", "file"?, "by"?}]; NULL: no memory. */
CACHEW_API char *cachew_iterator_quarantine(const struct cachew_iterator *it, uint64_t *ret_skipped,
                                            uint64_t *ret_replaced);
/* The number of batches that were handed out and not yet released. */
CACHEW_API size_t cachew_iterator_held(const struct cachew_iterator *it);
/* Ends the iterator. Batches that are held stay valid; the iterator's threads end when the last one is
 * released. */
CACHEW_API void cachew_iterator_free(struct cachew_iterator *it);

/* ---- batches ---- */

struct cachew_component {
    const char *name;
    enum cachew_dtype dtype;
    int ndim;            /* including the batch dimension, if the pipeline batches */
    const int64_t *dims; /* ndim */
    void *data;          /* C-contiguous; may be written to. CACHEW_BYTES: all strings, one after the other */
    size_t size;         /* of data, in bytes */
    const uint64_t *lengths; /* CACHEW_BYTES: the length of each string, one per record; else NULL */
};

enum cachew_flag {
    CACHEW_REPLACEMENT = 1, /* of a record: it replaces a record that failed */
    /* of a batch: it repeats another one so that all ranks get the same number; not part of the epoch */
    CACHEW_PADDING = 2,
};

/* Gives a batch back, and with it the memory of its components. May be called from any thread. */
CACHEW_API void cachew_batch_release(struct cachew_batch *b);
/* The number of components. They are in byte order of their names. */
CACHEW_API size_t cachew_batch_count(const struct cachew_batch *b);
/* Component i, or the component of this name; NULL: there is none. */
CACHEW_API const struct cachew_component *cachew_batch_component(const struct cachew_batch *b, size_t i);
CACHEW_API const struct cachew_component *cachew_batch_find(const struct cachew_batch *b, const char *name);
/* The number of records in the batch. */
CACHEW_API uint32_t cachew_batch_records(const struct cachew_batch *b);
/* The batch's epoch, and its number in the epoch, counted over all ranks. */
CACHEW_API uint64_t cachew_batch_epoch(const struct cachew_batch *b);
CACHEW_API uint64_t cachew_batch_g(const struct cachew_batch *b);
/* The flags (enum cachew_flag) of the batch as a whole. */
CACHEW_API uint32_t cachew_batch_flags(const struct cachew_batch *b);
/* Writes the id of record i, "<file key>:<row>[.ordinal]", into buffer: at most size bytes, including the
 * NUL. Returns the length of the whole id, as snprintf does. */
CACHEW_API size_t cachew_batch_record_id(const struct cachew_batch *b, uint32_t i, char *buffer, size_t size);
/* The flags (enum cachew_flag) of record i. */
CACHEW_API uint32_t cachew_batch_record_flags(const struct cachew_batch *b, uint32_t i);

/* A hash of 128 bits. The sum of cachew_batch_hash of all batches that are not padding, over all ranks and
 * resumed parts, is the digest that `cachew run --digest` prints. The sum of cachew_batch_set_hash is
 * set_digest, which depends neither on order nor on epoch. */
struct cachew_hash {
    uint64_t low, high;
};
CACHEW_API struct cachew_hash cachew_batch_hash(const struct cachew_batch *b);
CACHEW_API struct cachew_hash cachew_batch_set_hash(const struct cachew_batch *b);
/* The sum of two hashes, modulo 2^128. */
CACHEW_API struct cachew_hash cachew_hash_add(struct cachew_hash a, struct cachew_hash b);
/* Writes 32 hexadecimal digits and a NUL. */
CACHEW_API void cachew_hash_print(struct cachew_hash h, char buffer[33]);

#ifdef __cplusplus
}
#endif
#endif
