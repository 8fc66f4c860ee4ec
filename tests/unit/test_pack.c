/* Compressed payloads: blocks, when they pay, and connections that send them. */
#include "net_test.h"

#include "net/conn_impl.h"

#define MIB ((size_t)1 << 20)

/* Half of it can be guessed, the other half can't. */
static void fill(uint8_t *data, size_t size, bool dense)
{
    uint64_t x = 1;
    for (size_t i = 0; i < size; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        data[i] = dense || i % 8 < 3 ? (uint8_t)(x >> 56) : (uint8_t)(i >> 12);
    }
}

/* ---- blocks ---- */

static void test_blocks(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 100, 65536, CW_PACK_BLOCK - 1, CW_PACK_BLOCK};
    static uint8_t raw[CW_PACK_BLOCK], back[CW_PACK_BLOCK];
    struct cw_packer *p;
    struct cw_unpacker *u;
    struct cw_error err = {0};
    assert_int_equal(cw_packer_new(&p, &err), 0);
    assert_int_equal(cw_unpacker_new(&u, &err), 0);
    for (size_t i = 0; i < 2 * CW_COUNT_OF(sizes); i++) {
        const uint8_t *block;
        size_t n = sizes[i / 2], size, packed;
        bool dense = i % 2, stored;
        fill(raw, n, dense);
        packed = cw_packer_block(p, raw, n, &block);
        assert_int_equal(cw_unpack_head(block, n, &size, &stored, &err), 0);
        assert_int_equal(packed, CW_PACK_HEAD + size);
        assert_true(stored == (dense || n < 3));
        assert_true(stored || n < 1000 || size < n * 3 / 4);
        if (stored)
            memcpy(back, block + CW_PACK_HEAD, size);
        else
            assert_int_equal(cw_unpack(u, block + CW_PACK_HEAD, size, back, n, &err), 0);
        assert_memory_equal(raw, back, n);
        if (stored)
            continue;
        /* more than there is room for */
        assert_int_equal(cw_unpack(u, block + CW_PACK_HEAD, size, back, n - 1, &err), CW_E_SERVICE);
        if (n < CW_PACK_BLOCK)
            assert_int_equal(cw_unpack(u, block + CW_PACK_HEAD, size, back, n + 1, &err), CW_E_SERVICE);
        assert_int_equal(cw_unpack(u, block + CW_PACK_HEAD, size - 1, back, n, &err), CW_E_SERVICE);
    }
    cw_packer_free(p);
    cw_unpacker_free(u);
}

static void test_heads(void **state)
{
    (void)state;

    static const struct {
        uint32_t head;
        size_t n;
        bool good;
    } cases[] = {
        {1, 2, true},
        {0, 2, false},
        {2, 2, false},
        {3, 2, false},
        {CW_PACK_STORED | 2, 2, true},
        {CW_PACK_STORED | 1, 2, false},
        {CW_PACK_STORED | 3, 2, false},
        {CW_PACK_STORED, 2, false},
        {0x7fffffff, CW_PACK_BLOCK, false},
        {UINT32_MAX, CW_PACK_BLOCK, false},
        {(uint32_t)CW_PACK_BLOCK - 1, CW_PACK_BLOCK, true},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        uint8_t head[CW_PACK_HEAD] = {(uint8_t)cases[i].head, (uint8_t)(cases[i].head >> 8),
                                      (uint8_t)(cases[i].head >> 16), (uint8_t)(cases[i].head >> 24)};
        size_t size;
        bool stored;
        assert_int_equal(cw_unpack_head(head, cases[i].n, &size, &stored, NULL),
                         cases[i].good ? 0 : CW_E_SERVICE);
    }
}

/* ---- when ---- */

/* A link that takes so many bytes a second, data that become so many of themselves, a CPU that compresses so
 * many a second. */
struct world {
    double link, ratio, cpu;
    uint64_t now_ns;
    unsigned n_samples;
    double wire; /* bytes that went */
};

