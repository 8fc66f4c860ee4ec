/*
 * The Arrow C data and stream interfaces, for cachew_arrays_from_arrow. The Arrow specification ("C data
 * interface", "C stream interface") fixes the layout of these structures, and requires the #ifndef guards, so
 * that other headers may define the same structures.
 */
#pragma once
#include <stdint.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *); /* NULL: released already */
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children; /* null_count -1: unknown */
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *); /* NULL: released already */
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out); /* 0 or an errno value */
    /* returns as get_schema; at the end of the stream, out->release is NULL */
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *); /* NULL: released already */
    void *private_data;
};
#endif
