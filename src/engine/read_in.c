/* Reads whole chunks of files, or whole files, into the page cache before single records are read, with
 * threads of low priority. The runner's mutex is held, unless a comment says otherwise. */
#include "engine/read_in.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "engine/internal.h"
#include "storage/file.h"

/* LOOK_RECORDS records of a piece are checked, LOOK_BYTES of each: if these are in memory, the rest of the
 * record is taken to be so. */
#define LOOK_RECORDS 16
#define LOOK_BYTES ((size_t)4096)
/* The chunks of a piece are read if its records fill at least 1/SPARSE of them, not counting two chunks that
 * may lie in other pieces, too. */
#define SPARSE 2
/* After this many reads of single records, with a full queue, the time of a read is known. */
#define KNOWN_READS (2 * READ_DEPTH)
/* Reading files in begins and continues while it takes less than 1/GAIN of the remaining time of single
 * reads, and that remaining time is more than LEAST_S seconds. */
#define GAIN 2.0
#define LEAST_S 1.0
#define NICE 10

/* ---- chunks ---- */

/* Sets *ret to the next extent, of neighbouring chunks. False: there is none. */
static bool cursor_next(const struct cw_sequence *q, struct read_in_cursor *c, struct cw_extent *ret)
{
    struct cw_extent e;
    while (c->leaf < q->compiled->n_programs && c->rest.length < CW_EXTENT_MOST) {
        const struct cw_source *s = q->sources[c->leaf];
        if (!s->ops->locate || c->chunk == s->n_chunks) {
            c->n += s->n_chunks - c->chunk; /* a source without `locate` is passed over */
            c->leaf++;
            c->chunk = 0;
        } else {
            bool wanted = (!c->only || c->only[c->n]) && cw_source_chunk_extent(s, c->chunk, &e) >= 0;
            if (wanted && c->rest.length > 0 &&
                (c->rest.file != e.file || c->rest.offset + c->rest.length != e.offset))
                break;
            if (wanted) {
                e.offset -= c->rest.length;
                e.length += c->rest.length;
                c->rest = e;
            }
            c->chunk++;
            c->n++;
        }
    }
    *ret = c->rest;
    ret->length = CW_MIN(c->rest.length, CW_EXTENT_MOST);
    c->rest.offset += ret->length;
    c->rest.length -= ret->length;
    return ret->length > 0;
}

/* ---- for a piece ---- */

static struct read_in *read_in_free(struct read_in *in)
{
    pthread_mutex_destroy(&in->mutex);
    free(in->chunks);
    free(in);
    return NULL;
}

/* Returns whether some records of a piece are not in memory. It reads the first bytes of the records that it
 * checks. */
static bool piece_is_absent(const struct cw_sequence *q, const struct cw_exec_plan *p)
{
    uint8_t scratch[LOOK_BYTES];
    struct cw_error err = {0};
    struct cw_extent e;
    for (unsigned i = 0; i < LOOK_RECORDS && p->n > 0; i++) {
        const struct cw_ref *ref = &p->refs[i * p->n / LOOK_RECORDS];
        const struct cw_source *s = q->sources[ref->leaf];
        if (!s->ops->locate || s->ops->locate(s, ref->row, &e, &err) < 0)
            continue;
        e.length = CW_MIN(e.length, LOOK_BYTES);
        if (e.length > 0 && cw_extent_read_in(&e, scratch, true, &err) == 1)
            return true;
    }
    return false;
}

/* Marks the chunks in which records of a piece lie. False: the chunks have too few of the piece's records. */
static bool read_in_mark(const struct cw_sequence *q, const struct cw_exec_plan *p, struct read_in *in)
{
    uint64_t first = 0, n_marked = 0;
    double least = 0; /* the number of chunks that the piece's records would fill */
    for (unsigned leaf = 0; leaf < q->compiled->n_programs; leaf++) {
        const struct cw_source *s = q->sources[leaf];
        for (uint64_t i = 0; i < p->n && s->ops->locate; i++) {
            if (p->refs[i].leaf != leaf)
                continue;
            uint8_t *mark = &in->chunks[first + cw_source_chunk_of(s, p->refs[i].row)];
            n_marked += !*mark;
            *mark = 1;
            least += (double)s->n_chunks / (double)s->n_records;
        }
        first += s->n_chunks;
    }
    return n_marked > 0 && (double)n_marked <= SPARSE * least + 2;
}

struct read_in *cw_read_in_new(struct cw_runner *r, const struct piece *p)
{
    const struct cw_sequence *q = r->sequence;
    if (!cw_sequence_reads_by_chunk(q) || !piece_is_absent(q, &p->plan))
        return NULL;
    struct read_in *in = calloc(1, sizeof(*in));
    if (in)
        pthread_mutex_init(&in->mutex, NULL);
    for (unsigned leaf = 0; in && leaf < q->compiled->n_programs; leaf++)
        in->n_chunks += q->sources[leaf]->n_chunks;
    if (in && (in->chunks = calloc(in->n_chunks + 1, 1)) && read_in_mark(q, &p->plan, in)) {
        in->cursor.only = in->chunks;
        return in;
    }
    return in ? read_in_free(in) : NULL; /* without memory for the marks, single records are read */
}

