/*
 * The directory of a worker's socket, where no path was given: a new one below $XDG_RUNTIME_DIR or /tmp,
 * which only its user may enter. The worker (clients.c) holds a lock on it, which ends with the process
 * however that ends. So the next worker that starts finds the directories of killed workers by their free
 * locks, and removes them.
 */
#pragma once
#include "base/error.h"

/* Makes a directory, and removes those of killed workers. The caller owns *ret_path and *ret_lock, a
 * descriptor. */
int cw_socket_dir_new(char **ret_path, int *ret_lock, struct cw_error *err) _must_check_;
/* Removes the directory, empty by now, and closes the lock. Accepts NULL and -1. Returns NULL. */
char *cw_socket_dir_free(char *path, int lock);
