/*
 * Reading what is not in memory: how many reads are in flight, files that are read in, chunks that are read
 * before their records, and what is predicted before the first batch. Storage is the throttle's
 * (storage/throttle.h), costs are modelled; no test depends on how fast anything is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/cost_clock.h"
#include "session/local.h"
#include "data_files.h"
#include "storage/throttle.h"

#ifdef CW_CRASH_POINTS

#define LINE_BYTES 1000

static char speed_path[256], lines_path[256];

/* Another speed takes the place of the one before at once. */
static void storage(const char *speed)
{
    char path[300];
    snprintf(path, sizeof(path), "%s.new", speed_path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(speed, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(path, speed_path), 0);
}

static int make(void **state)
{
    assert_int_equal(temp_make(state), 0);
    snprintf(speed_path, sizeof(speed_path), "%s/speed", temp_dir);
    setenv("CACHEW_FILES", speed_path, 1);
    cw_cost_model("modelled");
    return 0;
}

static int clear(void **state)
{
    unlink(speed_path);
    unlink(lines_path);
    unsetenv("CACHEW_FILES");
    cw_cost_model(NULL);
    return temp_remove(state);
}

/* n lines of `bytes` bytes with their ends, in a file that no other test has: the throttle knows what was
 * read of it. */
static void write_lines(unsigned n, int bytes)
{
    static unsigned number;
    snprintf(lines_path, sizeof(lines_path), "%s/lines-%u.txt", temp_dir, ++number);
    FILE *f = fopen(lines_path, "w");
    assert_non_null(f);
    for (unsigned i = 0; i < n; i++)
        fprintf(f, "%0*u\n", bytes - 1, i);
    assert_int_equal(fclose(f), 0);
}

static void open_lines(struct cw_local *l, const char *more)
{
    char text[800];
    struct cw_error err = {0};
    snprintf(text, sizeof(text),
             "{\"cachew\": 1, \"pipeline\": [{\"op\": \"text\", \"files\": \"%s\"}, %s {\"op\": \"batch\", "
             "\"size\": 16}]}",
             lines_path, more);
    if (cw_local_parse(l, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(l, temp_dir, 1, 0, &err) < 0)
        fail_msg("%s", err.message);
}

#define SHUFFLED "{\"op\": \"shuffle\"},"
#define BY_CHUNK "{\"op\": \"shuffle\", \"by\": \"chunk\"},"

static const struct cw_sequence *sequence; /* of the runner made last */

static struct cw_runner *runner_of(const struct cw_local *l, unsigned threads, size_t memory)
{
    sequence = l->sequence;
    struct cw_runner_options o = {.threads = threads, .memory = memory, .optimize = true, .read_in = true};
    struct cw_runner *r;
    struct cw_error err = {0};
    if (cw_runner_new(l->sequence, &o, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

static struct cw_range *open_range(struct cw_runner *r, uint64_t begin, uint64_t end)
{
    struct cw_range *s;
    struct cw_error err = {0};
    const struct cw_range_options o = {
        .seed = 1, .from.position = begin, .end = CW_MIN(end, sequence->n_positions)};
    if (cw_runner_open(r, &o, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

/* Positions of a piece of a pipeline that is counted or filtered: about a 256th of them. */
static uint64_t piece_size(void)
{
    uint64_t batch = sequence->compiled->batch_size;
    return CW_MAX(sequence->n_positions / 256 / batch * batch,
                  sequence->compiled->counted ? batch : 16 * batch);
}

static struct cw_range *open_piece(struct cw_runner *r, uint64_t index)
{
    return open_range(r, index * piece_size(), (index + 1) * piece_size());
}

/* All batches of a range; their hashes, added up. */
static struct cw_hash128 take_piece(struct cw_runner *r, struct cw_range *s)
{
    struct cw_hash128 sum = {0, 0};
    struct cw_assembly *a;
    struct cw_error err = {0};
    int status;
    while ((status = cw_runner_next(r, s, 0, &a, &err)) == 0) {
        struct cw_batch *b = cw_runner_take_batch(r, a);
        sum = cw_hash128_add(sum, cw_batch_set_hash(b));
        cw_runner_release(r, b);
    }
    if (status != 1)
        fail_msg("%s", err.message);
    cw_runner_close(r, s);
    return sum;
}

static struct cw_hash128 take_pieces(struct cw_runner *r, uint64_t n)
{
    struct cw_hash128 sum = {0, 0};
    for (uint64_t i = 0; i < n; i++)
        sum = cw_hash128_add(sum, take_piece(r, open_piece(r, i)));
    return sum;
}

static unsigned n_threads(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void pause_briefly(void)
{
    (void)usleep(1000);
}

/* Waits until so many reads wait for storage. */
static void wait_for_reads(unsigned n)
{
    while (cw_throttle_waiting() < n)
        pause_briefly();
}

static bool find_tuned(struct cw_runner *r, const char *what, struct cw_tuned *ret)
{
    struct cw_tuned_log log = {0};
    cw_runner_tuned(r, &log);
    for (unsigned i = 0; i < log.n; i++)
        if (strcmp(log.last[i].what, what) == 0) {
            *ret = log.last[i];
            return true;
        }
    return false;
}

static void wait_for_tuned(struct cw_runner *r, const char *what, struct cw_tuned *ret)
{
    while (!find_tuned(r, what, ret))
        pause_briefly();
}

static uint64_t file_bytes(void)
{
    struct stat st;
    assert_int_equal(stat(lines_path, &st), 0);
    return (uint64_t)st.st_size;
}

/* ---- depth ---- */

static void test_64_reads_are_in_flight(void **state)
{
    (void)state;
    struct cw_local l = {0};
    write_lines(20000, LINE_BYTES);
    open_lines(&l, SHUFFLED);
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    storage("-1 0");
    struct cw_range *pieces[] = {open_piece(r, 0), open_piece(r, 1), open_piece(r, 2)};
    wait_for_reads(64);
    storage("0 0");
    for (size_t i = 0; i < CW_COUNT_OF(pieces); i++)
        take_piece(r, pieces[i]);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

/* A block of a cheap pipeline has many records. They are read at the same time, and not one after the
 * other. */
static void test_reads_of_a_block_are_parallel(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_tuned rows;
    cw_cost_model("modelled,text=1");
    write_lines(50000, 100);
    open_lines(&l, SHUFFLED);
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    storage("0 0");
    take_pieces(r, 20);
    assert_true(find_tuned(r, "block_rows", &rows));
    assert_true(rows.chosen >= 16); /* as many as a batch has: four blocks beside those of reads in flight */
    storage("-1 0");
    struct cw_range *s = open_piece(r, 20);
    wait_for_reads(64);
    storage("0 0");
    take_piece(r, s);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

static void test_read_threads_are_started_when_reads_block(void **state)
{
    (void)state;
    struct cw_local l = {0};
    unlink(speed_path);
    write_lines(20000, LINE_BYTES);
    open_lines(&l, SHUFFLED);
    unsigned before = n_threads();
    struct cw_runner *r = runner_of(&l, 2, (size_t)64 << 20);
    take_pieces(r, 4); /* the page cache has what was written */
    struct cw_profile profile = {.ops = calloc(l.pipeline->n_ops, sizeof(*profile.ops))};
    cw_runner_profile(r, &profile);
    if (profile.cold_bytes == 0) /* some file systems can't tell what is in memory */
        assert_int_equal(n_threads(), before + 2);
    free(profile.ops);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

static void test_memory_is_kept_while_many_reads_are_in_flight(void **state)
{
    (void)state;
    struct cw_local l = {0};
    const size_t memory = (size_t)3 << 20;
    write_lines(4000, 20000);
    open_lines(&l, SHUFFLED);
    storage("0 0");
    struct cw_runner *r = runner_of(&l, 2, (size_t)64 << 20);
    struct cw_hash128 expected = take_pieces(r, 40);
    cw_runner_free(r);
    storage("0 0 1000 0");
    r = runner_of(&l, 2, memory);
    struct cw_hash128 sum = take_pieces(r, 40);
    assert_memory_equal(&sum, &expected, sizeof(sum));
    struct cw_profile profile = {.ops = calloc(l.pipeline->n_ops, sizeof(*profile.ops))};
    cw_runner_profile(r, &profile);
    assert_true(profile.memory_peak <= memory);
    assert_true(profile.cold_bytes > 0);
    free(profile.ops);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

static void test_a_failed_read_ends_the_run_and_names_the_file(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_assembly *a;
    struct cw_error err = {0};
    write_lines(20000, LINE_BYTES);
    open_lines(&l, SHUFFLED);
    storage("-1 0");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_range *s = open_piece(r, 0);
    wait_for_reads(16);
    assert_int_equal(truncate(lines_path, 100), 0);
    storage("0 0 1000 0");
    int status;
    while ((status = cw_runner_next(r, s, 0, &a, &err)) == 0)
        cw_runner_drop(r, a);
    assert_int_equal(status, CW_E_DATA);
    assert_non_null(strstr(err.message, lines_path));
    assert_non_null(strstr(err.message, "changed since it was indexed"));
    cw_runner_free(r);
    cw_local_deinit(&l);
}

static void *let_go(void *arg)
{
    (void)arg;
    pause_briefly();
    storage("0 0 1000 0");
    return NULL;
}

static void test_reads_of_a_closed_range_are_not_begun(void **state)
{
    (void)state;
    struct cw_local l = {0};
    pthread_t thread;
    cw_cost_model("modelled,text=1");
    write_lines(300000, 10);
    open_lines(&l, "");
    storage("0 0");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    storage("-1 0");
    struct cw_range *s = open_piece(r, 0);
    wait_for_reads(1);
    assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
    cw_runner_close(r, s); /* waits for the reads that were begun */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(cw_throttle_waiting(), 0);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

/* ---- files that are read in ---- */

/* 20,000 lines of 1,000 bytes, of which the first pieces are read one by one; what is decided then. */
static struct cw_tuned read_in_of(const char *speed, bool *ret_all)
{
    struct cw_local l = {0};
    struct cw_tuned t;
    write_lines(20000, LINE_BYTES);
    storage(speed);
    open_lines(&l, SHUFFLED);
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    take_pieces(r, 4);
    wait_for_tuned(r, "read_in_bytes", &t);
    /* to the end, while nothing else is done */
    while (t.others[0].value > 0 && t.others[1].value > 0 && cw_throttle_absent(lines_path, 0, file_bytes()))
        pause_briefly();
    *ret_all = !cw_throttle_absent(lines_path, 0, file_bytes());
    cw_runner_free(r);
    cw_local_deinit(&l);
    return t;
}

static void test_files_are_read_in_beside_random_reads(void **state)
{
    (void)state;
    bool all;
    /* 133 s one by one, half a second as a whole */
    struct cw_tuned t = read_in_of("50e6 0 150 0.005 1", &all);
    assert_true(all);
    assert_true(t.chosen > 19e6 && t.chosen <= 20e6);
    assert_non_null(strstr(t.why, "fit in memory"));
}

static void test_files_are_not_read_in_where_bytes_are_the_limit(void **state)
{
    (void)state;
    bool all;
    struct cw_tuned t = read_in_of("2e6 0 1e6 0 1", &all); /* 10 s in any case */
    assert_false(all);
    assert_true(t.others[0].value > 0 && t.others[1].value == 0 && t.chosen <= 4 << 20);
    assert_non_null(strstr(t.why, "would take more than half"));
}

static void test_files_are_not_read_in_where_nothing_is_kept(void **state)
{
    (void)state;
    bool all;
    struct cw_tuned t = read_in_of("50e6 0 150 0.005 0", &all);
    assert_true(t.others[0].value == 0 && t.chosen == 4 << 20); /* the first piece told */
    assert_non_null(strstr(t.why, "memory has no room for them"));
}

/* Of files that are read from front to back nothing is decided. */
static void test_files_are_not_read_in_without_shuffle(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_tuned t;
    write_lines(20000, LINE_BYTES);
    storage("50e6 0 150 0.005 1");
    open_lines(&l, "");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    take_pieces(r, 4);
    assert_false(find_tuned(r, "read_in_bytes", &t));
    cw_runner_free(r);
    cw_local_deinit(&l);
}

/* ---- chunks ---- */

static void test_chunks_are_read_before_their_records(void **state)
{
    (void)state;
    struct cw_local l = {0};
    write_lines(80000, 100);
    open_lines(&l, BY_CHUNK);
    assert_true(cw_sequence_reads_by_chunk(l.sequence));
    assert_false(cw_sequence_reads_randomly(l.sequence));
    storage("0 0");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_hash128 expected = take_piece(r, open_range(r, 0, UINT64_MAX));
    cw_runner_free(r);
    storage("0 0 150 0.005 1");
    r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_hash128 sum = take_piece(r, open_range(r, 0, UINT64_MAX));
    assert_memory_equal(&sum, &expected, sizeof(sum));
    struct cw_profile profile = {.ops = calloc(l.pipeline->n_ops, sizeof(*profile.ops))};
    cw_runner_profile(r, &profile);
    assert_true(profile.cold_bytes > 0);
    assert_true(profile.cold_bytes >= 1024 * 100); /* whole chunks */
    /* each of the 79 is a read of 1/150 s: not one for each of the 80,000 records */
    assert_true(profile.cold_ns < UINT64_C(2000000000));
    free(profile.ops);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

/* Then chunks are read in vain: a first one, and no more. */
static void test_chunks_are_not_read_where_nothing_is_kept(void **state)
{
    (void)state;
    struct cw_local l = {0};
    write_lines(80000, 100);
    open_lines(&l, BY_CHUNK);
    storage("0 0");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_hash128 expected = take_pieces(r, 6);
    cw_runner_free(r);
    storage("0 0 150 0.005 0");
    r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_hash128 sum = take_pieces(r, 6);
    assert_memory_equal(&sum, &expected, sizeof(sum));
    struct cw_profile profile = {.ops = calloc(l.pipeline->n_ops, sizeof(*profile.ops))};
    cw_runner_profile(r, &profile);
    assert_true(profile.cold_bytes < 6 * piece_size() * 99 + 2 * ((uint64_t)4 << 20));
    free(profile.ops);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

static void test_a_range_is_closed_while_its_chunks_are_read(void **state)
{
    (void)state;
    struct cw_local l = {0};
    pthread_t thread;
    write_lines(80000, 100);
    open_lines(&l, BY_CHUNK);
    storage("-1 0 0 0 1");
    struct cw_runner *r = runner_of(&l, 1, (size_t)64 << 20);
    struct cw_range *s = open_range(r, 0, UINT64_MAX);
    wait_for_reads(1);
    cw_runner_close(r, s); /* waits for nothing */
    assert_true(cw_throttle_waiting() >= 1);
    assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
    cw_runner_free(r);
    assert_int_equal(pthread_join(thread, NULL), 0);
    cw_local_deinit(&l);
}

/* ---- what is predicted ---- */

static struct cw_reading_probe *probe(struct cw_local *l, unsigned n, int bytes, const char *speed)
{
    write_lines(n, bytes);
    open_lines(l, SHUFFLED);
    storage(speed);
    return cw_reading_probe_new(l->sequence, 0);
}

static void test_predicts_the_rates_of_storage(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_reading_probe *p = probe(&l, 60000, 200, "4e6 0 150 0.005 1");
    assert_non_null(p);
    const struct cw_reading *k = cw_reading_wait(p);
    assert_non_null(k);
    double record_s = 1 / 150.0 + 199 / 4e6, chunk_s = 1 / 150.0 + 1024 * 200 / 4e6;
    assert_true(k->absent == 1 && k->record_bytes == 199);
    assert_true(k->records_per_s > 0.9 / record_s && k->records_per_s < 1.1 / record_s);
    assert_true(k->chunked_per_s > 0.9 * 1024 / chunk_s && k->chunked_per_s < 1.1 * 1024 / chunk_s);
    cw_reading_probe_free(p);
    cw_local_deinit(&l);
}

static void test_predicts_nothing_of_what_is_in_memory(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_reading_probe *p = probe(&l, 60000, 200, "0 0");
    assert_null(p);
    cw_local_deinit(&l);
}

static void test_predicts_nothing_of_a_shuffle_by_chunk(void **state)
{
    (void)state;
    struct cw_local l = {0};
    write_lines(80000, 100);
    open_lines(&l, BY_CHUNK);
    storage("4e6 0 150 0.005 1");
    assert_null(cw_reading_probe_new(l.sequence, 0));
    cw_local_deinit(&l);
}

/* Where what was read is not in memory afterwards, to read whole chunks first gains nothing. */
static void test_predicts_no_gain_where_nothing_is_kept(void **state)
{
    (void)state;
    struct cw_local l = {0};
    struct cw_reading_probe *p = probe(&l, 60000, 200, "4e6 0 150 0.005 0");
    const struct cw_reading *k = cw_reading_wait(p);
    assert_non_null(k);
    assert_true(k->chunked_per_s == k->records_per_s);
    cw_reading_probe_free(p);
    cw_local_deinit(&l);
}

static void test_a_failed_probe_says_nothing(void **state)
{
    (void)state;
    struct cw_local l = {0};
    write_lines(60000, 200);
    open_lines(&l, SHUFFLED);
    storage("4e6 0 150 0.005 1");
    assert_int_equal(truncate(lines_path, 100), 0);
    struct cw_reading_probe *p = cw_reading_probe_new(l.sequence, 0);
    assert_non_null(p);
    assert_null(cw_reading_wait(p));
    cw_reading_probe_free(p);
    cw_local_deinit(&l);
}

static void test_says_what_another_shuffle_would_gain(void **state)
{
    (void)state;
    struct cw_reading k = {
        .absent = 1, .record_bytes = 200, .read_s = 0.005, .records_per_s = 149.7, .chunked_per_s = 19655};
    char *says = cw_reading_says(&k, 0);
    assert_string_equal(says, "shuffle by record reads 150 records/s here; by=\"chunk\" would read about "
                              "20,000/s (0.2 kB records, 5.0 ms a read)");
    free(says);
    says = cw_reading_says(&k, 400); /* computing is the limit then, and still more than twice as fast */
    assert_non_null(says);
    free(says);
    assert_null(cw_reading_says(&k, 200)); /* less than twice */
    k.record_bytes = 120000;
    k.read_s = 0.15;
    says = cw_reading_says(&k, 0); /* once "1.2e+02 kB" */
    assert_non_null(strstr(says, "(120 kB records, 150 ms a read)"));
    free(says);
    k.chunked_per_s = 250;
    assert_null(cw_reading_says(&k, 0));
    k.chunked_per_s = 19655;
    k.fits = true; /* read in */
    assert_null(cw_reading_says(&k, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_64_reads_are_in_flight, make, clear),
        cmocka_unit_test_setup_teardown(test_reads_of_a_block_are_parallel, make, clear),
        cmocka_unit_test_setup_teardown(test_read_threads_are_started_when_reads_block, make, clear),
        cmocka_unit_test_setup_teardown(test_memory_is_kept_while_many_reads_are_in_flight, make, clear),
        cmocka_unit_test_setup_teardown(test_a_failed_read_ends_the_run_and_names_the_file, make, clear),
        cmocka_unit_test_setup_teardown(test_reads_of_a_closed_range_are_not_begun, make, clear),
        cmocka_unit_test_setup_teardown(test_files_are_read_in_beside_random_reads, make, clear),
        cmocka_unit_test_setup_teardown(test_files_are_not_read_in_where_bytes_are_the_limit, make, clear),
        cmocka_unit_test_setup_teardown(test_files_are_not_read_in_where_nothing_is_kept, make, clear),
        cmocka_unit_test_setup_teardown(test_files_are_not_read_in_without_shuffle, make, clear),
        cmocka_unit_test_setup_teardown(test_chunks_are_read_before_their_records, make, clear),
        cmocka_unit_test_setup_teardown(test_chunks_are_not_read_where_nothing_is_kept, make, clear),
        cmocka_unit_test_setup_teardown(test_a_range_is_closed_while_its_chunks_are_read, make, clear),
        cmocka_unit_test_setup_teardown(test_predicts_the_rates_of_storage, make, clear),
        cmocka_unit_test_setup_teardown(test_predicts_nothing_of_what_is_in_memory, make, clear),
        cmocka_unit_test_setup_teardown(test_predicts_nothing_of_a_shuffle_by_chunk, make, clear),
        cmocka_unit_test_setup_teardown(test_predicts_no_gain_where_nothing_is_kept, make, clear),
        cmocka_unit_test_setup_teardown(test_a_failed_probe_says_nothing, make, clear),
        cmocka_unit_test(test_says_what_another_shuffle_would_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
} /* other builds have no throttle */

#endif
