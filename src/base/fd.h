/* Cleanup functions that close file descriptors, directories and streams at the end of their block. */
#pragma once
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "base/macro.h"

/* Closes a descriptor unless it is negative, and sets it to -1. */
static inline void cw_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#define _cleanup_close_ _cleanup_(cw_closep)

/* Hands a descriptor out of a _cleanup_close_ variable. */
#define CW_STEAL_FD(fd) \
    __extension__({ \
        int v_ = (fd); \
        (fd) = -1; \
        v_; \
    })

static inline void cw_closedirp(DIR **d)
{
    if (*d)
        closedir(*d);
}

static inline void cw_fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}
