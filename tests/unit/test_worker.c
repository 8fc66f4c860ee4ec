/* A worker: its batches are those of an iterator, whatever fails and dispatchers do; what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sample.h"
#include "worker/socket_dir.h"
#include "worker_stream.h"

#define LENGTHS "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"bucket_by_length\", \"length\": \"length(text)\", \"boundaries\": [10, 20, 30], \"sizes\": [8, 6, 4, 2]}"
#define SINGLE "{\"op\": \"range\", \"stop\": 300}"

/* Batches that remnants are joined to, split after split, are those that the iterator joins. */
struct joining {
    struct cw_assembly *at[16];
    uint64_t next_index;
};

static void check_joined(struct reference *r, struct cw_assembly *a, uint64_t split, uint64_t index)
{
    struct cw_error err = {0};
    assert_int_equal(cw_assembly_finish(a, &r->slabs, &err), 0);
    a->batch->epoch = 0;
    assert_same(a->batch, expected_at(r, 0, split, index));
    cw_assembly_free(a);
}

static size_t join_split(struct reference *r, struct fake *f, struct joining *j, uint64_t split, const Cachew__Report *report, bool last)
{
    uint64_t index = report->n_batches;
    size_t n_quarantined = 0;
    unsigned n_keys = cw_n_keys(r->local.compiled);
    for (unsigned k = 0; k < n_keys; k++) {
        uint64_t n = k < report->n_remnants ? report->remnants[k] : 0;
        for (uint64_t at = 0; at < n;) {
            struct cw_error err = {0};
            if (!j->at[k])
                assert_int_equal(cw_assembly_new(&r->layout, &r->slabs, r->local.compiled->bucket_sizes[k], k, &j->at[k], &err), 0);
            uint64_t part = CW_MIN(n - at, j->at[k]->capacity - j->at[k]->n_assigned);
            struct got *g = wait_got(f, is_answer, say_get_remnant(f, 0, 0, split, k, at, part), 0);
            assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_REMNANT);
            struct cw_remnant m;
            if (cw_wire_remnant_read(g->m->remnant, g->payload, g->size, r->local.compiled, &m, &err) < 0 || cw_remnant_join(j->at[k], &m, &err) < 0)
                fail_msg("%s", err.message);
            for (const struct cw_quarantined *q = m.quarantined; q; q = q->next)
                n_quarantined += !q->note;
            cw_remnant_deinit(&m);
            got_free(g);
            at += part;
            if (j->at[k]->n_assigned == j->at[k]->capacity)
                check_joined(r, CW_STEAL(j->at[k]), split, index++);
        }
    }
    for (unsigned k = 0; k < n_keys && last; k++)
        if (j->at[k])
            check_joined(r, CW_STEAL(j->at[k]), split, index++);
    return n_quarantined;
}

/* The batches of one epoch, over a transport, asked for in parts of so many. */
static void run_epoch(const char *chain, enum transport t, uint64_t part)
{
    struct reference r;
    struct joining j = {0};
    struct got *prep;
    struct fake *f = &clients[0];
    size_t n_batches = 0, n_quarantined = 0;
    reference_limit = SIZE_MAX;
    reference_init(&r, chain, 5, 1);
    struct cw_worker_options o = worker_defaults();
    worker_start(&o);
    const Cachew__Plan *plan = prepare(0, chain, &prep)->plan;
    assert_int_equal(plan->n_splits, r.local.sequence->n_splits);
    assert_true(plan->snapshot == r.local.sequence->snapshot);
    client_connect(f, t);
    for (uint64_t s = 0; s < plan->n_splits; s++) {
        say_lease(0, 0, s, 1, 0);
        struct got *report = wait_got(&dispatcher, is_report, 0, s);
        uint64_t n = report->m->completed->report->n_batches, came = 0;
        for (uint64_t from = 0; from <= n; from += part) { /* beyond the end: SplitEnd */
            uint64_t id = say_get(f, 0, 0, s, from, part), answers = n - from >= part ? part : n - from + 1;
            for (uint64_t i = 0; i < answers; i++) {
                struct got *g = wait_got(f, is_answer, id, 0);
                if (g->m->of_case == CACHEW__ENVELOPE__OF_SPLIT_END) {
                    assert_int_equal(g->m->split_end->report->n_batches, n);
                } else {
                    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_BATCH);
                    assert_int_equal(g->m->batch->index, from + i);
                    assert_int_equal(g->m->batch->n_slabs != 0, t == SHARED);
                    n_quarantined += check_batch(&r, f, g);
                    give_back(f, g);
                    came++;
                }
                got_free(g);
            }
        }
        assert_int_equal(came, n);
        n_batches += n;
        n_quarantined += join_split(&r, f, &j, s, report->m->completed->report, s + 1 == plan->n_splits);
        say_revoke(0, 0, s, 1);
        got_free(report);
    }
    if (!cw_n_keys(r.local.compiled))
        assert_int_equal(n_batches, r.n);
    assert_int_equal(n_quarantined, r.n_skipped);
    say_forget(0);
    run_until(status_now().n_streams == 0);
    run_until(status_now().n_out == 0);
    got_free(prep);
    reference_deinit(&r);
}

