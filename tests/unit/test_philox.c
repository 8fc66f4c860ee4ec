/* Philox4x32-10, draws and permutations: known vectors, and the definitions of docs/randomness.md written
 * down naively. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/macro.h"
#include "base/philox.h"
#include "data/block.h"
#include "dataset/sequence.h"

#define FULL UINT32_C(0xffffffff)

static void test_known_vectors(void **state)
{
    (void)state;

    static const struct {
        uint64_t key;
        uint32_t counter[4], out[4];
    } vectors[] = {
        /* kat_vectors of Random123 */
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, {FULL, FULL, FULL, FULL}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822),
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < CW_COUNT_OF(vectors); i++) {
        uint32_t out[4];
        cw_philox(vectors[i].key, vectors[i].counter, out);
        assert_memory_equal(out, vectors[i].out, sizeof(out));
    }
}

static uint64_t draw_key(uint64_t seed, uint64_t epoch, const char *salt)
{
    struct cw_key k = {0};
    cw_key_u64(&k, seed);
    cw_key_u64(&k, epoch);
    cw_key_text(&k, salt);
    return cw_key_hash(&k);
}

/* Keys, element ids and words of a draw, as another implementation computes them. */
static void test_draws(void **state)
{
    (void)state;
    uint64_t key = draw_key(1, 2, "random_flip/1");
    assert_int_equal(key, UINT64_C(0x3272c65829a76316));
    int64_t counts[] = {4, 2};
    struct cw_program plain = {.n_repeats = 0}, repeated = {.n_repeats = 2, .repeat_counts = counts};
    struct cw_record_id id = {.file_key = UINT64_C(0x0123456789abcdef), .row = 42, .pass = 3 + 4 * 1};
    uint64_t eids[2] = {cw_element_id(&plain, &id), cw_element_id(&repeated, &id)};
    assert_int_equal(eids[0], UINT64_C(0xf61525b23eed5463));
    assert_int_equal(eids[1], UINT64_C(0x7bfaa7e94c57d2ad));

    static const struct {
        size_t row;
        uint32_t n, words[4];
    } vectors[] = {
        {0, 0, {0x91fbd082, 0xfad4a7c5, 0x4939c9e8, 0x42e58825}},
        {0, 1, {0x849ee0b5, 0xd2226a09, 0xa4cc9cbd, 0x4b7c69bc}},
        {1, 0, {0x8d0dca0b, 0x8646b86b, 0xf48fd18a, 0x7d88347a}},
    };
    struct cw_block b = {.n = 2, .eids = eids, .keys = &key};
    for (size_t i = 0; i < CW_COUNT_OF(vectors); i++) {
        uint32_t out[4];
        cw_block_draw(&b, 0, vectors[i].row, vectors[i].n, out);
        assert_memory_equal(out, vectors[i].words, sizeof(out));
    }
    char text[128];
    cw_record_print(&plain, &id, text);
    assert_string_equal(text, "0123456789abcdef:42");
    cw_record_print(&repeated, &id, text);
    assert_string_equal(text, "0123456789abcdef:42.3.1");
}

static void test_numbers(void **state)
{
    (void)state;
    assert_true(cw_uniform(0) == 0.0);
    assert_true(cw_uniform(255) == 0.0); /* the low 8 bits do not count */
    assert_true(cw_uniform(256) == 0x1p-24);
    assert_true(cw_uniform(FULL) == 1.0 - 0x1p-24);
    assert_true(cw_uniform(0x91fbd082) == 0.5702486038208008);
    assert_int_equal(cw_integer(0x91fbd082, 375), 213);
    assert_int_equal(cw_integer(0, FULL), 0);
    assert_int_equal(cw_integer(FULL, 1), 0);
    assert_int_equal(cw_integer(FULL, FULL), FULL - 1);
}

