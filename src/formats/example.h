/*
 * Reads a serialised tf.train.Example in place: without allocation, in time proportional to its size.
 *
 *     Example { Features features = 1 }
 *     Features { map<string, Feature> feature = 1 }
 *     Feature { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
 *     BytesList, FloatList, Int64List { repeated value = 1 }
 *
 * As in protobuf: unknown fields are skipped, lists may be packed or not, a message that occurs twice is
 * merged, and of a oneof the last kind counts. A map key may occur several times: the walk returns every
 * entry, and the last one counts. Stricter than protobuf: groups are malformed. Less strict: keys need not be
 * UTF-8, and lists are checked only when their values are requested.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

enum cw_feature_kind {
    CW_FEATURE_NONE = 0,
    CW_FEATURE_BYTES = 1,
    CW_FEATURE_FLOAT = 2,
    CW_FEATURE_INT64 = 3
};

const char *cw_feature_kind_name(enum cw_feature_kind kind); /* "nothing", "bytes", "float32", "int64" */

/* The unread rest of a message. */
struct cw_example_cursor {
    const uint8_t *at, *end;
};

/* The unread rests of a message inside another one (inner) and of the message around it (outer); inner is
 * read first. */
struct cw_example_nested {
    struct cw_example_cursor outer, inner;
};

struct cw_feature {  /* points into the record */
    const char *key; /* not terminated by a NUL */
    size_t key_size;
    enum cw_feature_kind kind;
    unsigned n_lists; /* number of lists of that kind, whose values are joined; nearly always 1 */
    struct cw_example_nested lists; /* the map entry and its Feature, from the first of these lists on */
};

struct cw_example_walk {
    const uint8_t *start;
    struct cw_example_nested features; /* outer: the Example; inner: its Features */
    const char *why;                   /* after an error: what is malformed; static */
    size_t where;                      /* after an error: at which byte of the record */
};

void cw_example_walk_init(struct cw_example_walk *w, const void *data, size_t size);
/* Reads the next map entry. Returns 1, or 0 at the end, or -1 and sets w->why and w->where. */
int cw_example_next(struct cw_example_walk *w, struct cw_feature *ret) _must_check_;

/* Returns the number of values of a feature; -1: its lists are malformed. */
int64_t cw_feature_count(const struct cw_feature *f) _must_check_;

struct cw_bytes_view {
    const uint8_t *data;
    size_t size;
};

/* Store the values of a feature, exactly cw_feature_count of them, in out. The feature must be of this kind.
 */
void cw_feature_bytes(const struct cw_feature *f, struct cw_bytes_view *out);
void cw_feature_floats(const struct cw_feature *f, float *out);
/* Integers of `size` bytes (1, 2, 4 or 8): the lowest bytes of each int64. */
void cw_feature_integers(const struct cw_feature *f, size_t size, void *out);
