/* Reads whole small files: pipelines, states, settings. Any thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/array.h"
#include "storage/file.h"

#define STEP ((size_t)4096) /* bytes of a file that are read at a time */

static int file_too_large(FILE *f, const char *path, size_t limit, struct cw_error *err)
{
    struct stat st;
    cw_error_file(err, path);
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode))
        return cw_error_set(err, CW_E_OPTION, "%s has %lld bytes: expected at most %zu", path,
                            (long long)st.st_size, limit);
    return cw_error_set(err, CW_E_OPTION, "%s is too large: expected at most %zu bytes", path, limit);
}

int cw_read_file(const char *path, size_t limit, char **ret, size_t *ret_size, struct cw_error *err)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_OPTION, errno, "can't open %s", path);
    }
    size_t size = 0, room = 0;
    char *data = NULL;
    int r = 0;
    for (size_t got = STEP; got == STEP && size <= limit && r >= 0; size += got) {
        r = CW_ARRAY_ROOM(data, room, size + STEP + 1, path, err);
        got = r < 0 ? 0 : fread(data + size, 1, STEP, f);
    }
    if (r >= 0 && size > limit)
        r = file_too_large(f, path, limit, err);
    else if (r >= 0 && ferror(f))
        r = cw_error_errno(err, CW_E_OPTION, errno, "can't read %s", path);
    fclose(f);
    if (r < 0) {
        free(data);
        return r;
    }
    data[size] = '\0';
    *ret = data;
    *ret_size = size;
    return 0;
}