static void naive_permutation(uint64_t key, uint64_t *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = i;
    for (size_t i = n; i-- > 1;) {
        size_t t = n - 1 - i;
        uint32_t words[4];
        cw_philox(key, (const uint32_t[4]){(uint32_t)(t / 4), 0, 0, 1}, words);
        size_t j = (size_t)(((uint64_t)words[t % 4] * (i + 1)) >> 32);
        uint64_t swap = a[i];
        a[i] = a[j];
        a[j] = swap;
    }
}

static void test_permutation_vectors(void **state)
{
    (void)state;

    static const struct {
        uint64_t key;
        uint32_t n, out[17];
    } vectors[] = {
        {0, 10, {2, 8, 3, 6, 9, 5, 4, 7, 0, 1}},
        {UINT64_C(0x123456789abcdef0), 10, {4, 6, 7, 3, 0, 1, 8, 9, 5, 2}},
        {7, 17, {8, 10, 5, 13, 12, 4, 16, 0, 11, 6, 1, 15, 9, 2, 3, 7, 14}},
    };

    for (size_t i = 0; i < CW_COUNT_OF(vectors); i++) {
        uint32_t a[17];
        for (uint32_t k = 0; k < vectors[i].n; k++)
            a[k] = k;
        cw_permute(vectors[i].key, a, vectors[i].n, sizeof(a[0]));
        assert_memory_equal(a, vectors[i].out, vectors[i].n * sizeof(a[0]));
    }
}

/* Every size of item gives the permutation of the definition, whatever way the words are made in runs. */
static void test_permutation_sizes(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 8, 31, 32, 33, 34, 63, 64, 65, 127, 1000, 4097};
    for (size_t c = 0; c < CW_COUNT_OF(counts); c++) {
        size_t n = counts[c];
        uint64_t key = 0x9e3779b97f4a7c15u * (c + 1);
        uint64_t *naive = calloc(n + 1, sizeof(*naive));
        uint32_t *four = calloc(n + 1, 4);
        uint64_t *eight = calloc(n + 1, 8);
        struct cw_ref *sixteen = calloc(n + 1, sizeof(*sixteen));
        assert_int_equal(sizeof(*sixteen), 16);
        naive_permutation(key, naive, n);
        for (size_t i = 0; i < n; i++) {
            four[i] = (uint32_t)i;
            eight[i] = i;
            sixteen[i] = (struct cw_ref){.row = i, .leaf = (uint32_t)i + 1, .pass = (uint32_t)i + 2};
        }
        cw_permute(key, four, n, 4);
        cw_permute(key, eight, n, 8);
        cw_permute(key, sixteen, n, 16);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(four[i], naive[i]);
            assert_int_equal(eight[i], naive[i]);
            assert_int_equal(sixteen[i].row, naive[i]);
            assert_int_equal(sixteen[i].leaf, naive[i] + 1);
            assert_int_equal(sixteen[i].pass, naive[i] + 2);
        }
        free(naive);
        free(four);
        free(eight);
        free(sixteen);
    }
}

/* Chi-squared over the places that item 0 lands on: 63 degrees of freedom, 99.99 % are below 115. */
static void test_permutation_is_even(void **state)
{
    (void)state;

    enum { N = 64, ROUNDS = 6400 };

    unsigned seen[N] = {0};
    for (uint64_t key = 0; key < ROUNDS; key++) {
        uint32_t a[N];
        for (uint32_t i = 0; i < N; i++)
            a[i] = i;
        cw_permute(key, a, N, 4);
        for (unsigned i = 0; i < N; i++)
            if (a[i] == 0)
                seen[i]++;
    }
    double chi = 0, expected = (double)ROUNDS / N;
    for (unsigned i = 0; i < N; i++)
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    assert_true(chi < 115);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_vectors),     cmocka_unit_test(test_draws),
        cmocka_unit_test(test_numbers),           cmocka_unit_test(test_permutation_vectors),
        cmocka_unit_test(test_permutation_sizes), cmocka_unit_test(test_permutation_is_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
