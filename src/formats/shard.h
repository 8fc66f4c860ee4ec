/*
 * Elements as the records of shards, the files of a materialised data set (dataset/manifest.h): writes an
 * element as a record of each format, and reads it back, the values bit for bit.
 *
 *     cachew     a TFRecord; its data are the components in byte order of names. A component whose type has a
 *                fixed size is its values. Bytes are their length (u64) and the bytes. Of other components
 * the dims come first: their number (u64), if the type does not tell it, then each (u64) tfrecord   a
 * TFRecord; its data are a tf.train.Example with a feature for each component. Integers and bool are an int64
 * list, floats a float list, bytes a bytes list of one value. A component whose shape varies has its dims in
 * the feature NAME/shape tar        the files NUMBER.NAME.npy (arrays) and NUMBER.NAME (bytes) of a tar
 * archive
 *
 * Numbers are little-endian. Any thread may call.
 */
#pragma once
#include "data/type.h"
#include "formats/example.h"

enum cw_shard_format { CW_SHARD_CACHEW, CW_SHARD_TFRECORD, CW_SHARD_TAR, CW_N_SHARD_FORMATS };

/* The names of the formats, which are the extensions of the files too; then NULL. */
extern const char *const cw_shard_formats[CW_N_SHARD_FORMATS + 1];

#define CW_SHARD_COMPONENTS 64 /* limit of an element's components */
#define CW_SHARD_WHY 200       /* bytes of a reason */

struct cw_shard_component {
    char *name; /* owned */
    struct cw_type type;
};

struct cw_shard_schema {
    enum cw_shard_format format;
    unsigned n;
    struct cw_shard_component components[CW_SHARD_COMPONENTS]; /* in byte order of names */
};

void cw_shard_schema_deinit(struct cw_shard_schema *s);
/* Checks that the format can hold the components. CW_E_OPTION: the message names the component and what to
 * do. */
int cw_shard_schema_check(const struct cw_shard_schema *s, struct cw_error *err) _must_check_;

struct cw_shard_bytes { /* bytes that grow; the owner frees data */
    uint8_t *data;
    size_t size, capacity;
};

/* Appends an element to `to`. values: by component. number: of the element in the data set. */
int cw_shard_write(const struct cw_shard_schema *s, uint64_t number, const struct cw_tensor *values,
                   struct cw_shard_bytes *to, struct cw_error *err) _must_check_;
/* Appends what stands after the last element of a shard. */
int cw_shard_write_end(const struct cw_shard_schema *s, struct cw_shard_bytes *to,
                       struct cw_error *err) _must_check_;

struct cw_shard_value {  /* points into the record */
    const uint8_t *data; /* the values, not aligned; NULL: they are those of the feature */
    struct cw_feature feature;
    size_t size; /* bytes of the values as the component's dtype */
    int ndim;
    int64_t dims[CW_MAX_NDIM];
};

/* Reads a record into values, by component. data: of a TFRecord without its frame; of tar, the sample's
 * files. False: the record does not have the schema; why says how. */
bool cw_shard_read(const struct cw_shard_schema *s, const void *data, size_t size,
                   struct cw_shard_value *values, char why[CW_SHARD_WHY]) _must_check_;
/* Returns how many bytes of scratch memory, aligned for float, cw_shard_copy needs. */
size_t cw_shard_scratch(const struct cw_shard_value *v, enum cw_dtype dtype);
/* Copies the values of a component of numbers, v->size bytes. */
void cw_shard_copy(const struct cw_shard_value *v, enum cw_dtype dtype, void *to, void *scratch);
