/*
 * Allocation that fails on demand: this program's malloc, calloc, realloc, posix_memalign, aligned_alloc,
 * memalign, mmap and memfd_create, which all libraries it links call too. Armed with n, the n-th call from
 * then on fails, whichever thread makes it; later ones succeed.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* n = 0: only counts. */
void alloc_fail_arm(uint64_t n);
/* Calls made since armed. */
uint64_t alloc_fail_disarm(void);
/* Whether the n-th call came. */
bool alloc_fail_happened(void);
/* The call that failed, for messages. */
const char *alloc_fail_what(void);
/* Blocks and mappings that are there now: what a function leaves behind shows as a difference. */
int64_t alloc_fail_live(void);
