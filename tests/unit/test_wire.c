/* Batches and parts as messages: what goes in comes out, and what nobody honest sends is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "session/local.h"
#include "engine/part.h"
#include "remote/wire.h"

#include "data_files.h"

static const char mixed[] = "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"assign\", \"set\": "
                            "{\"n\": \"length(text)\", \"half\": \"float32(0.5) * length(text)\"}}, "
                            "{\"op\": \"batch\", \"size\": 7}";
static const char skips[] = "{\"op\": \"range\", \"stop\": 60}, {\"op\": \"fail\", \"where\": \"value % 5 == "
                            "2\"}, {\"op\": \"filter\", \"where\": \"value != 3\"}, "
                            "{\"op\": \"batch\", \"size\": 8}";
static const char single[] = "{\"op\": \"text\", \"files\": \"lines.txt\"}";

/* A runner of a pipeline, whose batches are taken one after the other. */
struct run {
    struct cw_local local;
    struct cw_runner *runner;
    struct cw_range *range;
};

static void run_open_as(struct run *r, const char *chain, bool rows)
{
    char text[1000];
    struct cw_error err = {0};
    struct cw_runner_options o = {.threads = 1, .memory = (size_t)64 << 20};
    *r = (struct run){0};
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [%s]}", chain);
    if (cw_local_parse(&r->local, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(&r->local, temp_dir, 1, 0, &err) < 0 ||
        cw_runner_new(r->local.sequence, &o, &r->runner, &err) < 0)
        fail_msg("%s", err.message);
    const struct cw_range_options range = {.end = r->local.sequence->n_positions, .rows = rows};
    if (cw_runner_open(r->runner, &range, &r->range, &err) < 0)
        fail_msg("%s", err.message);
}

static void run_open(struct run *r, const char *chain)
{
    run_open_as(r, chain, false);
}

static void run_deinit(struct run *r)
{
    cw_runner_close(r->runner, r->range);
    cw_runner_free(r->runner);
    cw_local_deinit(&r->local);
}

static struct cw_assembly *run_next(struct run *r)
{
    struct cw_error err = {0};
    struct cw_assembly *a;
    if (cw_runner_next(r->runner, r->range, 0, &a, &err) != 0)
        fail_msg("there is no batch: %s", err.message);
    return a;
}

/* The first n elements, once they are there. */
static struct cw_assembly *run_rows(struct run *r, uint64_t n)
{
    struct cw_error err = {0};
    struct cw_assembly *a;
    int status;
    while ((status = cw_runner_part(r->runner, r->range, 0, 0, n, &a, &err)) == 2)
        usleep(1000);
    if (status != 0)
        fail_msg("there are no %d elements: %s", (int)n, err.message);
    return a;
}

/* What a peer has received: a message, and memory that nobody else has. */
struct received {
    Cachew__Batch *m;
    struct cw_memory memory[2];
};

static void receive(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                    struct received *ret)
{
    struct cw_wire_batch w;
    struct cw_error err = {0};
    *ret = (struct received){0};
    assert_int_equal(cw_wire_batch_write(b, q, in_slabs, &w, &err), 0);
    size_t n = cachew__batch__get_packed_size(&w.message), size = 0;
    uint8_t *bytes = malloc(n);
    cachew__batch__pack(&w.message, bytes);
    ret->m = cachew__batch__unpack(NULL, n, bytes);
    free(bytes);
    if (in_slabs) {
        size_t at = 0;
        assert_int_equal(w.n_pieces, 0);
        for (int i = 0; i < 2; i++)
            if (b->slabs[i]) {
                ret->memory[at] = (struct cw_memory){.data = aligned_alloc(64, b->slabs[i]->size),
                                                     .size = b->slabs[i]->size};
                memcpy(ret->memory[at++].data, b->slabs[i]->data, b->slabs[i]->size);
            }
    } else {
        for (size_t i = 0; i < w.n_pieces; i++)
            size += w.pieces[i].iov_len;
        ret->memory[0] = (struct cw_memory){.data = size ? aligned_alloc(64, size) : NULL, .size = size};
        for (size_t i = 0, at = 0; i < w.n_pieces; at += w.pieces[i++].iov_len)
            memcpy(ret->memory[0].data + at, w.pieces[i].iov_base, w.pieces[i].iov_len);
    }
    free(w.memory);
}

