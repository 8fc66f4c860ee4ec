/* Child processes that end with this one. */
#pragma once
#include <sys/types.h>

/*
 * In a child, between fork and exec: no signals are blocked, a process group of its own (Ctrl-C is for the
 * parent, which ends it in order), and SIGTERM when the thread that forked ends, however that comes: SIGTERM
 * ends it at once from here on, since the parent's handler, which it has until exec, would swallow it.
 * Returns only while the parent lives.
 */
void cw_child_begin(pid_t parent);