static void counted_shared(void **state) { (void)state; run_epoch(RANGE, SHARED, 3); }
static void counted_tcp(void **state) { (void)state; run_epoch(RANGE, TCP, 7); }
static void counted_local(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    run_epoch(RANGE, LOCAL, 1);
}
static void filtered_shared(void **state) { (void)state; run_epoch(FILTER, SHARED, 5); }
static void filtered_tcp(void **state) { (void)state; run_epoch(FILTER, TCP, 5); }
static void bytes_shared(void **state) { (void)state; run_epoch(BYTES, SHARED, 4); }
static void bytes_tcp(void **state) { (void)state; run_epoch(BYTES, TCP, 4); }
static void buckets_shared(void **state)
{
    (void)state;
    LEAVE_OUT_OF_SAMPLE();
    run_epoch(LENGTHS, SHARED, 2);
}
static void buckets_tcp(void **state) { (void)state; run_epoch(LENGTHS, TCP, 100); }
static void elements_shared(void **state) { (void)state; run_epoch(SINGLE, SHARED, 50); }

/* ---- records and runs that fail ---- */

static void skipped_records(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"filter\", \"where\": \"value % 4 != 1\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}]}", SHARED, 6);
}

static void skipped_in_counted(void **state)
{
    (void)state;
    run_epoch("{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"fail\", \"where\": \"value % 50 == 7\"}, "
              "{\"op\": \"batch\", \"size\": 32}]}", TCP, 6);
}

#define FAILS_AT "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"fail\", \"where\": \"value == 100\"}, {\"op\": \"filter\", \"where\": \"value >= 0\"}, {\"op\": \"batch\", \"size\": 16}"

/* What stands before a failed record is had; in its place is the error, again and again. */
static void failed_record(void **state)
{
    (void)state;
    struct cw_worker_options o = worker_defaults();
    reference_init(&reference, "{\"op\": \"range\", \"stop\": 2000}, {\"op\": \"filter\", \"where\": \"value >= 0\"}, {\"op\": \"batch\", \"size\": 16}", 5, 1);
    worker_start(&o);
    prepare(0, FAILS_AT, &prepared);
    client_connect(&clients[0], SHARED);
    lease(0, 0, 0, 2, 0);
    for (int times = 0; times < 2; times++) {
        for (uint64_t i = 0; i < 6; i++)
            fetch(&clients[0], 0, i);
        struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 0, 0, 0, 6, 2), 0);
        assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_SPLIT_FAILED);
        assert_int_equal(g->m->split_failed->index, 6);
        assert_string_equal(g->m->split_failed->why->op, "fail");
        got_free(g);
        expect_kind(&clients[0], say_get_remnant(&clients[0], 0, 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_SPLIT_FAILED);
    }
    assert_int_equal(n_failed_streams, 0);
    end_all();
}

