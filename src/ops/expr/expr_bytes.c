/* Kernels of expressions on bytes, and hashes. Stateless. */
#include <string.h>

#include "base/hash.h"
#include "ops/expr/expr_impl.h"

#define BYTES_BINARY(NAME, EXPR) \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_, size_t n, enum cw_mode mode) \
    { \
        uint8_t *d = d_; \
        const struct cw_span *a = a_, *b = b_; \
        size_t a_step = mode != CW_SV, b_step = mode != CW_VS; \
        for (size_t i = 0; i < n; i++) { \
            struct cw_span x = a[i * a_step], y = b[i * b_step]; \
            d[i] = EXPR; \
        } \
        return 0; \
    }

static inline bool bytes_same(const void *x, const void *y, size_t n)
{
    return n == 0 || memcmp(x, y, n) == 0;
}

BYTES_BINARY(bytes_eq, x.size == y.size && bytes_same(x.data, y.data, x.size))
BYTES_BINARY(bytes_ne, !(x.size == y.size && bytes_same(x.data, y.data, x.size)))
BYTES_BINARY(bytes_in, x.size == 0 || (y.size && memmem(y.data, y.size, x.data, x.size) != NULL))
BYTES_BINARY(bytes_startswith, x.size >= y.size && bytes_same(x.data, y.data, y.size))
BYTES_BINARY(bytes_endswith,
             x.size >= y.size &&
                 (y.size == 0 || memcmp((const char *)x.data + (x.size - y.size), y.data, y.size) == 0))

#define UNARY(NAME, D, T, EXPR) \
    static unsigned NAME(void *restrict d_, const void *a_, const void *b_ CW_UNUSED, size_t n, \
                         enum cw_mode mode CW_UNUSED) \
    { \
        D *d = d_; \
        const T *a = a_; \
        for (size_t i = 0; i < n; i++) \
            d[i] = EXPR; \
        return 0; \
    }

/* As bytes.strip() in Python: without spaces, tabs, line ends and form feeds at both ends. */
static struct cw_span bytes_strip_one(struct cw_span s)
{
    static const char space[] = " \t\n\r\v\f";
    const char *text = s.data;
    while (s.size && memchr(space, text[s.size - 1], sizeof(space) - 1))
        s.size--;
    while (s.size && memchr(space, *text, sizeof(space) - 1)) {
        text++;
        s.size--;
    }
    s.data = text;
    return s;
}

UNARY(bytes_strip, struct cw_span, struct cw_span, bytes_strip_one(a[i]))
UNARY(bytes_length, int64_t, struct cw_span, (int64_t)a[i].size)
UNARY(hash_bytes, uint64_t, struct cw_span, cw_hash64(a[i].size ? a[i].data : "", a[i].size))
UNARY(hash_1, uint64_t, uint8_t, cw_hash64(&a[i], 1))
UNARY(hash_2, uint64_t, uint16_t, cw_hash64(&a[i], 2))
UNARY(hash_4, uint64_t, uint32_t, cw_hash64(&a[i], 4))
UNARY(hash_8, uint64_t, uint64_t, cw_hash64(&a[i], 8))

cw_kernel cw_kernel_bytes(enum cw_xop op, unsigned dtype)
{
    static const cw_kernel kernels[CW_N_XOPS] = {
        [CW_X_EQ] = bytes_eq,
        [CW_X_NE] = bytes_ne,
        [CW_X_IN] = bytes_in,
        [CW_X_STARTSWITH] = bytes_startswith,
        [CW_X_ENDSWITH] = bytes_endswith,
        [CW_X_STRIP] = bytes_strip,
        [CW_X_LENGTH] = bytes_length,
        [CW_X_HASH] = hash_bytes,
    };
    static const cw_kernel hashes[] = {[1] = hash_1, [2] = hash_2, [4] = hash_4, [8] = hash_8};
    if (dtype == CW_BYTES)
        return kernels[op];
    return op == CW_X_HASH && dtype < CW_BYTES ? hashes[cw_dtype_size((enum cw_dtype)dtype)] : NULL;
}