static void received_deinit(struct received *r)
{
    cachew__batch__free_unpacked(r->m, NULL);
    free(r->memory[0].data);
    free(r->memory[1].data);
}

static int read_it(const struct received *x, const struct cw_compiled *c, struct cw_hash128 *ret,
                   size_t *ret_quarantined)
{
    struct cw_batch b = {0};
    struct cw_quarantined *q = NULL;
    struct cw_error err = {0};
    int r = cw_wire_batch_read(x->m, c, x->memory, &b, &q, &err);
    if (r < 0) {
        assert_int_equal(r, CW_E_SERVICE);
        assert_true(err.message[0] != '\0');
        return r;
    }
    *ret = cw_batch_hash(&b); /* touches all of it */
    *ret_quarantined = 0;
    for (const struct cw_quarantined *at = q; at; at = at->next)
        (*ret_quarantined)++;
    free(b.components);
    free(b.ids);
    cw_quarantined_free(q);
    return 0;
}

static void round_trips(const char *chain, size_t batches)
{
    struct run r;
    size_t all = 0;
    run_open(&r, chain);
    for (size_t i = 0; i < batches; i++) {
        struct cw_assembly *a = run_next(&r);
        struct cw_hash128 expected = cw_batch_hash(a->batch), hash;
        size_t n = 0, quarantined;
        for (const struct cw_quarantined *q = a->quarantined; q; q = q->next)
            n++;
        all += n;
        for (int in_slabs = 0; in_slabs < 2; in_slabs++) {
            struct received x;
            receive(a->batch, a->quarantined, in_slabs, &x);
            assert_int_equal(read_it(&x, r.local.compiled, &hash, &quarantined), 0);
            assert_true(hash.lo == expected.lo && hash.hi == expected.hi);
            assert_int_equal(quarantined, n);
            received_deinit(&x);
        }
        cw_runner_drop(r.runner, a);
    }
    assert_int_equal(all > 0, chain == skips);
    run_deinit(&r);
}

static void mixed_round_trips(void **state)
{
    (void)state;
    round_trips(mixed, 1);
}

static void skips_round_trip(void **state)
{
    (void)state;
    round_trips(skips, 3);
}

static void single_round_trips(void **state)
{
    (void)state;
    round_trips(single, 1);
}

/* ---- what nobody honest says ---- */

/* Component 0 is "half" (float32), 1 "n" (int64), 2 "text" (bytes). */
static void lie(struct received *x, int which)
{
    Cachew__Component **c = x->m->components;
    uint64_t *lengths = (uint64_t *)(void *)(x->memory[0].data + c[2]->lengths_offset);
    switch (which) {
    case 0:
        x->m->n++;
        break;
    case 1:
        x->m->n = UINT32_MAX;
        break;
    case 2:
        x->m->leading = false;
        break;
    case 3:
        x->m->n_components--;
        break;
    case 4:
        x->m->ids.len--;
        break;
    case 5:
        x->m->ids.data[20] = 1;
        break; /* another source than there is */
    case 6:
        c[0]->dims[0] = -1;
        break;
    case 7:
        c[0]->dims[0] = INT64_MAX;
        break;
    case 8:
        c[0]->n_dims = 0;
        break;
    case 9:
        c[1]->dtype = CW_FLOAT64;
        break;
    case 10:
        c[1]->dtype = 1000000;
        break;
    case 11:
        c[1]->size += 8;
        break;
    case 12:
        c[1]->size = 0;
        break;
    case 13:
        c[1]->offset = x->memory[0].size;
        break;
    case 14:
        c[1]->offset = UINT64_MAX - 63;
        break;
    case 15:
        c[1]->offset += 4;
        break;
    case 16:
        c[1]->slab = 1;
        break;
    case 17:
        c[1]->slab = 2;
        break;
    case 18:
        c[1]->name[0] = 'x';
        break;
    case 19:
        c[2]->lengths_offset = x->memory[0].size;
        break;
    case 20:
        c[2]->lengths_offset = UINT64_MAX - 63;
        break;
    case 21:
        c[2]->lengths_offset += 4;
        break;
    case 22:
        lengths[0]++;
        break;
    case 23:
        lengths[0] = UINT64_MAX;
        break;
    case 24:
        lengths[0] -= lengths[1] + 1;
        lengths[1] += lengths[1] + 1;
        break; /* adds up, modulo 2^64 */
    case 25:
        c[2]->size++;
        break;
    case 26:
        c[2]->size = UINT64_MAX;
        break;
    case 27:
        x->memory[0].size -= 64;
        break;
    }
}

