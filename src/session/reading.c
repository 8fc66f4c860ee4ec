/* Predicts how fast single records are read in random order, and how fast whole chunks would be read, from a
 * few reads before the first batch of a run. local.c runs it; explain/ and cli/ report the result. */
#include "session/reading.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread.h"
#include "storage/file.h"

/* The number of records that are checked for being in memory: enough for all rounds of reads, and for
 * chunks. */
#define LOOKS 96
#define LOOK_BYTES ((size_t)4096) /* the bytes checked of each record */
/* Single records are read first, in rounds of parallel reads. A round that would end after RECORDS_NS is not
 * begun. The engine has up to 64 reads in flight. */
#define MOST_READS 64
#define GROWTH 4 /* factor by which the number of parallel reads grows from round to round */
static const unsigned rounds[] = {1, GROWTH, 16, MOST_READS};
#define RECORDS_NS UINT64_C(150000000)
/* After the records, one chunk is read. If reading CHUNKS chunks one by one would take less than CHUNKS_NS,
 * CHUNKS chunks are then read in parallel. Of a chunk of more than PART_BYTES only the first PART_BYTES are
 * read. */
#define CHUNKS 4
#define CHUNKS_NS UINT64_C(150000000)
#define PART_BYTES ((size_t)1 << 20)
/* The run waits at most this long for the result: the probe's rounds, and a last read that takes long. */
#define WAIT_NS UINT64_C(400000000)
/* From this size on, reading a record by itself takes about as long as reading it with its neighbours. */
#define LARGE_RECORD ((double)(256 << 10))
#define LEAST_GAIN 2.0

struct sample { /* a record that is not in memory */
    const struct cw_source *source;
    uint64_t row;
    struct cw_extent extent;
};

struct cw_reading_probe {
    const struct cw_sequence *sequence;
    struct sample samples[LOOKS];
    unsigned n_samples, next;
    double chunk_records, chunk_bytes; /* means over all sources */
    struct cw_reading found;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool over, failed; /* guarded by mutex. failed: a read failed; the run will report the error */
};

/* ---- what to read ---- */

/* Draws a pseudo-random record, the same for the same `number`, from all sources that are read from files.
 * False: the record can't be read by itself. */
static bool probe_draw_sample(const struct cw_sequence *s, uint64_t number, uint64_t n_records,
                              struct sample *ret)
{
    struct cw_error err = {0};
    uint64_t row = cw_hash64(&number, sizeof(number)) % n_records;
    for (unsigned i = 0; i < s->compiled->n_programs; i++) {
        const struct cw_source *source = s->sources[i];
        if (!source->ops->locate)
            continue;
        if (row < source->n_records) {
            *ret = (struct sample){.source = source, .row = row};
            return source->ops->locate(source, row, &ret->extent, &err) >= 0 && ret->extent.length > 0;
        }
        row -= source->n_records;
    }
    return false;
}

/* Finds records that are not in memory, without waiting for reads. */
static void probe_find_samples(struct cw_reading_probe *p, uint64_t n_records)
{
    uint8_t scratch[LOOK_BYTES];
    unsigned n = 0;
    for (uint64_t i = 0; i < LOOKS; i++) {
        struct cw_error err = {0};
        struct sample *one = &p->samples[p->n_samples];
        if (!probe_draw_sample(p->sequence, i, n_records, one))
            continue;
        struct cw_extent first = one->extent;
        first.length = CW_MIN(first.length, LOOK_BYTES);
        n++;
        p->n_samples += cw_extent_read(&first, scratch, true, &err) == 1 &&
                        cw_file_tells_residency(first.file);
    }
    p->found.absent = n ? (double)p->n_samples / n : 0;
}

/* ---- reading ---- */

struct round {
    bool chunks; /* true: the reads are of the samples' chunks, not of the samples */
    pthread_mutex_t mutex;
    pthread_cond_t began;
    bool go;                                     /* guarded by mutex, like the next two */
    bool failed, kept;                           /* kept: all chunks that were read are in the page cache */
    uint64_t start_ns;                           /* when the first read began */
    uint64_t ns[MOST_READS], end_ns[MOST_READS]; /* how long each read took, and its end */
    unsigned n_ended;
    const struct sample *next;
};

/* Sets *ret to the bytes that are read of a record's chunk: the first part, if the chunk is large. */
static int sample_chunk_part(const struct sample *s, struct cw_extent *ret)
{
    int r = cw_source_chunk_extent(s->source, cw_source_chunk_of(s->source, s->row), ret);
    ret->length = r < 0 ? 0 : CW_MIN(ret->length, PART_BYTES);
    return r;
}

