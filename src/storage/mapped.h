/*
 * Copying from files in the page cache without the kernel, in about two thirds of the time of read(2)
 * (docs/adr/0021). Only for content with a checksum. Used by cache/segment.c alone; without it, everything is
 * read.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct cw_mapped;

/* Maps an open file of this size, which must not be written to any more. NULL: it can't be mapped, address
 * space is limited (ulimit -v), or the file is another user's, so that the kernel does not say what is in
 * memory. */
struct cw_mapped *cw_mapped_new(int fd, uint64_t size);
/* No thread may copy from it any more. Accepts NULL. */
struct cw_mapped *cw_mapped_free(struct cw_mapped *m);

/* Returns whether all these bytes, 16 MiB at most, are in memory and may be copied now. */
bool cw_mapped_resident(struct cw_mapped *m, uint64_t offset, size_t length);
/*
 * Copies bytes that cw_mapped_resident has just confirmed. False: the file can't be copied from any more, and
 * v is unchanged. A page that went away since is read again, which waits. Where that fails (storage fails,
 * the file was cut) zeros are copied, in all copies of this file under way. The thread must not block SIGBUS.
 */
bool cw_mapped_copy(struct cw_mapped *m, uint64_t offset, const struct iovec *v, int n_v, size_t length);
