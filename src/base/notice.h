/*
 * Notices: lines for people about events that no caller returns as an error, such as storage that stopped
 * responding. The program sets once where they go; before that they are dropped. Any thread.
 */
#pragma once
#include <stddef.h>

#include "base/macro.h"

/* Sets the function that gets each whole line, its newline included. NULL: lines are dropped. */
void cw_notice_set(void (*write)(const char *line, size_t size));
/* A writer for cw_notice_set: one write(2) to standard error per line. */
void cw_notice_stderr(const char *line, size_t size);
/* Hands one line to the writer; the newline is added here. Lines above 2 KiB are cut. */
void cw_notice(const char *fmt, ...) _printf_(1, 2);