/* Sends payloads of 4 MiB for so long, compressing beside sending. Returns payload bytes a second. */
static double play(struct cw_pack_policy *p, struct world *w, double seconds)
{
    const double size = 4 << 20;
    uint64_t begin = w->now_ns, end = begin + (uint64_t)(seconds * 1e9);
    double sent = 0;
    while (w->now_ns < end) {
        cw_pack_state(p, w->now_ns, true, false);
        if (cw_pack_begin(p, w->now_ns)) {
            uint64_t took = (uint64_t)(CW_PACK_BLOCK / w->cpu * 1e9);
            w->n_samples++;
            w->now_ns += took;
            cw_pack_sampled(p, w->now_ns, CW_PACK_BLOCK, (size_t)(CW_PACK_BLOCK * w->ratio), took);
        }
        double wire = p->on ? size * w->ratio : size, sending = wire / w->link * 1e9,
               compressing = p->on ? size / w->cpu * 1e9 : 1000;
        w->now_ns += (uint64_t)compressing;
        cw_pack_state(p, w->now_ns, true, true);
        if (sending > compressing)
            w->now_ns += (uint64_t)(sending - compressing);
        cw_pack_state(p, w->now_ns, true, false);
        p->raw += (size_t)size;
        sent += size;
        w->wire += wire;
    }
    return sent * 1e9 / (double)(w->now_ns - begin);
}

/* What it says of itself is what it does, and names the better. */
static void assert_told(const struct cw_pack_policy *p, bool on)
{
    assert_true(p->on == on);
    assert_string_equal(p->told.what, "compress");
    assert_true(p->told.chosen == on);
    assert_string_equal(p->told.others[1].name, "compressed");
    assert_true((p->told.others[1].value > p->told.others[0].value * 1.1) == on);
}

static void test_a_slow_link_is_helped(void **state)
{
    (void)state;
    struct cw_pack_policy p = {0};
    struct world w = {.link = 117e6, .ratio = 0.5, .cpu = 500e6};
    double rate = play(&p, &w, 60);
    assert_told(&p, true);
    assert_true(rate > 1.85 * w.link); /* of 2 */
    assert_true(w.n_samples <= 8);     /* once, and once more when the link is looked at again */
}

static void test_a_fast_link_is_left_alone(void **state)
{
    (void)state;
    struct cw_pack_policy p = {0};
    struct world w = {.link = 2e9, .ratio = 0.2, .cpu = 500e6};
    assert_true(play(&p, &w, 60) > 0.99 * w.link);
    assert_true(!p.on && w.n_samples <= 8); /* less and less often */
    assert_true(w.n_samples >= 3);
}

static void test_what_does_not_shrink_is_left_alone(void **state)
{
    (void)state;
    struct cw_pack_policy p = {0};
    struct world w = {.link = 100e6, .ratio = 0.95, .cpu = 1000e6};
    assert_true(play(&p, &w, 60) > 0.99 * w.link);
    assert_told(&p, false);
}

static void test_it_goes_back_when_things_change(void **state)
{
    (void)state;
    struct cw_pack_policy p = {0};
    struct world w = {.link = 100e6, .ratio = 0.5, .cpu = 500e6};
    play(&p, &w, 5);
    assert_true(p.on);
    w.ratio = 1; /* the sample was no good */
    play(&p, &w, 5);
    assert_false(p.on);
    w.ratio = 0.5;
    play(&p, &w, 70);
    assert_true(p.on);
    w.link = 2e9; /* and the link not what it was */
    play(&p, &w, 30);
    assert_told(&p, false);
    assert_true(play(&p, &w, 30) > 0.98 * w.link);
    w.link = 100e6;
    play(&p, &w, 70);
    assert_true(p.on);
}

