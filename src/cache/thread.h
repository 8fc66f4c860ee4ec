/*
 * The store's thread: opens the directory and the sets, writes, publishes, scans and evicts. It holds the
 * cache and ends when cw_cache.stop is set, the queue is empty and all sets were given back.
 */
#pragma once

/* cache: struct cw_cache. */
void *cw_cache_main(void *cache);