static void lies_are_refused(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, mixed);
    struct cw_assembly *a = run_next(&r);
    struct cw_hash128 hash;
    size_t n;
    for (int which = 0; which < 28; which++) {
        struct received x;
        receive(a->batch, a->quarantined, false, &x);
        size_t n_components = x.m->n_components, n_dims = x.m->components[0]->n_dims;
        lie(&x, which);
        if (read_it(&x, r.local.compiled, &hash, &n) == 0)
            fail_msg("lie %d was believed", which);
        x.m->n_components = n_components; /* as it is freed */
        x.m->components[0]->n_dims = n_dims;
        received_deinit(&x);
    }
    cw_runner_drop(r.runner, a);
    run_deinit(&r);
}

static void quarantined_lies_are_refused(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, skips);
    struct cw_assembly *a = run_next(&r);
    struct cw_hash128 hash;
    size_t n;
    while (!a->quarantined) { /* it goes with a batch that is open when it fails */
        cw_runner_drop(r.runner, a);
        a = run_next(&r);
    }
    for (int which = 0; which < 3; which++) {
        struct received x;
        receive(a->batch, a->quarantined, false, &x);
        if (which == 0)
            x.m->quarantined[0]->id.len = 31;
        else if (which == 1)
            x.m->quarantined[0]->by.len = 1;
        else
            x.m->quarantined[0]->id.data[20] = 9;
        assert_int_equal(read_it(&x, r.local.compiled, &hash, &n), CW_E_SERVICE);
        received_deinit(&x);
    }
    cw_runner_drop(r.runner, a);
    run_deinit(&r);
}