static void test_a_link_that_waits_for_us_is_left_alone(void **state)
{
    (void)state;
    struct cw_pack_policy p = {0};
    for (uint64_t now = 1; now < UINT64_C(60000000000); now += 40000000) {
        /* 4 MiB take 4 ms, and come every 40 */
        assert_false(cw_pack_begin(&p, now));
        cw_pack_state(&p, now, true, false);
        cw_pack_state(&p, now + 3000000, true, true);
        cw_pack_state(&p, now + 4000000, false, false);
        p.raw += 4 << 20;
    }
}

/* ---- connections ---- */

static struct cw_conn_options packing(void)
{
    struct cw_conn_options o = options();
    o.pack = true;
    return o;
}

static unsigned wanted;

static bool all_came(void)
{
    return ours.messages == wanted && ours.released == wanted;
}

static void pair_with(const char *address, const struct cw_conn_options *near,
                      const struct cw_conn_options *far)
{
    struct cw_listener *l = listen_at(address, far);
    connect_to(cw_listener_address(l), near, &ours);
    run_until(both_open);
    cw_listener_free(l);
}

/* Both ways, in pieces of all sizes. */
static void echo(bool on)
{
    const size_t size = 3 * MIB + 12345;
    static const size_t cuts[] = {0, 1, 64, 100, 65536, 65600, 65601, MIB, MIB + 1, 2 * MIB, 3 * MIB + 12000};
    struct iovec pieces[CW_COUNT_OF(cuts)];
    uint8_t *data = malloc(size);
    theirs.echo = true;
    for (unsigned round = 0; round < 4; round++) {
        fill(data, size, round == 3);
        for (size_t i = 0; i < CW_COUNT_OF(cuts); i++)
            pieces[i] = (struct iovec){.iov_base = data + cuts[i],
                                       .iov_len = (i + 1 < CW_COUNT_OF(cuts) ? cuts[i + 1] : size) - cuts[i]};
        ours.c->out.policy.on = theirs.c->out.policy.on = on; /* as if it paid */
        ours.c->out.policy.look_again_ns = theirs.c->out.policy.look_again_ns = UINT64_MAX;
        if (on && !ours.c->out.packer)
            assert_true(cw_packer_new(&ours.c->out.packer, NULL) >= 0 &&
                        cw_packer_new(&theirs.c->out.packer, NULL) >= 0);
        assert_int_equal(send_query(&ours, "payload", pieces, round ? CW_COUNT_OF(pieces) : 1), 0);
        wanted = round + 1;
        run_until(all_came);
        size_t n = round ? size : pieces[0].iov_len;
        assert_int_equal(ours.size, n);
        assert_memory_equal(ours.payload, data, n);
    }
    free(data);
}

static void packs_at(const char *address)
{
    struct cw_conn_options o = packing();
    struct cw_conn_traffic t;
    pair_with(address, &o, &o);
    assert_true(cw_conn_has(ours.c, CW_PACK_CAPABILITY));
    echo(true);
    cw_conn_traffic(ours.c, &t);
    assert_int_equal(t.out, t.in);
    assert_int_equal(t.out_wire, t.in_wire);
    assert_true(t.out_wire < t.out * 3 / 4);
}

static void test_payloads_go_packed(void **state)
{
    (void)state;
    packs_at("127.0.0.1:0");
}

static void assert_plain(const struct cw_conn_options *near, const struct cw_conn_options *far,
                         const char *address)
{
    struct cw_conn_traffic t;
    pair_with(address, near, far);
    echo(false);
    cw_conn_traffic(ours.c, &t);
    assert_true(t.out == t.in && t.out_wire == t.out && t.in_wire == t.in);
    assert_false(ours.c->packs);
}

static void test_who_does_not_know_it_gets_none(void **state)
{
    (void)state;
    struct cw_conn_options with = packing(), without = options();
    assert_plain(&with, &without, "127.0.0.1:0");
}

static void test_unix_sockets_go_plain(void **state)
{
    (void)state;
    struct cw_conn_options o = packing();
    assert_plain(&o, &o, unix_address);
}

