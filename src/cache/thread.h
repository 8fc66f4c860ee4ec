/*
 * The store's thread: opens the directory and the sets, writes and publishes segments, scans and evicts. It
 * owns a reference of the cache (cw_cache.holders). It ends when cw_cache.stop is set, the queue is empty and
 * no set has a user.
 */
#pragma once

/* The function of the thread. cache: its struct cw_cache. */
void *cw_cache_main(void *cache);
