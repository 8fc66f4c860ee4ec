/* Control groups, where there are any and we may make some: who may be in one, and what is left of those who
 * died. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "service/fleet/cgroup.h"

#define TEST_PREFIX "cachewtest"

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* A process of its own that tries to be in a group. */
static bool may_enter(const char *folder)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_text(folder, "cgroup.procs", "0") ? 0 : 1);
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A new group of version 2 below its top; false: none can be made here. */
static bool group_of_ours(char top[PATH_MAX])
{
    char line[PATH_MAX + 256], mount[PATH_MAX], type[64];
    FILE *f = fopen("/proc/self/mounts", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%*s %4000s %63s", mount, type) == 2 && strcmp(type, "cgroup2") == 0;
    if (f)
        fclose(f);
    return found && snprintf(top, PATH_MAX, "%s/%s-%d", mount, TEST_PREFIX, (int)getpid()) < PATH_MAX &&
           mkdir(top, 0755) == 0;
}

/* Version 2 lets nobody into a group below one that has processes itself, but as threads: workers could not
 * begin. */
static void test_processes_may_be_in_a_group_below_our_own(void **state)
{
    (void)state;
    char top[PATH_MAX], other[PATH_MAX + 8], group[PATH_MAX + 8];
    if (!group_of_ours(top))
        skip();
    snprintf(other, sizeof(other), "%s/other", top);
    snprintf(group, sizeof(group), "%s/group", top);
    int status;
    pid_t pid = fork(); /* so that the upper one has a process */
    if (pid == 0) {
        bool in = write_text(top, "cgroup.procs", "0") && mkdir(other, 0755) == 0 &&
                  write_text(other, "cgroup.type", "threaded") && mkdir(group, 0755) == 0;
        bool before = in && may_enter(group), admitted = in && cw_cgroup_admit(group) == 0,
             after = in && may_enter(group);
        _exit(!in ? 2 : !before && admitted && after ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(group);
    rmdir(other);
    rmdir(top);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) /* not allowed, though a group could be made */
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Who is killed removes no groups: they stayed for ever. */
static void test_groups_of_the_dead_are_swept(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_cgroup *c = NULL;
    char name[64];
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(name, sizeof(name), TEST_PREFIX "-%d-1", (int)getpid());
        _exit(cw_cgroup_new(name, 0.5, &c, &err) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        skip(); /* none can be made here */
    snprintf(name, sizeof(name), TEST_PREFIX "-%d-1", (int)pid);
    assert_int_equal(cw_cgroup_new(name, 0.5, &c, &err), CW_E_OPTION);
    assert_non_null(strstr(err.message, "File exists"));
    cw_cgroup_sweep("cachewtes"); /* another's */
    assert_int_equal(cw_cgroup_new(name, 0.5, &c, &err), CW_E_OPTION);
    cw_cgroup_sweep(TEST_PREFIX);
    assert_int_equal(cw_cgroup_new(name, 0.5, &c, &err), 0);
    cw_cgroup_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_may_be_in_a_group_below_our_own),
        cmocka_unit_test(test_groups_of_the_dead_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