static uint32_t draw(uint32_t *seed)
{
    return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

/* Random bytes of the message and its memory are changed: it is refused, or is something that can be read. */
static void damaged_messages(void **state)
{
    (void)state;
    struct run r;
    uint32_t seed = 3;
    unsigned refused = 0, read = 0;
    run_open(&r, mixed);
    struct cw_assembly *a = run_next(&r);
    for (int i = 0; i < 20000; i++) {
        struct received x;
        struct cw_hash128 hash;
        size_t quarantined;
        receive(a->batch, a->quarantined, i % 2, &x);
        size_t n = cachew__batch__get_packed_size(x.m);
        uint8_t *bytes = malloc(n);
        cachew__batch__pack(x.m, bytes);
        for (uint32_t times = 1 + draw(&seed) % 3; times-- > 0;)
            bytes[draw(&seed) % n] ^= (uint8_t)(1u << draw(&seed) % 8);
        if (draw(&seed) % 4 == 0)
            x.memory[0].data[draw(&seed) % CW_MIN(x.memory[0].size, (size_t)512)] ^=
                (uint8_t)(1u << draw(&seed) % 8);
        Cachew__Batch *damaged = cachew__batch__unpack(NULL, n, bytes);
        free(bytes);
        if (damaged) {
            cachew__batch__free_unpacked(x.m, NULL);
            x.m = damaged;
            if (read_it(&x, r.local.compiled, &hash, &quarantined) < 0)
                refused++;
            else
                read++;
        }
        received_deinit(&x);
    }
    assert_true(refused > 1000 && read > 1000);
    cw_runner_drop(r.runner, a);
    run_deinit(&r);
}

/* ---- parts ---- */

/* What is left over, in two parts, and joined again, is the batch that they make. */
static void parts_round_trip(void **state)
{
    (void)state;
    struct run r;
    struct cw_error err = {0};
    struct cw_part m, part[2];
    const uint64_t n = 5;
    run_open_as(&r, skips, true);
    struct cw_assembly *whole = run_rows(&r, n), *joined = run_rows(&r, 0);
    assert_int_equal(cw_part_read(whole, 0, n, &m, &err), 0);
    assert_int_equal(m.offsets[n], m.size);
    for (int i = 0; i < 2; i++) {
        uint64_t from = i ? 1 : 0, count = i ? n - 1 : 1;
        struct cw_part piece = {.n = count, .ids = m.ids + from, .quarantined = i ? m.quarantined : NULL};
        struct cw_wire_part w;
        assert_int_equal(cw_wire_part_write(&piece, &w, &err), 0);
        assert_int_equal(cw_wire_part_read(&w.message, m.data + m.offsets[from],
                                           m.offsets[from + count] - m.offsets[from], r.local.compiled,
                                           &part[i], &err),
                         0);
        assert_int_equal(cw_part_join(joined, &part[i], &err), 0);
        free(w.memory);
    }
    assert_int_equal(cw_runner_finish(r.runner, whole, 0, 0, 0, &err), 0);
    assert_int_equal(cw_runner_finish(r.runner, joined, 0, 0, 0, &err), 0);
    struct cw_hash128 x = cw_batch_hash(whole->batch), y = cw_batch_hash(joined->batch);
    assert_true(x.lo == y.lo && x.hi == y.hi);
    cw_runner_drop(r.runner, whole);
    cw_runner_drop(r.runner, joined);
    for (int i = 0; i < 2; i++)
        cw_part_deinit(&part[i]);
    cw_part_deinit(&m);
    run_deinit(&r);
}

/* Whatever comes as rows is joined as a whole, or not at all. */
static void damaged_parts(void **state)
{
    (void)state;
    static const char variable[] =
        "{\"op\": \"text\", \"files\": \"lines.txt\"}, {\"op\": \"assign\", \"set\": {\"n\": "
        "\"length(text)\"}}, "
        "{\"op\": \"filter\", \"where\": \"n != 3\"}, {\"op\": \"batch\", \"size\": 16}";
    struct run r;
    struct cw_error err = {0};
    struct cw_assembly *a;
    struct cw_part m;
    uint32_t seed = 11;
    unsigned refused = 0, joined = 0;
    const uint64_t n = 9;
    run_open_as(&r, variable, true);
    a = run_rows(&r, n);
    assert_int_equal(cw_part_read(a, 0, n, &m, &err), 0);
    cw_runner_drop(r.runner, a);
    for (int i = 0; i < 20000; i++) {
        struct cw_part bad = m;
        struct cw_assembly *into;
        bad.size -= draw(&seed) % 8 ? 0 : draw(&seed) % 24;
        bad.data = malloc(bad.size);
        memcpy(bad.data, m.data, bad.size);
        for (uint32_t times = draw(&seed) % 4; times-- > 0;)
            bad.data[draw(&seed) % bad.size] ^= (uint8_t)(1u << draw(&seed) % 8);
        bad.n += draw(&seed) % 16 == 0;
        bad.n -= draw(&seed) % 16 == 1;
        bad.ids = calloc(bad.n, sizeof(*bad.ids));
        into = run_rows(&r, 0);
        int s = cw_part_join(into, &bad, &err);
        if (s < 0) {
            assert_int_equal(s, CW_E_DATA);
            assert_int_equal(into->n_assigned, 0);
            refused++;
        } else {
            joined++;
            assert_int_equal(into->n_assigned, bad.n);
            assert_int_equal(cw_runner_finish(r.runner, into, 0, 0, 0, &err), 0);
            (void)cw_batch_hash(into->batch);
        }
        cw_runner_drop(r.runner, into);
        free(bad.data);
        free(bad.ids);
    }
    assert_true(refused > 1000 && joined > 1000);
    cw_part_deinit(&m);
    run_deinit(&r);
}

static int make_lines(void **state)
{
    char path[100];
    if (temp_make(state) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/lines.txt", temp_dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 400; i++)
        fprintf(f, "%.*s\n", 1 + i * 7919 % 25, "abcdefghijklmnopqrstuvwxyz");
    return f ? fclose(f) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_round_trips),
        cmocka_unit_test(skips_round_trip),
        cmocka_unit_test(single_round_trips),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(quarantined_lies_are_refused),
        cmocka_unit_test(damaged_messages),
        cmocka_unit_test(parts_round_trip),
        cmocka_unit_test(damaged_parts),
    };
    return cmocka_run_group_tests(tests, make_lines, temp_remove);
}
