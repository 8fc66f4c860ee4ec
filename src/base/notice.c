/* The writer of notices, which the whole process shares. */
#include "base/notice.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static _Atomic(void (*)(const char *, size_t)) notice_writer;

void cw_notice_set(void (*write)(const char *line, size_t size))
{
    atomic_store(&notice_writer, write);
}

void cw_notice_stderr(const char *line, size_t size)
{
    if (write(STDERR_FILENO, line, size) < 0) {
        /* standard error is closed: the notice is lost */
    }
}

void cw_notice(const char *fmt, ...)
{
    char line[2048];
    void (*writer)(const char *, size_t) = atomic_load(&notice_writer);
    CW_FORMAT(line, fmt);
    size_t n = strnlen(line, sizeof(line) - 2);
    line[n++] = '\n';
    if (writer)
        writer(line, n);
}
