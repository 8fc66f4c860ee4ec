/* Headers of tar archives, names of members, and the files of one sample in memory. Pure functions. */
#include "formats/tar.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE ((uint64_t)1 << 62) /* sums of offsets and sizes stay below 2^63 */

/* the fields of ustar: offset and length of each */
enum {
    NAME = 0,
    NAME_SIZE = 100,
    SIZE = 124,
    SIZE_SIZE = 12,
    CHECKSUM = 148,
    CHECKSUM_SIZE = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_SIZE = 155,
};

__attribute__((format(printf, 2, 3))) static bool wrong(char why[CW_TAR_WHY], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, CW_TAR_WHY, fmt, ap);
    va_end(ap);
    return false;
}

static bool tar_octal(const uint8_t *field, size_t size, uint64_t *ret)
{
    size_t i = 0;
    *ret = 0;
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        *ret = *ret << 3 | (uint64_t)(field[i] - '0');
    return i == size || field[i] == ' ' || field[i] == 0;
}

/* Reads a size: octal digits or, if the first bit is set, a number in base 256. */
static bool tar_read_size(const uint8_t *field, uint64_t *ret)
{
    if (!(field[0] & 0x80))
        return tar_octal(field, SIZE_SIZE, ret);
    *ret = field[0] & 0x7f; /* 0x7f begins a negative number, which is refused as too large */
    for (size_t i = 1; i < SIZE_SIZE; i++) {
        if (*ret >> 56)
            return false;
        *ret = *ret << 8 | field[i];
    }
    return *ret <= MAX_SIZE;
}

static bool tar_checksum_fits(const uint8_t block[CW_TAR_BLOCK], char why[CW_TAR_WHY])
{
    uint64_t stored;
    uint32_t sum = 0;
    int32_t as_chars = 0; /* the sum of signed chars, which some old programs stored */
    for (size_t i = 0; i < CW_TAR_BLOCK; i++) {
        uint8_t b = i >= CHECKSUM && i < CHECKSUM + CHECKSUM_SIZE ? ' ' : block[i];
        sum += b;
        as_chars += (int8_t)b;
    }
    if (tar_octal(block + CHECKSUM, CHECKSUM_SIZE, &stored) && (stored == sum || (int64_t)stored == as_chars))
        return true;
    return wrong(why,
                 "the checksum of its header does not match (%u computed): the archive is damaged, or the "
                 "file is not a tar archive",
                 sum);
}

static bool tar_read_kind(uint8_t type, struct cw_tar_header *h, char why[CW_TAR_WHY])
{
    static const struct {
        char type;
        enum cw_tar_kind kind;
        const char *refused; /* name of a kind that is refused; NULL: the kind is accepted */
    } types[] = {
        {'0', CW_TAR_FILE, NULL},
        {0, CW_TAR_FILE, NULL},
        {'7', CW_TAR_FILE, NULL}, /* a file that should be stored contiguously on disk */
        {'1', CW_TAR_PASSED, NULL},
        {'2', CW_TAR_PASSED, NULL},
        {'5', CW_TAR_PASSED, NULL},
        {'L', CW_TAR_LONG_NAME, NULL},
        {'K', CW_TAR_LONG_LINK, NULL},
        {'x', CW_TAR_PAX, NULL},
        {'g', CW_TAR_PAX_ALL, NULL},
        {'S', CW_TAR_ZERO, "a sparse file"},
        {'3', CW_TAR_ZERO, "a device"},
        {'4', CW_TAR_ZERO, "a device"},
        {'6', CW_TAR_ZERO, "a named pipe"},
        {'M', CW_TAR_ZERO, "the rest of a file of another volume"},
        {'V', CW_TAR_ZERO, "a volume's label"},
        {'D', CW_TAR_ZERO, "a directory dump"},
        {'N', CW_TAR_ZERO, "a list of long names"},
        {'X', CW_TAR_ZERO, "an extended header of Solaris"},
    };

    size_t i = 0;
    while (i < CW_COUNT_OF(types) && (uint8_t)types[i].type != type)
        i++;
    if (i == CW_COUNT_OF(types))
        return wrong(why, "its type is byte %u: expected regular files, directories and links", type);
    if (types[i].refused)
        return wrong(why, "it is %s: expected regular files, directories and links", types[i].refused);
    h->kind = types[i].kind;
    if (h->kind == CW_TAR_PASSED && type != '5' && h->size)
        return wrong(why, "it is a link, but has %" PRIu64 " bytes of data", h->size);
    if (h->kind == CW_TAR_PASSED)
        h->size = 0; /* a directory's size is only its quota: no data follow */
    if (h->kind == CW_TAR_FILE && h->name_size &&
        h->name[h->name_size - 1] == '/') /* a directory in the v7 format */
        h->kind = CW_TAR_PASSED;
    return true;
}