static void *round_main(void *arg)
{
    struct round *round = arg;
    struct cw_error err = {0};
    pthread_mutex_lock(&round->mutex);
    const struct sample *sample = round->next++;
    while (!round->go)
        pthread_cond_wait(&round->began, &round->mutex);
    pthread_mutex_unlock(&round->mutex);
    struct cw_extent e = sample->extent;
    bool failed = round->chunks && sample_chunk_part(sample, &e) < 0, kept = true;
    uint8_t *data = malloc(round->chunks ? CW_EXTENT_SCRATCH : e.length);
    uint64_t start_ns = cw_cost_now_ns();
    failed |= !data || (round->chunks ? cw_extent_read_in(&e, data, false, &err)
                                      : cw_extent_read(&e, data, false, &err)) < 0;
    uint64_t end_ns = cw_cost_now_ns();
    if (round->chunks && !failed)
        kept = cw_extent_read_in(&e, data, true, &err) == 0;
    free(data);
    CW_GUARD(&round->mutex);
    round->start_ns = round->n_ended ? CW_MIN(round->start_ns, start_ns) : start_ns;
    round->ns[round->n_ended] = end_ns - start_ns;
    round->end_ns[round->n_ended++] = end_ns;
    round->failed |= failed;
    round->kept &= kept;
    return NULL;
}

static int compare_ns(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns how long the reads of a round took together. On a busy machine threads start late, so the time from
 * the first start to the end is too long. The longest single read is too short where storage serves one read
 * after the other. So the mean of both is returned. The last tenth of the reads, and at least one of four, is
 * extrapolated, because a single read may have been late. */
static uint64_t round_ns(struct round *round)
{
    unsigned n = round->n_ended, late = n < 4 ? 0 : CW_MAX(n / 10, 1), most = n - late;
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < n; i++)
        sum_ns += round->ns[i];
    qsort(round->ns, n, sizeof(*round->ns), compare_ns);
    qsort(round->end_ns, n, sizeof(*round->end_ns), compare_ns);
    uint64_t wall_ns = round->end_ns[most - 1] - round->start_ns;
    /* with modelled costs, reads happen one after the other */
    return cw_cost_modelled() ? sum_ns : (round->ns[most - 1] + wall_ns) / 2 * n / most;
}

/* Reads n samples, or their chunks, in parallel. Returns the time that this took; 0: a read failed.
 * *ret_median: the median time of a read; *ret_kept: as round.kept. */