/* Ends reading the chunks of a piece: all were read, or the piece was dropped. */
static void read_in_end(struct cw_runner *r, struct read_in *in)
{
    struct read_in **at = &r->read_in.first;
    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    if (in->piece) {
        in->piece->read_in = NULL;
        in->piece->planned = true;
    }
    cw_reads_end_busy(r, &r->read_in.n_pieces);
    read_in_free(in);
    cw_sched_changed(r);
}

/* Reads the next chunks of a piece. False: there are none, or reading them has no use. *ret_bytes: bytes read
 * from storage. Mutex not held. */
static bool read_in_chunk(const struct cw_runner *r, struct read_in *in, uint8_t *scratch,
                          uint64_t *ret_bytes, bool *ret_kept)
{
    struct cw_extent e;
    struct cw_error err = {0};
    pthread_mutex_lock(&in->mutex);
    bool first = in->cursor.n == 0, more = cursor_next(r->sequence, &in->cursor, &e);
    pthread_mutex_unlock(&in->mutex);
    if (!more || cw_extent_read_in(&e, scratch, true, &err) == 0)
        return more;
    if (cw_extent_read_in(&e, scratch, false, &err) < 0) /* a later read of the record reports the error */
        return false;
    *ret_bytes = e.length;
    *ret_kept = !first || cw_extent_read_in(&e, scratch, true, &err) == 0 || !cw_file_tells_residency(e.file);
    return *ret_kept;
}

/* Mutex held, but released meanwhile. */
static void read_in_run(struct cw_runner *r, struct read_in *in, uint8_t *scratch)
{
    in->n_threads++;
    while (in->piece && !r->sched.stop && !in->over) {
        uint64_t bytes = 0;
        bool kept = true;
        pthread_mutex_unlock(&r->sched.mutex);
        uint64_t start_ns = cw_cost_now_ns();
        bool more = read_in_chunk(r, in, scratch, &bytes, &kept);
        uint64_t ns = cw_cost_now_ns() - start_ns;
        pthread_mutex_lock(&r->sched.mutex);
        r->profile.read_ns += ns;
        r->profile.cold_ns += ns;
        r->profile.read_bytes += bytes;
        r->profile.cold_bytes += bytes;
        r->reads.busy_ns += cw_cost_modelled() ? ns : 0;
        r->read_in.useless |= !kept;
        in->over |= !more;
    }
    in->over = true;
    if (--in->n_threads == 0)
        read_in_end(r, in);
}

/* ---- all files ---- */

struct files_progress {            /* the progress of reading all files in */
    uint64_t bytes, read, read_ns; /* bytes of all files; bytes read so far; ns that reading them took */
    uint64_t room;                 /* bytes of memory that are free */
    bool fits;
    /* records that are still to be read one by one; seconds of each such read, from before reading in
     * began */
    double records, single_s;
};

/* Mutex held. */
static double files_records_left(const struct cw_runner *r)
{
    const struct cw_sequence *q = r->sequence;
    uint64_t n = 0;
    for (unsigned i = 0; i < q->compiled->n_programs; i++)
        n += q->sources[i]->ops->locate ? q->sources[i]->n_records : 0;
    n = CW_MIN(n, q->n_positions);
    return (double)(n - CW_MIN(n, r->cache.n_done));
}

/* Compares two times, both for the same share of the data: that which is not in memory yet. */
static bool files_are_worth_it(const struct cw_runner *r, struct files_progress *p)
{
    p->records = files_records_left(r);
    double single_s = p->records * p->single_s;
    double in_s = p->read ? (double)p->bytes / (double)p->read * (double)p->read_ns * 1e-9 : 0;
    return single_s > LEAST_S && in_s * GAIN < single_s;
}

static bool files_fit(const struct cw_runner *r, struct files_progress *p)
{
    uint64_t limit = r->memory.budget.limit, own = limit - CW_MIN(limit, atomic_load(&r->memory.budget.used));
    p->bytes = cw_sequence_file_bytes(r->sequence);
    return cw_sequence_fits_in_memory(r->sequence, own, &p->room);
}

/* worth: whether reading the files takes less time than single reads. */
static void files_record(struct cw_runner *r, const struct files_progress *p, bool worth)
{
    double speed = p->read_ns ? (double)p->read / (double)p->read_ns * 1e9 : 0, bytes = (double)p->bytes;
    const struct cw_tuned t = {
        .what = "read_in_bytes",
        .seen = {{"memory_free_bytes", (double)p->room},
                 {"records", p->records},
                 {"record_s", p->single_s},
                 {"bytes_per_s", speed}},
        .others = {{"memory", p->fits ? bytes : 0}, {"time", worth ? bytes : 0}},
        .chosen = p->fits && worth ? bytes : (double)p->read,
        .why = !p->fits ? "no files are read as a whole, because memory has no room for them"
               : !worth ? "no files are read as a whole, because that would take more than half of the time "
                          "that single reads of the remaining records take"
                        : "the files fit in memory, and reading them as a whole takes less than half of the "
                          "time that single reads take",
    };
    cw_tuned_add(&r->tuned, &t);
}

