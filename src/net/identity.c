/* Which machine this is, as far as memory can be shared on it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/conn.h"

static bool identity_boot_id(char ret[37])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, 36);
    if (fd >= 0)
        close(fd);
    ret[36] = '\0';
    return n == 36;
}

void cw_host_identity(char ret[80])
{
    char boot[37];
    struct stat st;
    if (identity_boot_id(boot) && stat("/proc/self/ns/net", &st) == 0) {
        snprintf(ret, 80, "%s-%" PRIu64, boot, (uint64_t)st.st_ino);
        return;
    }
    /* Without /proc nobody is known to be here: an identity that nobody else has, and this process only once.
     */
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        random[0] = (uint64_t)getpid();
    snprintf(ret, 80, "unknown-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}
