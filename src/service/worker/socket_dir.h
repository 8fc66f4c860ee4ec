/* The directory of a worker's Unix socket, if no path was given: a new directory in $XDG_RUNTIME_DIR or /tmp,
 * which only its user may enter. The worker (clients.c) holds a lock on it, which the kernel releases when
 * the process ends, even if it is killed. So the next worker that starts recognizes the directories of killed
 * workers by their free locks, and removes them. */
#pragma once
#include "base/error.h"

/* Removes the directories of killed workers, and makes a new one. The caller owns *ret_path, and the
 * descriptor *ret_lock, which holds the lock. */
int cw_socket_dir_new(char **ret_path, int *ret_lock, struct cw_error *err) _must_check_;
/* Removes the directory, which must be empty, closes the lock and frees the path. Accepts NULL and -1.
 * Returns NULL. */
char *cw_socket_dir_free(char *path, int lock);
