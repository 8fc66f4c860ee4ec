/* Child processes that end with this one. */
#pragma once
#include <sys/types.h>

/*
 * Sets up a child process; call it in the child, between fork and exec. It unblocks all signals, and makes a
 * process group for the child, so that Ctrl-C reaches only the parent, which ends the child in order. The
 * child gets SIGTERM when the thread that forked it ends for any reason. SIGTERM ends the child at once from
 * here on: the handler that it inherited from the parent would ignore the signal until exec. Returns only
 * while the parent lives.
 */
void cw_child_begin(pid_t parent);
