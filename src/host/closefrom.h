/* Defines posix_spawn_file_actions_addclosefrom_np where the C library lacks it (glibc before 2.34: Debian
 * 11). */
#pragma once
#include <spawn.h>

#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 34)
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

/* Adds a close for each descriptor that is open now. One that another thread opens before the spawn stays
 * open in the child unless it has O_CLOEXEC, as all of ours have. */
static inline int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return errno;
    int e = 0;
    for (struct dirent *entry; !e && (entry = readdir(d));) {
        long fd = strtol(entry->d_name, NULL, 10); /* . and .. become 0 */
        if (fd >= from)
            e = posix_spawn_file_actions_addclose(actions, (int)fd);
    }
    closedir(d);
    return e;
}
#endif
