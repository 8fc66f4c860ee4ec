/*
 * Reads tar archives as lists of samples. Nothing is ever extracted: a member (an entry of the archive) is a
 * name and a range of bytes.
 *
 * The formats v7, ustar, GNU (long names, sizes in base 256) and pax (path, size) are supported. The checksum
 * of every header is verified. Regular files are read. Directories, links, and files whose base name has no
 * dot after its first character ("README", ".hidden") are skipped. Errors are: members of other kinds (sparse
 * files, devices, parts of volumes), names that lead out of the archive's directory, an archive without an
 * end, and bytes other than zeros after the end.
 *
 * A sample is a run of such files with the same key. The key is the path up to the first dot of the base
 * name; the extension is the part after that dot. In a walk's list, a sample reaches from its first header
 * (extended headers included) to the end of its last file's data, padded to 512 bytes.
 */
#pragma once
#include <stdbool.h>

#include "formats/walk.h"

#define CW_TAR_BLOCK 512
/* Limit of the bytes of an extended header, which holds names and attributes, never data. */
#define CW_TAR_EXTENDED ((size_t)1 << 20)
#define CW_TAR_WHY 320 /* bytes of a reason */

enum cw_tar_kind {
    CW_TAR_ZERO, /* the block that ends an archive */
    CW_TAR_FILE,
    CW_TAR_PASSED,    /* a directory or a link, which is skipped; no data follow */
    CW_TAR_LONG_NAME, /* data: the next member's name (GNU) */
    CW_TAR_LONG_LINK, /* data: a link's target (GNU), which is not used */
    CW_TAR_PAX,       /* data: attributes of the next member */
    CW_TAR_PAX_ALL,   /* data: attributes of all members that follow */
};

/* The content of a header block. */
struct cw_tar_header {
    enum cw_tar_kind kind;
    uint64_t size;  /* bytes of the data that follow, below 2^62 */
    char name[256]; /* name_size bytes, without NUL */
    size_t name_size;
};

/* Parses a header block. False: why says what is wrong. */
bool cw_tar_parse(const uint8_t block[CW_TAR_BLOCK], struct cw_tar_header *ret,
                  char why[CW_TAR_WHY]) _must_check_;

/* The attributes that extended headers set for the member after them. All zero: none. */
struct cw_tar_extended {
    const char *path; /* points into the data of the extended header; NULL: the header's name holds */
    size_t path_size;
    bool has_size; /* `size` replaces the header's size */
    uint64_t size;
};

/* Parses the data of an extended header of this kind into *x, which points into the data. False: why says
 * what is wrong. */
bool cw_tar_extend(struct cw_tar_extended *x, enum cw_tar_kind kind, const uint8_t *data, size_t size,
                   char why[CW_TAR_WHY]) _must_check_;

/* Checks a member's name. False: the name leads out of the archive's directory or is empty; why says so. */
bool cw_tar_check_name(const char *name, size_t size, char why[CW_TAR_WHY]) _must_check_;

struct cw_tar_name {
    const char *key, *extension; /* both point into the name */
    size_t key_size, extension_size;
};

/* Splits the name of a regular file. False: the file is skipped. */
bool cw_tar_split(const char *name, size_t size, struct cw_tar_name *ret) _must_check_;

/* A walk over an archive. It needs all headers and the first block of each member's data; other data may be
 * left out.
 */
struct cw_tar_walk {
    /* its content is the XXH3_64 of these, in the order of the archive: all headers, the data of extended
     * headers, and the first 512 bytes of other members' data */
    struct cw_walk base;

    enum { CW_TAR_AT_HEADER, CW_TAR_AT_EXTENDED, CW_TAR_AT_DATA, CW_TAR_AT_END } state;

    uint64_t member; /* offset of the member's first header, extended headers included */
    uint64_t size;   /* bytes of the data after the last header */
    uint64_t next;   /* offset of the header after these data */
    uint64_t
        end; /* offset of the end of the last file of the open sample (to which files may still be added) */
    size_t have; /* bytes collected of block, or of an extended header's data */
    uint8_t block[CW_TAR_BLOCK];
    struct cw_tar_header header; /* the last header that was parsed */
    struct cw_tar_extended extended;
    uint8_t *buffers[3];           /* data of extended headers: a long name, pax, others */
    size_t capacities[3];          /* bytes of buffers */
    bool seen[2];                  /* the member has a long name; the member has a pax header */
    char *key;                     /* of the open sample */
    size_t key_size, key_capacity; /* key_size 0: no sample is open */
};

int cw_tar_walk_init(struct cw_tar_walk *w, const char *path, uint64_t stream_size,
                     struct cw_error *err) _must_check_;

/* An iteration over the files of one sample in memory; data are the sample's bytes as a walk listed them. */
struct cw_tar_files {
    const uint8_t *data;
    size_t size, at;
    struct cw_tar_header header;
};

struct cw_tar_file {
    struct cw_tar_name name; /* valid until the next call of cw_tar_next */
    const uint8_t *data;
    size_t size;
};

static inline void cw_tar_files_init(struct cw_tar_files *f, const void *data, size_t size)
{
    *f = (struct cw_tar_files){.data = data, .size = size};
}

/* Reads the next file. Returns 1, or 0 at the end, or -1 if the bytes are not a sample as a walk lists it;
 * why says what is wrong. */
int cw_tar_next(struct cw_tar_files *f, struct cw_tar_file *ret, char why[CW_TAR_WHY]) _must_check_;