static uint64_t probe_read_round(struct cw_reading_probe *p, unsigned n, bool chunks, uint64_t *ret_median,
                                 bool *ret_kept)
{
    pthread_t threads[MOST_READS];
    struct cw_error err = {0};
    unsigned n_threads = 0;
    struct round round = {.chunks = chunks,
                          .kept = true,
                          .next = &p->samples[p->next],
                          .mutex = PTHREAD_MUTEX_INITIALIZER,
                          .began = PTHREAD_COND_INITIALIZER};
    while (n_threads < n && cw_thread_start(&threads[n_threads], round_main, &round, &err) >= 0)
        n_threads++;
    CW_WITH (&round.mutex) {
        round.go = true;
        pthread_cond_broadcast(&round.began);
    }
    for (unsigned i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    p->next += n;
    if (n_threads < n || round.failed)
        return 0;
    uint64_t ns = CW_MAX(round_ns(&round), 1);
    *ret_median = CW_MAX(round.ns[(n - 1) / 2], 1);
    *ret_kept = round.kept;
    return ns;
}

/* Returns the seconds to read a chunk, measured with several chunks in parallel if there is time. 0: a read
 * failed, or the page cache does not keep chunks, so that reading them has no use. */
static double probe_read_chunks(struct cw_reading_probe *p)
{
    uint64_t median_ns, ns = 0, several_ns = 0;
    bool kept = true;
    if (p->next < p->n_samples)
        ns = probe_read_round(p, 1, true, &median_ns, &kept);
    if (ns && kept && ns * CHUNKS <= CHUNKS_NS && p->n_samples - p->next >= CHUNKS)
        several_ns = probe_read_round(p, CHUNKS, true, &median_ns, &kept);
    double s = (double)ns * 1e-9;
    if (several_ns)
        s = fmin(s, (double)several_ns * 1e-9 / CHUNKS);
    return kept ? s * fmax(p->chunk_bytes / (double)PART_BYTES, 1) : 0;
}

/* Returns the seconds that storage takes for one record, with the number of parallel reads that gives the
 * best rate; 0: a read failed. */
static double probe_read_records(struct cw_reading_probe *p)
{
    uint64_t spent_ns = 0, before_ns = 0, median_ns = 0, median_before_ns;
    /* how a round's time grows with its number of reads; 1: parallel reads do not slow each other down */
    double s = INFINITY, growth = 1;
    for (unsigned i = 0; i < CW_COUNT_OF(rounds) && p->n_samples - p->next >= rounds[i]; i++) {
        if ((double)spent_ns + (double)before_ns * growth > (double)RECORDS_NS && i > 1)
            break;
        median_before_ns = median_ns;
        bool kept;
        uint64_t ns = probe_read_round(p, rounds[i], false, &median_ns, &kept);
        if (ns == 0)
            return 0;
        growth = median_before_ns ? fmin(fmax((double)median_ns / (double)median_before_ns, 1), GROWTH) : 1;
        before_ns = ns;
        spent_ns += ns;
        /* more parallel reads never lower the rate; a worse result comes from a late read */
        s = fmin(s, (double)ns * 1e-9 / rounds[i]);
        p->found.read_s = i == 0 ? s : p->found.read_s;
    }
    return isfinite(s) ? s : 0;
}

static void probe_run(struct cw_reading_probe *p)
{
    double record_s = probe_read_records(p);
    if (!(record_s > 0))
        return;
    double chunk_s = probe_read_chunks(p);
    p->found.records_per_s = 1 / record_s / p->found.absent;
    p->found.chunked_per_s = p->found.records_per_s;
    if (chunk_s > 0)
        p->found.chunked_per_s = p->chunk_records / chunk_s / p->found.absent;
    p->failed = false;
}

static void *probe_main(void *arg)
{
    struct cw_reading_probe *p = arg;
    probe_run(p);
    CW_GUARD(&p->mutex);
    p->over = true;
    pthread_cond_signal(&p->changed);
    return NULL;
}

struct cw_reading_probe *cw_reading_probe_new(const struct cw_sequence *s, uint64_t memory)
{
    uint64_t n_records = 0, n_chunks = 0, room;
    struct cw_error err = {0};
    for (unsigned i = 0; i < s->compiled->n_programs; i++) {
        n_records += s->sources[i]->ops->locate ? s->sources[i]->n_records : 0;
        n_chunks += s->sources[i]->ops->locate ? s->sources[i]->n_chunks : 0;
    }
    if (!cw_sequence_reads_randomly(s) || n_chunks == 0 || n_records < 2 * n_chunks ||
        (double)cw_sequence_file_bytes(s) / (double)n_records >= LARGE_RECORD)
        return NULL;
    struct cw_reading_probe *p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct cw_reading_probe){.sequence = s,
                                   .chunk_records = (double)n_records / (double)n_chunks,
                                   .chunk_bytes = (double)cw_sequence_file_bytes(s) / (double)n_chunks,
                                   .failed = true,
                                   .found.record_bytes = (double)cw_sequence_file_bytes(s) /
                                                         (double)n_records};
    probe_find_samples(p, n_records);
    pthread_mutex_init(&p->mutex, NULL);
    cw_cond_init(&p->changed);
    if (p->n_samples > 0) {
        p->found.fits = cw_sequence_fits_in_memory(s, memory, &room);
        if (cw_thread_start(&p->thread, probe_main, p, &err) >= 0)
            return p;
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
    return NULL;
}

const struct cw_reading *cw_reading_wait(struct cw_reading_probe *p)
{
    uint64_t until_ns = cw_now_ns() + cw_cost_patience_ns(WAIT_NS);
    int e = 0;
    CW_GUARD(&p->mutex);
    while (!p->over && e == 0)
        e = cw_cond_wait(&p->changed, &p->mutex, until_ns);
    return p->over && !p->failed ? &p->found : NULL;
}

void cw_reading_probe_free(struct cw_reading_probe *p)
{
    if (!p)
        return;
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* ---- for people ---- */

/* Adds a number with two significant digits, and commas: 149.7 is "150", 17655 is "18,000". */
static void text_add_rounded(struct cw_text *t, double v)
{
    char digits[32];
    double unit = v >= 1 ? pow(10, floor(log10(v)) - 1) : 1;
    int n = snprintf(digits, sizeof(digits), "%.0f", fmin(round(v / unit) * unit, 1e18));
    for (int i = 0; i < n; i++)
        cw_text_add(t, "%s%c", i > 0 && (n - i) % 3 == 0 ? "," : "", digits[i]);
}

char *cw_reading_says(const struct cw_reading *k, double computed_per_s)
{
    double limit = computed_per_s > 0 ? computed_per_s : INFINITY;
    struct cw_text t = {0};
    if (k->fits || fmin(k->chunked_per_s, limit) < LEAST_GAIN * fmin(k->records_per_s, limit))
        return NULL;
    cw_text_add(&t, "shuffle by record reads ");
    text_add_rounded(&t, k->records_per_s);
    cw_text_add(&t, " records/s here; by=\"chunk\" would read about ");
    text_add_rounded(&t, k->chunked_per_s);
    double kb = k->record_bytes * 1e-3, ms = k->read_s * 1e3;
    cw_text_add(&t, "/s (%.*f kB records, %.*f ms a read)", kb < 10, kb, ms < 10, ms);
    return t.data;
}

json_t *cw_reading_json(const struct cw_reading *k)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:b}", "absent", k->absent, "record_bytes", k->record_bytes,
                     "read_s", k->read_s, "records_per_s", k->records_per_s, "chunked_records_per_s",
                     k->chunked_per_s, "fits_in_memory", (int)k->fits);
}
