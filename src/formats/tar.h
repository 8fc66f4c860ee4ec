/*
 * Tar archives as lists of samples. Nothing is ever extracted: a member is a name and a range of bytes.
 *
 * Read are the formats v7, ustar, GNU (long names, sizes in base 256) and pax (path, size). The checksum of
 * every header is verified. Regular files count; directories, links and files whose base name has no dot
 * inside it ("README", ".hidden") are passed over. What can't be taken for a plain file (sparse files,
 * devices, parts of volumes) is refused, and so are names that lead out of their directory, an archive
 * without its end, and anything but zeros after it.
 *
 * A sample is a run of such files with the same key: the path up to the first dot of its base name. What
 * follows that dot is the extension. In a walk's list, a sample goes from its first header (extended ones
 * included) to the end of its last file's data, padded to 512 bytes.
 */
#pragma once
#include <stdbool.h>

#include "formats/walk.h"

#define CW_TAR_BLOCK 512
#define CW_TAR_EXTENDED \
    ((size_t)1 << 20) /* bytes of an extended header at most: names and attributes, never data */
#define CW_TAR_WHY 320

enum cw_tar_kind {
    CW_TAR_ZERO, /* the block that ends an archive */
    CW_TAR_FILE,
    CW_TAR_PASSED,    /* directory or link: no data follow */
    CW_TAR_LONG_NAME, /* data: the next member's name (GNU) */
    CW_TAR_LONG_LINK, /* data: a link's target (GNU); of no interest */
    CW_TAR_PAX,       /* data: attributes of the next member */
    CW_TAR_PAX_ALL,   /* data: attributes of all members that follow */
};

/* What one header block says. */
struct cw_tar_header {
    enum cw_tar_kind kind;
    uint64_t size;  /* of what follows, up to 2^62 */
    char name[256]; /* without NUL */
    size_t name_size;
};

/* False: why says what is wrong. */
bool cw_tar_parse(const uint8_t block[CW_TAR_BLOCK], struct cw_tar_header *ret,
                  char why[CW_TAR_WHY]) _must_check_;

/* What extended headers say of the member that follows them. Zero: nothing. */
struct cw_tar_extended {
    const char *path; /* points into what was parsed; NULL: as in the header */
    size_t path_size;
    bool has_size;
    uint64_t size;
};

/* Takes the data of an extended header of a kind, which must stay where they are. */
bool cw_tar_extend(struct cw_tar_extended *x, enum cw_tar_kind kind, const uint8_t *data, size_t size,
                   char why[CW_TAR_WHY]) _must_check_;

/* False: the name leads out of the archive's directory, or is none. */
bool cw_tar_check_name(const char *name, size_t size, char why[CW_TAR_WHY]) _must_check_;

/* Splits the name of a regular file. False: it is passed over. */
struct cw_tar_name {
    const char *key, *extension; /* both point into the name */
    size_t key_size, extension_size;
};

bool cw_tar_split(const char *name, size_t size, struct cw_tar_name *ret) _must_check_;

/* The walk wants headers and the first block of each member's data; in between it leaves out what it can. */
struct cw_tar_walk {
    /* content: XXH3_64 of all headers, the data of extended ones, and the first block of others' data, as
     * they stand there */
    struct cw_walk base;

    enum { CW_TAR_AT_HEADER, CW_TAR_AT_EXTENDED, CW_TAR_AT_DATA, CW_TAR_AT_END } state;

    uint64_t member;     /* where the member begins: the first of its headers, extended ones included */
    uint64_t size, next; /* of the data that follow the last header; where the header after them is */
    uint64_t end;        /* of the open sample's last file */
    size_t have;         /* bytes collected of block, or of an extended header's data */
    uint8_t block[CW_TAR_BLOCK];
    struct cw_tar_header header; /* the last one */
    struct cw_tar_extended extended;
    uint8_t *buffers[3]; /* data of extended headers: a long name, pax, others */
    size_t capacities[3];
    bool seen[2]; /* the member has a long name, has pax */
    char *key;    /* of the sample that is open; key_size 0: none is */
    size_t key_size, key_capacity;
};

int cw_tar_walk_init(struct cw_tar_walk *w, const char *path, uint64_t stream_size,
                     struct cw_error *err) _must_check_;

/* The files of one sample in memory, as a walk listed it. */
struct cw_tar_files {
    const uint8_t *data;
    size_t size, at;
    struct cw_tar_header header;
};

struct cw_tar_file {
    struct cw_tar_name name; /* good until the next call */
    const uint8_t *data;
    size_t size;
};

static inline void cw_tar_files_init(struct cw_tar_files *f, const void *data, size_t size)
{
    *f = (struct cw_tar_files){.data = data, .size = size};
}

/* The next file: 1, or 0 at the end, or -1 with why: the bytes are not what a walk would list. */
int cw_tar_next(struct cw_tar_files *f, struct cw_tar_file *ret, char why[CW_TAR_WHY]) _must_check_;
