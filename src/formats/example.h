/*
 * tf.train.Example on the wire, read in place: no allocation, bounded by the size of the input.
 *
 *     Example { Features features = 1 }   Features { map<string, Feature> feature = 1 }
 *     Feature { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } },
 * each list { repeated value = 1 }
 *
 * As in protobuf: unknown fields are skipped, lists may be packed or not, a message that occurs twice is
 * merged, of a oneof the last kind counts. A map key may occur several times; the walk gives each, the last
 * one counts. Stricter than protobuf: groups are malformed. Looser: keys need not be UTF-8, and lists are
 * looked into only when their values are requested.
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

/* What is left of a message. */
struct cw_example_cursor {
    const uint8_t *at, *end;
};

/* What is left of a message, and of one inside it, which comes first. */
struct cw_example_nested {
    struct cw_example_cursor outer, inner;
};

struct cw_feature { /* points into the record */
    const char *key;
    size_t key_size;
    enum cw_feature_kind kind;
    unsigned n_lists;               /* of that kind, to be taken one after another; nearly always 1 */
    struct cw_example_nested lists; /* the map entry and a Feature, from the first of them on */
};

struct cw_example_walk {
    const uint8_t *start;
    struct cw_example_nested features; /* the Example, and its Features */
    const char *why;                   /* after -1: what is malformed */
    size_t where;                      /* and at which byte of the record */
};

void cw_example_walk_init(struct cw_example_walk *w, const void *data, size_t size);
/* The next map entry: 1, or 0 at the end, or -1 with why and where. */
int cw_example_next(struct cw_example_walk *w, struct cw_feature *ret) _must_check_;

/* How many values a feature holds; -1 when its lists are malformed. */
int64_t cw_feature_count(const struct cw_feature *f) _must_check_;

/* The values, exactly as many as cw_feature_count said. The kind must fit. */
struct cw_bytes_view {
    const uint8_t *data;
    size_t size;
};

void cw_feature_bytes(const struct cw_feature *f, struct cw_bytes_view *out);
void cw_feature_floats(const struct cw_feature *f, float *out);
void cw_feature_int64s(const struct cw_feature *f, int64_t *out);
