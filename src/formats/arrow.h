/*
 * Arrow IPC files and streams, and Feather files of version 2, which are IPC files
 * (https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc): the
 * columns of the schema, the record batches, and where the buffers of a column of a batch lie. Any thread.
 */
#pragma once
#include "data/arena.h"
#include "formats/columns.h"
#include "formats/flatbuffer.h"

struct cw_file;

/* How the values of a column lie in its last slots. */
enum cw_arrow_kind {
    CW_ARROW_NUMBERS, /* a slot with numbers of `width` bytes */
    CW_ARROW_BOOLS,   /* a slot with a bit for each value */
    CW_ARROW_FIXED,   /* a slot with strings of `width` bytes */
    CW_ARROW_STRINGS, /* a slot with offsets of `width` bytes, one with the bytes of the strings */
    CW_ARROW_VIEWS,   /* a slot with views of 16 bytes; further slots with bytes of long strings */
};

/* Structs around a column, and lists within lists of fixed size, at most. */
#define CW_ARROW_MAX_ABOVE 8
#define CW_ARROW_MAX_INNER CW_MAX_NDIM
#define CW_ARROW_MAX_SLOTS (CW_ARROW_MAX_ABOVE + 2 + CW_ARROW_MAX_INNER + 2)

/*
 * A column. Its slots are the buffers of a record batch that it needs, in this order: the validity of the
 * structs around it; its own validity; with list_width, the offsets of its lists; the validity of each inner
 * level, from outside to inside; the values.
 */
struct cw_arrow_column {
    char *name; /* of a field of a struct: the names on the path to it, joined by dots */
    const char *unreadable;
    struct cw_type type;
    enum cw_arrow_kind kind;
    uint32_t width;
    bool is_signed;      /* of the numbers that are indexes of a dictionary */
    uint32_t n_above;    /* structs around it */
    uint32_t list_width; /* bytes of an offset of a list that varies; 0: it is no such list */
    uint32_t n_inner;    /* levels below the first */
    uint64_t per_row;    /* numbers of a row, or of each entry of its list */
    uint64_t inner_numbers[CW_ARROW_MAX_INNER]; /* numbers below an entry of each inner level */
    uint32_t n_slots;
    uint32_t buffers[CW_ARROW_MAX_SLOTS]; /* by slot: number of the buffer, before those of views are added */
    uint32_t nodes[CW_ARROW_MAX_SLOTS];   /* by slot: number of the node that it belongs to */
    uint32_t views_before;                /* columns of views before it, whose numbers of buffers vary */
    bool has_dictionary;                  /* the numbers are indexes of `values` */
    int64_t dictionary;                   /* its id */
    struct cw_arrow_column *values;       /* as they lie in the dictionary's batches */
};

struct cw_arrow_batch {
    uint64_t n_rows;
    uint64_t body, body_bytes; /* in the file */
    uint64_t message;          /* in the file */
    int codec;                 /* enum cw_arrow_codec */
    size_t n_dictionaries;     /* dictionary batches that apply to it: the first ones of the file */
    bool is_dictionary;        /* it has entries of a dictionary */
    int64_t dictionary;        /* of a dictionary batch: its id */
    bool is_delta;             /* of a dictionary batch: it adds to the one before */
    struct cw_flatbuffer meta; /* its message; owned */
    struct cw_flat_vector nodes, buffers, views;
};

enum cw_arrow_codec { CW_ARROW_UNCOMPRESSED = -1, CW_ARROW_LZ4, CW_ARROW_ZSTD };

struct cw_arrow_file {
    struct cw_file *file;  /* not owned */
    struct cw_mapped *map; /* NULL: the file can't be mapped */
    const uint8_t *mapped; /* its bytes */
    struct cw_arrow_column *columns;
    size_t n_columns;
    struct cw_arrow_batch *batches, *dictionaries;
    size_t n_batches, n_dictionaries, batches_room, dictionaries_room;
    uint64_t content; /* XXH3_64 of the first and the last 64 KiB of the file */
};

/* Reads the metadata of a file. CW_E_DATA: it is no Arrow file, or damaged. */
int cw_arrow_open(struct cw_file *file, struct cw_arrow_file *ret, struct cw_error *err) _must_check_;
void cw_arrow_close(struct cw_arrow_file *f);

/* Returns the bytes of a column's buffers in the file. */
uint64_t cw_arrow_stored(const struct cw_arrow_column *c, const struct cw_arrow_batch *batch);

struct cw_arrow_buffer {
    const uint8_t *memory; /* decoded; NULL: it lies in the file */
    uint64_t offset, size; /* offset: in the file */
};

/* A column of a batch, or a part of a dictionary. */
struct cw_arrow_array {
    const struct cw_arrow_column *c;
    uint64_t n_rows;
    struct cw_arrow_buffer *slots; /* those of the column (of size 0: all are valid), then those of views */
    size_t n_slots;
    struct cw_arrow_array *dictionary; /* n_parts, one after the other */
    size_t n_parts;
};

/* Finds the buffers of a column of a batch. Memory is the arena's. */
int cw_arrow_locate(const struct cw_arrow_file *f, const struct cw_arrow_column *c,
                    const struct cw_arrow_batch *batch, struct cw_arena *arena, struct cw_arrow_array *ret,
                    struct cw_error *err) _must_check_;
/* Reads a buffer of the file, and decompresses it. *ret is malloced; *ret_size: its size. */
int cw_arrow_read(const struct cw_arrow_file *f, const struct cw_arrow_batch *batch,
                  const struct cw_arrow_buffer *buffer, struct cw_arena *arena, uint8_t **ret,
                  uint64_t *ret_size, struct cw_error *err) _must_check_;
/* Reports damage in the batch of a column. */
int cw_arrow_damaged(const struct cw_arrow_file *f, const struct cw_arrow_batch *batch, const char *column,
                     struct cw_error *err, const char *fmt, ...) _printf_(5, 6);
