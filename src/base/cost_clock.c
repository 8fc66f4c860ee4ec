/* The modelled clock of test builds. */
#include "base/cost_clock.h"

#ifdef CW_CRASH_POINTS

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/notice.h"

#define OPERATOR_NS UINT64_C(10000) /* ns that an element takes in an operator whose cost is not stated */
#define OPERATORS_MAX 16            /* the most operators with stated costs in a model */
#define NO_LIMIT_NS \
    UINT64_C(1000000000000000) /* 12 days: longer than any test runs; the sum with a time does not overflow \
                                */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool modelled, sleeps = true;

static struct {
    char name[32];
    uint64_t ns;
} operators[OPERATORS_MAX]; /* operators with stated costs of an element */

static size_t n_operators;
static _Thread_local uint64_t wall_ns, cpu_ns;

/* Ends the process: a test with a misspelt model must fail. */
static void model_refuse(const char *text)
{
    cw_notice("cachew: the environment variable CACHEW_CLOCK is %s: expected "
              "modelled[,OPERATOR=MICROSECONDS...][,sleep]",
              text);
    abort();
}

static bool model_is_word(const char *at, const char *word)
{
    return strcspn(at, ",") == strlen(word) && strncmp(at, word, strlen(word)) == 0;
}

static bool model_read_operator(const char *at)
{
    double us;
    if (n_operators == OPERATORS_MAX || sscanf(at, "%31[^=,]=%lf", operators[n_operators].name, &us) != 2 ||
        !(us >= 0))
        return false;
    operators[n_operators++].ns = (uint64_t)(us * 1000);
    return true;
}

static void model_read(const char *text)
{
    modelled = text && *text;
    sleeps = !modelled;
    n_operators = 0;
    if (!modelled)
        return;
    if (!model_is_word(text, "modelled"))
        model_refuse(text);
    for (const char *at = text + strcspn(text, ","); *at; at += strcspn(at, ",")) {
        at++;
        if (model_is_word(at, "sleep"))
            sleeps = true;
        else if (!model_read_operator(at))
            model_refuse(text);
    }
}

static void model_read_environment(void)
{
    model_read(getenv("CACHEW_CLOCK"));
}

void cw_cost_model(const char *text)
{
    pthread_once(&once, model_read_environment);
    model_read(text);
}

bool cw_cost_modelled(void)
{
    pthread_once(&once, model_read_environment);
    return modelled;
}

bool cw_cost_sleeps(void)
{
    return !cw_cost_modelled() || sleeps;
}

uint64_t cw_cost_now_ns(void)
{
    return cw_cost_modelled() ? wall_ns : cw_now_ns();
}

uint64_t cw_cost_cpu_ns(void)
{
    return cw_cost_modelled() ? cpu_ns : cw_thread_cpu_ns();
}

uint64_t cw_cost_delay_ns(void)
{
    return cw_cost_modelled() ? 0 : cw_thread_delay_ns();
}

uint64_t cw_cost_patience_ns(uint64_t ns)
{
    return cw_cost_modelled() ? NO_LIMIT_NS : ns;
}

void cw_cost_wait(uint64_t ns)
{
    wall_ns += ns;
}

void cw_cost_compute(uint64_t ns)
{
    wall_ns += ns;
    cpu_ns += ns;
}

void cw_cost_operator(const char *name, size_t rows)
{
    uint64_t ns = OPERATOR_NS;
    if (!cw_cost_modelled())
        return;
    for (size_t i = 0; i < n_operators; i++)
        if (strcmp(operators[i].name, name) == 0)
            ns = operators[i].ns;
    cw_cost_compute(ns * rows);
}

#endif
