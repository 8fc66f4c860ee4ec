/* The verb photos, and what the verb demo shares with it: making a set of photographs, unless it exists, and
 * ending it at a signal. */
#pragma once
#include "cli/photo_set.h"

/* Returns the path of a file or directory in Cachew's cache directory, $XDG_CACHE_HOME/cachew or
 * ~/.cache/cachew. The caller frees it; NULL: out of memory, or neither XDG_CACHE_HOME nor HOME is set. */
char *cli_cache_path(const char *fmt, ...) _printf_(1, 2);

/* Makes the set with one thread for each CPU, unless set->threads is set. SIGINT and SIGTERM end it with
 * CW_E_INTERRUPTED. */
int cli_photos_make(struct photo_set *set, struct photo_set_report *ret, struct cw_error *err) _must_check_;
/* r: an error of cli_photos_make. Returns it, or the exit code if a signal caused it. */
int cli_photos_end(int r, const struct cw_error *err, bool json);