/* A file that is gone ends the stream, which is prepared anew once it is there again. */
static void failed_stream(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof(path), "%s/gone.txt", temp_dir);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < 200000; i++)
        fprintf(out, "line %d of a file that goes\n", i);
    fclose(out);
    start_with("{\"op\": \"text\", \"files\": \"gone.txt\"}, {\"op\": \"filter\", \"where\": \"length(text) > 0\"}, {\"op\": \"batch\", \"size\": 64}", SHARED, (size_t)64 << 20);
    assert_int_equal(truncate(path, 100), 0);
    say_lease(0, 0, 0, 4, 0);
    run_until(n_failed_streams == 1);
    struct got *g = wait_got(&dispatcher, is_kind, CACHEW__ENVELOPE__OF_STREAM_FAILED, 0);
    assert_contains(g->m->stream_failed->why->message, "gone.txt");
    got_free(g);
    /* Another worker may have it. */
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 1, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    run_until(status_now().n_leases == 0);
    struct got *again;
    prepare(0, RANGE, &again);
    run_until(status_now().n_streams == 1);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    got_free(again);
    end_all();
}

/* A dispatcher that is connected anew knows nothing of a stream that failed, and sends no Forget for it. */
static void failed_stream_ends_with_the_connection(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof(path), "%s/lost.txt", temp_dir);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < 200000; i++)
        fprintf(out, "line %d of a file that goes\n", i);
    fclose(out);
    start_with("{\"op\": \"text\", \"files\": \"lost.txt\"}, {\"op\": \"batch\", \"size\": 64}", SHARED, (size_t)64 << 20);
    assert_int_equal(truncate(path, 100), 0);
    say_lease(0, 0, 0, 4, 0);
    run_until(n_failed_streams == 1);
    fake_close(&dispatcher);
    run_until(n_registered == 2 && status_now().n_streams == 0 && status_now().memory_used == 0);
    assert_int_equal(n_holdings, 0);
    expect_kind(&clients[0], say_get(&clients[0], 0, 0, 0, 0, 1), CACHEW__ENVELOPE__OF_NOT_HERE);
    end_all();
}

/* ---- what dispatchers do ---- */

/* A new connection: the same leases are named, and completions said again until they are acknowledged. */
static void dispatcher_comes_back(void **state)
{
    (void)state;
    dispatcher.dead_slow = true;
    start_with(FILTER, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 3, 0);
    got_free(wait_got(&dispatcher, is_report, 0, 0));
    fetch(&clients[0], 1, 0);
    run_until(n_completed == 3 && status_now().n_reports == 3);
    for (int times = 0; times < 2; times++) {
        unsigned before = n_registered, holdings = n_holdings, completed = n_completed;
        fake_close(&dispatcher);
        dispatcher.dead_slow = times == 0;
        fetch(&clients[0], 1, 2); /* nobody's business */
        run_until(n_registered == before + 1 && n_holdings == holdings + 1);
        const Cachew__Holding *h = last_holdings->holdings->holdings[0];
        assert_int_equal(h->n_splits, 3);
        assert_int_equal(h->splits[2]->split, 2);
        assert_true(h->prepared->plan->snapshot == reference.local.sequence->snapshot);
        run_until(n_completed >= completed + 3); /* each is said anew */
    }
    run_until(status_now().n_reports == 0);
    /* The next one may not know what was acknowledged: it is told of all that there is a lease for. */
    for (unsigned left = 3; left >= 2; left--) {
        unsigned before = n_completed, registered = n_registered;
        fake_close(&dispatcher);
        run_until(n_registered == registered + 1 && n_completed >= before + left && status_now().n_reports == 0);
        assert_int_equal(n_completed, before + left);
        say_revoke(0, 0, left - 1, 1);
        run_until(status_now().n_leases == left - 1);
    }
    end_all();
}

static void prepared_again(void **state)
{
    (void)state;
    struct got *again;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 1, 0);
    say_lease(0, 0, 0, 1, 0); /* said twice */
    const Cachew__Prepared *p = prepare(0, RANGE, &again);
    assert_true(p->plan->snapshot == prepared->m->prepared->plan->snapshot && p->capacity >= 2);
    run_until(status_now().n_leases == 1);
    fetch(&clients[0], 0, 0);
    got_free(again);
    end_all();
}

static void lease_beyond_the_end(void **state)
{
    (void)state;
    start_with(RANGE, SHARED, (size_t)64 << 20);
    say_lease(0, 0, 1000000, 1, 0);
    run_until(n_registered == 2); /* it was cut off, and is back */
    lease(0, 0, 0, 1, UINT64_C(1) << 60); /* nobody needs any of it */
    struct got *g = wait_got(&dispatcher, is_report, 0, 0);
    assert_int_equal(g->m->completed->report->n_batches, expected_at(&reference, 0, 1, 0)->g);
    fetch(&clients[0], 0, 0);
    got_free(g);
    end_all();
}