bool cw_tar_parse(const uint8_t block[CW_TAR_BLOCK], struct cw_tar_header *ret, char why[CW_TAR_WHY])
{
    static const uint8_t zeros[CW_TAR_BLOCK];
    *ret = (struct cw_tar_header){.kind = CW_TAR_ZERO};
    if (memcmp(block, zeros, CW_TAR_BLOCK) == 0)
        return true;
    if (!tar_checksum_fits(block, why))
        return false;
    /* GNU's magic has a space after "ustar" instead of a NUL, and its headers have no prefix field */
    bool ustar = memcmp(block + MAGIC, "ustar", 6) == 0;
    size_t prefix = ustar ? strnlen((const char *)block + PREFIX, PREFIX_SIZE) : 0;
    size_t name = strnlen((const char *)block + NAME, NAME_SIZE);
    memcpy(ret->name, block + PREFIX, prefix);
    if (prefix)
        ret->name[prefix++] = '/';
    memcpy(ret->name + prefix, block + NAME, name);
    ret->name_size = prefix + name;
    if (!tar_read_size(block + SIZE, &ret->size))
        return wrong(why, "its size is not a number below 2^62");
    return tar_read_kind(block[TYPE], ret, why);
}

/* ---- extended headers ---- */

static bool tar_decimal(const char *text, size_t size, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || *ret > MAX_SIZE / 10)
            return false;
        *ret = *ret * 10 + (uint64_t)(text[i] - '0');
    }
    return size > 0 && *ret <= MAX_SIZE;
}

static bool tar_pax_value(struct cw_tar_extended *x, enum cw_tar_kind kind, const char *key, size_t key_size,
                          const char *value, size_t size, char why[CW_TAR_WHY])
{
    bool path = key_size == 4 && memcmp(key, "path", 4) == 0,
         length = key_size == 4 && memcmp(key, "size", 4) == 0;
    if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
        return wrong(why, "it is a sparse file: expected regular files, directories and links");
    if ((path || length) && kind == CW_TAR_PAX_ALL)
        return wrong(why,
                     "it is a global pax header that sets one %s for all members, which is not supported",
                     path ? "path" : "size");
    if (path && size > 0) {
        x->path = value;
        x->path_size = size;
    }
    if (length) {
        x->has_size = true;
        if (!tar_decimal(value, size, &x->size))
            return wrong(why, "its size (pax) is not a number below 2^62");
    }
    return true;
}

/* Reads pax records "LENGTH KEY=VALUE\n"; LENGTH is the length of the whole record. */
static bool tar_read_pax(struct cw_tar_extended *x, enum cw_tar_kind kind, const char *p, size_t left,
                         char why[CW_TAR_WHY])
{
    while (left > 0) {
        const char *space = memchr(p, ' ', CW_MIN(left, (size_t)21));
        uint64_t length = 0;
        if (!space || !tar_decimal(p, (size_t)(space - p), &length) || length > left ||
            length < (uint64_t)(space - p) + 3 || p[length - 1] != '\n')
            return wrong(why, "its pax header is malformed");
        const char *key = space + 1, *end = p + length - 1, *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals)
            return wrong(why, "its pax header is malformed");
        if (!tar_pax_value(x, kind, key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), why))
            return false;
        p += length;
        left -= length;
    }
    return true;
}

