/* Thrift's compact protocol. Pure functions over a reader that the caller owns. */
#include "formats/thrift.h"

/* Structs within structs that are passed over, at most. */
#define MAX_DEPTH 32

static uint8_t thrift_byte(struct cw_thrift *t)
{
    if (t->bad || t->p == t->end) {
        t->bad = true;
        return 0;
    }
    return *t->p++;
}

static uint64_t thrift_varint(struct cw_thrift *t)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t b = thrift_byte(t);
        v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128))
            return t->bad ? 0 : v;
    }
    t->bad = true;
    return 0;
}

int64_t cw_thrift_int(struct cw_thrift *t)
{
    uint64_t v = thrift_varint(t);
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

bool cw_thrift_field(struct cw_thrift *t, struct cw_thrift_field *f)
{
    uint8_t b = thrift_byte(t);
    f->type = b & 15;
    if (t->bad || f->type == CW_THRIFT_STOP)
        return false;
    int64_t id = b >> 4 ? f->id + (b >> 4) : cw_thrift_int(t);
    if (id < 0 || id > 32767)
        t->bad = true;
    f->id = (int)id;
    return !t->bad;
}

const uint8_t *cw_thrift_binary(struct cw_thrift *t, size_t *ret_size)
{
    uint64_t size = thrift_varint(t);
    const uint8_t *p = t->p;
    *ret_size = 0;
    if (t->bad || size > (uint64_t)(t->end - t->p)) {
        t->bad = true;
        return p;
    }
    t->p += size;
    *ret_size = (size_t)size;
    return p;
}

size_t cw_thrift_list(struct cw_thrift *t, int *ret_type)
{
    uint8_t b = thrift_byte(t);
    uint64_t n = b >> 4 == 15 ? thrift_varint(t) : b >> 4;
    *ret_type = b & 15;
    if (n > (uint64_t)(t->end - t->p))
        t->bad = true;
    return t->bad ? 0 : (size_t)n;
}

static void thrift_pass(struct cw_thrift *t, int type, unsigned depth, bool in_list)
{
    size_t size;
    int inner;
    if (depth > MAX_DEPTH)
        t->bad = true;
    switch (t->bad ? CW_THRIFT_STOP : type) {
    case CW_THRIFT_STOP:
        break;
    case CW_THRIFT_TRUE:
    case CW_THRIFT_FALSE: /* a field's type is its value; in a list it is a byte */
        if (in_list)
            (void)thrift_byte(t);
        break;
    case CW_THRIFT_BYTE:
        (void)thrift_byte(t);
        break;
    case CW_THRIFT_I16:
    case CW_THRIFT_I32:
    case CW_THRIFT_I64:
        (void)thrift_varint(t);
        break;
    case CW_THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++)
            (void)thrift_byte(t);
        break;
    case CW_THRIFT_BINARY:
        (void)cw_thrift_binary(t, &size);
        break;
    case CW_THRIFT_LIST:
    case CW_THRIFT_SET:
        for (size_t n = cw_thrift_list(t, &inner); n > 0 && !t->bad; n--)
            thrift_pass(t, inner, depth + 1, true);
        break;
    case CW_THRIFT_MAP: {
        uint64_t n = thrift_varint(t);
        uint8_t types = n ? thrift_byte(t) : 0;
        for (; n > 0 && !t->bad; n--) {
            thrift_pass(t, types >> 4, depth + 1, true);
            thrift_pass(t, types & 15, depth + 1, true);
        }
        break;
    }
    case CW_THRIFT_STRUCT: {
        struct cw_thrift_field f = {0};
        while (cw_thrift_field(t, &f))
            thrift_pass(t, f.type, depth + 1, false);
        break;
    }
    default:
        t->bad = true;
    }
}

void cw_thrift_skip(struct cw_thrift *t, int type)
{
    thrift_pass(t, type, 0, false);
}