static void drains(void **state)
{
    (void)state;
    struct cw_error err = {0};
    start_with(RANGE, SHARED, (size_t)64 << 20);
    lease(0, 0, 0, 2, 0);
    fetch(&clients[0], 0, 0);
    cw_worker_drain(worker);
    got_free(wait_got(&dispatcher, is_kind, CACHEW__ENVELOPE__OF_DRAINING, 0));
    fetch(&clients[0], 1, 0);
    assert_int_equal(cw_worker_wait_drained(worker, 1000000, &err), CW_E_DEADLINE);
    say_revoke(0, 0, 0, 2);
    run_until(status_now().n_leases == 0 && status_now().n_reports == 0);
    assert_int_equal(cw_worker_wait_drained(worker, 0, &err), 0);
    end_all();
}

/* Memory is divided: what one stream has is taken away when another comes, and it goes on. */
static void two_streams(void **state)
{
    (void)state;
    struct reference other;
    struct got *second;
    start_with(LARGE, SHARED, (size_t)64 << 20);
    reference_init(&other, BYTES, 5, 1);
    lease(0, 0, 0, 4, 0);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 0, i);
    prepare(1, BYTES, &second);
    lease(1, 0, 0, 4, 0);
    for (uint64_t i = 4; i < 8; i++) {
        fetch(&clients[0], 0, i);
        struct got *g = wait_got(&clients[0], is_answer, say_get(&clients[0], 1, 0, 2, i, 1), 0);
        check_batch(&other, &clients[0], g);
        give_back(&clients[0], g);
        got_free(g);
    }
    say_forget(1);
    run_until(status_now().n_streams == 1);
    for (uint64_t i = 0; i < 4; i++)
        fetch(&clients[0], 3, i);
    got_free(second);
    reference_deinit(&other);
    end_all();
}

/* Who takes the place of others has their memory, also where all of it is said in one breath. */
static void one_for_two(void **state)
{
    (void)state;
    struct got *first, *second, *third;
    struct cw_worker_options o = worker_defaults();
    o.memory = (size_t)16 << 20;
    worker_start(&o);
    prepare(1, RANGE, &first);
    prepare(2, SINGLE, &second);
    say_forget(1);
    say_forget(2);
    prepare(0, "{\"op\": \"synthetic\", \"count\": 256, \"shape\": [64, 1024], \"dtype\": \"uint8\"}, {\"op\": \"batch\", \"size\": 128}", &third); /* 8 MiB each */
    say_forget(0);
    run_until(status_now().n_streams == 0);
    got_free(first);
    got_free(second);
    got_free(third);
}

/* ---- what is refused ---- */

static void expect_refused(const char *chain, const char *part)
{
    struct got *g = wait_got(&dispatcher, is_answer, say_prepare(0, chain, 5), 0);
    assert_int_equal(g->m->of_case, CACHEW__ENVELOPE__OF_FAILURE);
    assert_contains(g->m->failure->message, part);
    got_free(g);
    run_until(status_now().n_streams == 0);
}

