/* A dispatcher for tests. usage: dispatcher_tool ADDRESS [STATE-DIR]   Prints its address, and ends on
 * SIGTERM. */
#include <stdio.h>

#include "service/dispatcher/dispatcher.h"
#include "net/loop.h"

static void on_signal(void *arg, int signal)
{
    (void)signal;
    cw_loop_stop(arg);
}

static void on_log(void *arg, bool warning, const char *text)
{
    (void)arg;
    fprintf(stderr, "%s%s\n", warning ? "warning: " : "", text);
}

int main(int argc, char **argv)
{
    struct cw_error err = {0};
    struct cw_loop *l = NULL;
    struct cw_dispatcher_server *s = NULL;
    if (argc < 2)
        return 2;
    if (cw_loop_new(&l, &err) < 0 || cw_loop_signals(l, on_signal, l, &err) < 0 ||
        cw_dispatcher_server_start(
            &(struct cw_dispatcher_server_options){
                .loop = l, .listen = argv[1], .state_dir = argc > 2 ? argv[2] : NULL, .log = on_log},
            &s, &err) < 0) {
        fprintf(stderr, "dispatcher_tool: %s\n", err.message);
        cw_loop_free(l);
        return 1;
    }
    printf("%s\n", cw_dispatcher_server_address(s));
    fflush(stdout);
    cw_loop_run(l);
    cw_dispatcher_server_free(s);
    cw_loop_free(l);
    return 0;
}
