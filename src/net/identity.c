/* Identifies this machine: processes with equal identities can share memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "net/conn.h"

void cw_host_identity(char ret[80])
{
    char boot[64];
    struct stat st;
    if (cw_read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) == 0 && strlen(boot) >= 36 &&
        stat("/proc/self/ns/net", &st) == 0) {
        snprintf(ret, 80, "%.36s-%" PRIu64, boot, (uint64_t)st.st_ino);
        return;
    }
    /* Without /proc the machine can't be identified. A random identity makes sure that no other process seems
     * to share it. */
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        random[0] = (uint64_t)getpid();
    snprintf(ret, 80, "unknown-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

void cw_process_name(char ret[CW_PROCESS_NAME])
{
    char host[CW_PROCESS_NAME - 24] = ""; /* 24: colon, digits and 0 of any process id */
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(ret, CW_PROCESS_NAME, "%s:%ld", host, (long)getpid());
}