static void refuses(void **state)
{
    (void)state;
    char root[200], link[300], chain[500];
    snprintf(root, sizeof(root), "%s/root", temp_dir);
    snprintf(link, sizeof(link), "%s/link.txt", root);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(symlink("../lines.txt", link), 0);
    snprintf(link, sizeof(link), "%s/good.txt", root);
    FILE *out = fopen(link, "w");
    fputs("one\ntwo\nthree\n", out);
    fclose(out);
    const char *roots[] = {"/nowhere", root};
    struct cw_worker_options o = worker_defaults();
    o.data_roots = roots;
    o.n_data_roots = 2;
    worker_start(&o);
    static const char *const outside[] = {"lines.txt", "/etc/passwd", "root/link.txt", "root/../lines.txt", "root/*.txt", "/etc/*", "/etc/nothing-here", "*.txt"};
    for (size_t i = 0; i < CW_COUNT_OF(outside); i++) {
        snprintf(chain, sizeof(chain), "{\"op\": \"text\", \"files\": \"%s\"}, {\"op\": \"batch\", \"size\": 2}", outside[i]);
        expect_refused(chain, "lies outside the directories that may be read");
    }
    expect_refused("{\"op\": \"image_folder\", \"root\": \"/etc\"}", "lies outside");
    expect_refused("{\"op\": \"text\", \"files\": \"root/nothing\"}", "no file matches");
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"fail\", \"kind\": \"crash\"}", "may end the process");
    wrong_fingerprint = true;
    expect_refused("{\"op\": \"range\", \"stop\": 3}", "its fingerprint");
    wrong_fingerprint = false;
    expect_refused("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"map\", \"function\": {\"name\": \"f\", \"identity\": \"f\", \"payload\": \"AA==\"}, \"outputs\": {}}", "--allow-python");
    expect_refused("{\"op\": \"nonsense\"}", "nonsense");
    expect_refused("{\"op\": ", "JSON");
    struct got *g;
    prepare(0, "{\"op\": \"text\", \"files\": \"root/good.txt\"}", &g);
    assert_int_equal(g->m->prepared->n_files, 1);
    assert_contains(g->m->prepared->files[0]->path, "good.txt");
    got_free(g);
}

/* ---- directories of sockets ---- */

static void *make_dirs(void *arg CW_UNUSED)
{
    for (int i = 0; i < 100; i++) {
        struct cw_error err = {0};
        char *path, socket[200];
        struct stat st;
        int lock;
        if (cw_socket_dir_new(&path, &lock, &err) < 0)
            return strdup(err.message);
        snprintf(socket, sizeof(socket), "%s/socket", path);
        int fd = open(socket, O_CREAT | O_WRONLY, 0600);
        sched_yield(); /* others start, and look */
        if (fd < 0 || stat(socket, &st) < 0 || unlink(socket) < 0)
            return strdup("a directory in use was removed");
        close(fd);
        cw_socket_dir_free(path, lock);
    }
    return NULL;
}

/* Workers that start at the same time take no directory of each other for one that was left. */
static void socket_dirs_of_workers_that_start_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    char *fault, left[200];
    assert_int_equal(setenv("XDG_RUNTIME_DIR", temp_dir, 1), 0);
    snprintf(left, sizeof(left), "%s/cachew-worker-killed", temp_dir);
    assert_int_equal(mkdir(left, 0700), 0);
    for (size_t i = 0; i < CW_COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_dirs, NULL), 0);
    for (size_t i = 0; i < CW_COUNT_OF(threads); i++) {
        pthread_join(threads[i], (void **)&fault);
        if (fault)
            fail_msg("%s", fault);
    }
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(rmdir(left), -1); /* it was */
}

/* Why no directory can be had is what the error says. */
static void socket_dir_without_descriptors(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct rlimit before, none;
    char *path;
    int lock;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = cw_socket_dir_new(&path, &lock, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(r, CW_E_IO);
    assert_contains(err.message, strerror(EMFILE));
}

static void wrong_options(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_worker_options o = worker_defaults();
    o.memory = 1000;
    assert_int_equal(cw_worker_start(&o, &worker, &err), CW_E_OPTION);
    o = worker_defaults();
    o.unix_path = "/nowhere/at/all";
    assert_true(cw_worker_start(&o, &worker, &err) < 0);
    o = worker_defaults();
    o.listen = "nonsense";
    assert_true(cw_worker_start(&o, &worker, &err) < 0);
    assert_null(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(counted_shared), world_test(counted_tcp), world_test(counted_local), world_test(filtered_shared), world_test(filtered_tcp),
        world_test(bytes_shared), world_test(bytes_tcp), world_test(buckets_shared), world_test(buckets_tcp), world_test(elements_shared),
        world_test(skipped_records), world_test(skipped_in_counted), world_test(failed_record), world_test(failed_stream),
        world_test(failed_stream_ends_with_the_connection),
        world_test(dispatcher_comes_back), world_test(prepared_again), world_test(lease_beyond_the_end), world_test(drains), world_test(two_streams), world_test(one_for_two),
        world_test(refuses), cmocka_unit_test(socket_dirs_of_workers_that_start_at_once),
        cmocka_unit_test(socket_dir_without_descriptors), world_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, make_lines, temp_remove);
}
