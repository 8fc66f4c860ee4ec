/* Defines posix_spawn_file_actions_addclosefrom_np where the C library lacks it (glibc before 2.34: Debian
 * 11). */
#pragma once
#include <spawn.h>

#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 34)
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

/* Closes in the child all descriptors from `from` on that are open in this process now. Returns 0 or an
 * errno. A descriptor that another thread opens between this call and the spawn stays open in the child,
 * unless it has O_CLOEXEC; all descriptors that Cachew opens have it. */
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