/* Reads an extent that is not in memory. False: it can't be read; the reads of its records will report the
 * error. Mutex not held. */
static bool files_read_extent(struct files_progress *p, const struct cw_extent *e, uint8_t *scratch)
{
    struct cw_error err = {0};
    uint64_t start_ns = cw_cost_now_ns();
    int status = cw_extent_read_in(e, scratch, true, &err);
    if (status == 1) {
        status = cw_extent_read_in(e, scratch, false, &err);
        p->read_ns += cw_cost_now_ns() - start_ns;
        p->read += e->length;
        /* after the first extent: check whether the page cache keeps it */
        if (p->read == e->length && status == 0)
            p->fits = cw_extent_read_in(e, scratch, true, &err) == 0 || !cw_file_tells_residency(e->file);
    }
    return status == 0;
}

/* Reads all files, as long as that is worth it. Extents that are in memory are not read. Mutex held, but
 * released meanwhile. */
static void files_read(struct cw_runner *r, struct files_progress *p, uint8_t *scratch)
{
    struct read_in_cursor c = {0};
    struct cw_extent e;
    bool worth = files_are_worth_it(r, p), more = true, recorded = false;
    while (p->fits && worth && more && !r->sched.stop) {
        pthread_mutex_unlock(&r->sched.mutex);
        more = cursor_next(r->sequence, &c, &e) && files_read_extent(p, &e, scratch);
        pthread_mutex_lock(&r->sched.mutex);
        worth = files_are_worth_it(r, p);
        if (!recorded && p->read > 0)
            files_record(r, p, worth);
        recorded |= p->read > 0;
    }
    if (!recorded || !worth)
        files_record(r, p, worth);
}

/* ---- the thread ---- */

static bool read_in_start(struct cw_runner *r);

static struct read_in *read_in_next(const struct cw_runner *r)
{
    struct read_in *in = r->read_in.first;
    while (in && in->over)
        in = in->next;
    return in;
}

static void *read_in_main(void *arg)
{
    struct cw_runner *r = arg;
    uint8_t scratch[CW_EXTENT_SCRATCH];
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    CW_GUARD(&r->sched.mutex);
    while (!r->sched.stop) {
        struct read_in *in = read_in_next(r);
        if (in) {
            (void)read_in_start(r);
            read_in_run(r, in, scratch);
        } else if (r->read_in.files && r->reads.n_done >= KNOWN_READS) {
            struct files_progress p = {.single_s = (double)r->reads.busy_ns * 1e-9 / (double)r->reads.n_done};
            r->read_in.files = false;
            p.fits = files_fit(r, &p);
            files_read(r, &p, scratch);
        } else {
            r->read_in.n_idle++;
            pthread_cond_wait(&r->read_in.wake, &r->sched.mutex);
            r->read_in.n_idle--;
        }
    }
    return NULL;
}

/* Wakes or starts a thread, because there is work for one more; each thread that begins with a piece calls it
 * again. False: no thread can be started, and nothing is read in. */
static bool read_in_start(struct cw_runner *r)
{
    struct cw_error err = {0};
    if (r->read_in.n_idle > 0)
        pthread_cond_signal(&r->read_in.wake);
    else if (r->read_in.n_threads < READ_IN_THREADS &&
             cw_thread_start(&r->read_in.threads[r->read_in.n_threads], read_in_main, r, &err) >= 0)
        r->read_in.n_threads++;
    return r->read_in.n_threads > 0;
}

void cw_read_in_begin(struct cw_runner *r)
{
    struct files_progress p = {0};
    if (!r->options.read_in || !cw_sequence_reads_randomly(r->sequence))
        return;
    p.fits = files_fit(r, &p);
    r->read_in.files = p.fits && read_in_start(r);
    if (!p.fits)
        files_record(r, &p, true);
}

bool cw_read_in_piece(struct cw_runner *r, struct piece *p, struct read_in *in)
{
    struct read_in **at = &r->read_in.first;
    if (!in)
        return false;
    if (r->read_in.useless || r->memory.low_rows || !read_in_start(r)) {
        read_in_free(in);
        return false;
    }
    while (*at)
        at = &(*at)->next;
    *at = in;
    in->piece = p;
    p->read_in = in;
    cw_reads_begin_busy(r, &r->read_in.n_pieces);
    return true;
}

void cw_read_in_stop(struct cw_runner *r)
{
    CW_WITH (&r->sched.mutex)
        pthread_cond_broadcast(&r->read_in.wake);
    for (unsigned i = 0; i < r->read_in.n_threads; i++)
        pthread_join(r->read_in.threads[i], NULL);
    r->read_in.n_threads = 0;
    while (r->read_in.first) /* pieces whose chunks no thread reads */
        read_in_end(r, r->read_in.first);
}
