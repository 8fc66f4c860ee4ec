/*
 * Copying from files in the page cache through a memory mapping, without system calls, in about two thirds of
 * the time of read(2) (docs/adr/0021). Only for content with a checksum, because a copy may hold zeros (see
 * cw_mapped_copy). Only cache/segment.c uses this; where no mapping can be made it uses read(2).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct cw_mapped;

/* Maps an open file of this size, which must not be written to any more. NULL: the file can't be mapped,
 * address space is limited (ulimit -v), or the file belongs to another user, so that the kernel does not tell
 * which pages are in memory. */
struct cw_mapped *cw_mapped_new(int fd, uint64_t size);
/* Unmaps and frees m; no thread may use m any more. Accepts NULL. Returns NULL. */
struct cw_mapped *cw_mapped_free(struct cw_mapped *m);

/* Returns whether all these bytes (at most 16 MiB) are in memory, so that cw_mapped_copy may copy them now.
 */
bool cw_mapped_resident(struct cw_mapped *m, uint64_t offset, size_t length);
/*
 * Copies bytes that cw_mapped_resident has just confirmed into v. Returns false if the mapping can't be used
 * any more; then v is unchanged. If a page has left memory since, the kernel reads the page again and the
 * thread waits. If that read fails (storage fails, the file was truncated), zeros are copied instead, also in
 * all other copies from this file that are in progress. The thread must not block SIGBUS.
 */
bool cw_mapped_copy(struct cw_mapped *m, uint64_t offset, const struct iovec *v, int n_v, size_t length);
/* The bytes of the file, for reading; they may become zeros at any time, as in cw_mapped_copy. NULL: the
 * mapping can't be used any more. */
const uint8_t *cw_mapped_bytes(const struct cw_mapped *m);
/* Returns whether bytes may have become zeros. What was read before a call that returns false is sound. */
bool cw_mapped_failed(const struct cw_mapped *m);