/* ---- peers that send nonsense ---- */

static bool theirs_open(void)
{
    return theirs.opened;
}

/* A raw peer that says it knows about packing, or not, and then sends a packed frame with these blocks. */
static void refused_blocks(bool knows, uint64_t payload, const void *blocks, size_t size, const char *reason)
{
    static char zstd[] = CW_PACK_CAPABILITY, *capabilities[] = {zstd};
    struct cw_conn_options o = packing();
    o.limits.payload = MIB;
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Hello h = CACHEW__HELLO__INIT;
    Cachew__Query q = CACHEW__QUERY__INIT;
    size_t n;
    int fd = raw_connect(cw_listener_address(l));
    h.version_min = h.version_max = 1;
    h.capabilities = capabilities;
    h.n_capabilities = knows;
    e.id = 1;
    e.of_case = CACHEW__ENVELOPE__OF_HELLO;
    e.hello = &h;
    uint8_t *frame = raw_frame(&e, NULL, 0, &n);
    raw_send(fd, frame, n);
    free(frame);
    run_until(theirs_open);
    e.id = 0;
    e.of_case = CACHEW__ENVELOPE__OF_QUERY;
    e.query = &q;
    frame = raw_frame(&e, blocks, size, &n);
    struct cw_frame f = {.message = (uint32_t)cachew__envelope__get_packed_size(&e),
                         .payload = payload,
                         .payload_hash = 1,
                         .packed = true};
    f.message_hash = cw_hash64(frame + CW_FRAME_HEADER, f.message);
    cw_frame_write(&f, frame);
    raw_send(fd, frame, n);
    free(frame);
    shutdown(fd, SHUT_WR); /* else it is waited for until it has read why */
    run_until(theirs_closed);
    if (!strstr(theirs.why.message, reason))
        fail_msg("\"%s\", expected \"%s\"", theirs.why.message, reason);
    close(fd);
    cw_listener_free(l);
    side_forget(&theirs);
    theirs = (struct side){0};
}

static void test_nonsense_is_cut_off(void **state)
{
    (void)state;
    static uint8_t zeros[MIB];
    uint8_t block[200] = {100}; /* a head, and no block */
    const uint8_t *good;
    struct cw_packer *p;
    assert_int_equal(cw_packer_new(&p, NULL), 0);
    refused_blocks(false, 100000, block, sizeof(block), "agreed on no compression");
    refused_blocks(true, MIB + 1, block, sizeof(block), "expected at most 1048576");
    refused_blocks(true, 0, block, 0, "but has no payload");
    refused_blocks(true, 100000, block, sizeof(block), "can't be read");
    refused_blocks(true, 100, block, sizeof(block), "for 100 bytes of a payload, expected fewer");
    memcpy(block, "\xff\xff\xff\xff", 4);
    refused_blocks(true, 100, block, sizeof(block), "expected the same number");
    size_t n = cw_packer_block(p, zeros, 100000, &good);
    refused_blocks(true, 100001, good, n, "has 100000 bytes of a payload, expected 100001");
    refused_blocks(true, 99999, good, n, "can't be read"); /* it would write beyond what was announced */
    refused_blocks(true, 100000, good, n, "was changed on its way");
    cw_packer_free(p);
}

#define WITH_LOOP(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_a_slow_link_is_helped),
        cmocka_unit_test(test_a_fast_link_is_left_alone),
        cmocka_unit_test(test_what_does_not_shrink_is_left_alone),
        cmocka_unit_test(test_it_goes_back_when_things_change),
        cmocka_unit_test(test_a_link_that_waits_for_us_is_left_alone),
        WITH_LOOP(test_payloads_go_packed),
        WITH_LOOP(test_who_does_not_know_it_gets_none),
        WITH_LOOP(test_unix_sockets_go_plain),
        WITH_LOOP(test_nonsense_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
