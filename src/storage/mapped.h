/* Files that are in memory, copied without the kernel's help: in about two thirds of the time that reading
 * takes. For content that has a checksum. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct cw_mapped;

/* Of an open file of so many bytes, which are not written to any more. NULL: it can't be mapped, address
 * space is limited (ulimit -v), or the kernel would not tell us what of it is in memory. */
struct cw_mapped *cw_mapped_new(int fd, uint64_t size);
/* Nobody copies from it any more. */
struct cw_mapped *cw_mapped_free(struct cw_mapped *m);

/* Whether all of these bytes are in memory, and may be copied now. Of 16 MiB at most. */
bool cw_mapped_resident(struct cw_mapped *m, uint64_t offset, size_t length);
/*
 * Copies `length` bytes at offset to v, of which cw_mapped_resident() has just said that they are in memory.
 * False: this file is not to be read so any more, and v is as it was. Waits only where a page went away
 * since, and is read again. Where that can't be done (storage fails, the file is cut short) zeros are copied
 * instead, in all copies of this file that are under way. Any thread that does not block SIGBUS.
 */
bool cw_mapped_copy(struct cw_mapped *m, uint64_t offset, const struct iovec *v, int n_v, size_t length);