bool cw_tar_extend(struct cw_tar_extended *x, enum cw_tar_kind kind, const uint8_t *data, size_t size,
                   char why[CW_TAR_WHY])
{
    if (kind == CW_TAR_PAX || kind == CW_TAR_PAX_ALL)
        return tar_read_pax(x, kind, (const char *)data, size, why);
    if (kind == CW_TAR_LONG_NAME &&
        !x->path) { /* a path from pax takes precedence, whichever header comes first */
        x->path = (const char *)data;
        x->path_size = strnlen((const char *)data, size);
    }
    return true;
}

/* ---- names ---- */

bool cw_tar_check_name(const char *name, size_t size, char why[CW_TAR_WHY])
{
    int shown = (int)CW_MIN(size, (size_t)160);
    if (size == 0)
        return wrong(why, "it has no name");
    if (memchr(name, 0, size))
        return wrong(why, "its name has a byte 0 after \"%.*s\"", shown, name);
    if (name[0] == '/')
        return wrong(why, "its name \"%.*s\" is absolute: expected one below the archive's directory", shown,
                     name);
    for (const char *p = name, *end = name + size; p < end;) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        size_t n = (size_t)((slash ? slash : end) - p);
        if (n == 2 && memcmp(p, "..", 2) == 0)
            return wrong(why, "its name \"%.*s\" leads out of the archive's directory", shown, name);
        p += n + 1;
    }
    return true;
}

bool cw_tar_split(const char *name, size_t size, struct cw_tar_name *ret)
{
    const char *slash = memrchr(name, '/', size), *base = slash ? slash + 1 : name, *end = name + size;
    const char *dot = memchr(base, '.', (size_t)(end - base));
    if (!dot || dot == base || dot + 1 == end)
        return false;
    *ret = (struct cw_tar_name){.key = name,
                                .key_size = (size_t)(dot - name),
                                .extension = dot + 1,
                                .extension_size = (size_t)(end - dot - 1)};
    return true;
}

/* ---- a sample in memory ---- */

int cw_tar_next(struct cw_tar_files *f, struct cw_tar_file *ret, char why[CW_TAR_WHY])
{
    struct cw_tar_extended x = {0};
    struct cw_tar_header *h = &f->header;
    while (f->at < f->size) {
        if (f->size - f->at < CW_TAR_BLOCK || !cw_tar_parse(f->data + f->at, h, why))
            return f->size - f->at < CW_TAR_BLOCK ? (wrong(why, "the file ends inside a header"), -1) : -1;
        const uint8_t *data = f->data + f->at + CW_TAR_BLOCK;
        uint64_t left = f->size - f->at - CW_TAR_BLOCK,
                 size = h->kind == CW_TAR_FILE && x.has_size ? x.size : h->size;
        if (size > left || CW_ALIGN_UP(size, CW_TAR_BLOCK) > left || h->kind == CW_TAR_ZERO)
            return wrong(why, "its members are not those that were indexed: the file has changed"), -1;
        f->at += CW_TAR_BLOCK + (size_t)CW_ALIGN_UP(size, CW_TAR_BLOCK);
        if (h->kind != CW_TAR_FILE && h->kind != CW_TAR_PASSED) {
            if (!cw_tar_extend(&x, h->kind, data, (size_t)size, why))
                return -1;
            continue;
        }
        const char *name = x.path ? x.path : h->name;
        size_t name_size = x.path ? x.path_size : h->name_size;
        x = (struct cw_tar_extended){0};
        if (!cw_tar_check_name(name, name_size, why))
            return -1;
        if (h->kind == CW_TAR_PASSED || !cw_tar_split(name, name_size, &ret->name))
            continue;
        ret->data = data;
        ret->size = (size_t)size;
        return 1;
    }
    return 0;
}
