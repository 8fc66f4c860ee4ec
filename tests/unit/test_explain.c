/* explain/costs.h, rewrite.h, remedies.h: costs made up by hand, so that what limits the rate and what would
 * help is arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "explain/remedies.h"

#define MS 1e-3
#define US 1e-6

/* A source, two operators and a batch; nothing costs anything yet. Two threads, two CPUs. */
struct made {
    struct cw_op_cost ops[4];
    struct cw_costs c;
};

static struct made *make(void)
{
    struct made *m = calloc(1, sizeof(*m));
    static const char *const names[] = {"synthetic", "first", "second", "batch"};
    for (unsigned i = 0; i < 4; i++)
        m->ops[i] = (struct cw_op_cost){
            .op = names[i], .position = i, .fused_into = i, .source = i == 0, .rows = i < 3, .bytes = 1000};
    m->c = (struct cw_costs){.ops = m->ops, .n_ops = 4, .threads = 2, .cpus = 2, .memory = 1 << 30};
    return m;
}

static void costs(struct made *m, unsigned op, double busy_s, double cpu_s)
{
    m->ops[op].busy_s = m->ops[op].alone_s = busy_s;
    m->ops[op].cpu_s = m->ops[op].alone_cpu_s = cpu_s;
    m->c.cpu_s += m->ops[op].function ? busy_s : cpu_s;
}

/* What such costs make: the rate that was measured, if the model is right. */
static void measured(struct made *m)
{
    double limits[CW_N_RESOURCES];
    m->c.rate = limits[cw_costs_limits(&m->c, limits)];
    m->c.rate = limits[cw_costs_limits(&m->c, limits)];
}

static void near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%g, expected %g", got, expected);
}

struct found {
    struct cw_remedy *list;
    size_t n;
};

static const struct cw_cache_speed SPEED = {
    .entry_s = 10 * US, .byte_s = 0.01 * US, .cold_entry_s = 20 * US, .cold_byte_s = 0.05 * US};

static struct found find(struct made *m, const struct cw_place *places, size_t n_places,
                         const struct cw_move *moves, size_t n_moves)
{
    struct found f;
    struct cw_error err = {0};
    const struct cw_remedy_options o = {
        .speed = &SPEED, .elements = 1e5, .page_cache = 1e9, .memory_total = (size_t)4 << 30};
    measured(m);
    assert_int_equal(cw_remedies_find(&m->c, places, n_places, moves, n_moves, &o, &f.list, &f.n, &err), 0);
    return f;
}

static const struct cw_remedy *of_kind(const struct found *f, const char *kind)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->list[i].kind, kind) == 0)
            return &f->list[i];
    return NULL;
}

static void end(struct made *m, struct found *f)
{
    cw_remedies_free(f->list, f->n);
    free(m);
}

/* ---- what limits ---- */

static void limited_by(struct made *m, const char *kind, const char *op)
{
    measured(m);
    struct cw_bottleneck b = cw_costs_bottleneck(&m->c);
    assert_string_equal(b.kind, kind);
    assert_int_equal(b.op != NULL, op != NULL);
    if (op)
        assert_string_equal(b.op->op, op);
    assert_true(b.share > 0 && b.share <= 1);
    free(m);
}

/* It was said of any run that spent time between operators: of one that waited for who takes the batches,
 * with operators that are dear, too. */
static void larger_batches_are_advised_where_they_would_help(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * US, 1 * US);
    m->c.other_s = 2 * US;
    m->c.cpu_s += 2 * US;
    assert_true(cw_costs_wants_larger_batches(&m->c));
    m->c.taken = 200; /* nobody wants more */
    assert_false(cw_costs_wants_larger_batches(&m->c));
    m->c.taken = 0;
    m->c.consumer_s = 1 * MS;
    assert_false(cw_costs_wants_larger_batches(&m->c));
    m->c.consumer_s = 0;
    costs(m, 2, 444 * US, 444 * US); /* an operator that is dear */
    assert_false(cw_costs_wants_larger_batches(&m->c));
    m->c.other_s = 400 * US; /* nearly as much */
    assert_false(cw_costs_wants_larger_batches(&m->c));
    free(m);
}

static void names_what_limits(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    costs(m, 2, 3 * MS, 3 * MS);
    limited_by(m, "cpu", "second");

    m = make();
    m->ops[1].function = true;
    costs(m, 1, 3 * MS, 0.1 * MS);
    costs(m, 2, 1 * MS, 1 * MS);
    limited_by(m, "function", "first");

    m = make();
    costs(m, 1, 3 * MS, 0.1 * MS);
    limited_by(m, "waiting", "first");

    m = make();
    costs(m, 0, 3 * MS, 3 * MS);
    limited_by(m, "cpu", "synthetic");

    m = make();
    double *const parts[] = {&m->c.read_s, &m->c.emit_s, &m->c.other_s, &m->c.idle_s[CW_IDLE_MEMORY],
                             &m->c.idle_s[CW_IDLE_OTHER]};
    static const char *const kinds[] = {"reading", "copying", "scheduling", "memory", "order"};
    costs(m, 1, 1 * MS, 1 * MS);
    for (size_t i = 0; i < CW_COUNT_OF(parts); i++) {
        *parts[i] = 2 * MS;
        measured(m);
        assert_string_equal(cw_costs_bottleneck(&m->c).kind, kinds[i]);
        *parts[i] = 0;
    }
    free(m);

    m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.cold_bytes = 1e6;
    m->c.storage_bytes_per_s = 1e8; /* 100 elements/s; the threads do 2,000 */
    m->c.idle_s[CW_IDLE_READING] = 19 * MS;
    limited_by(m, "storage", NULL);

    m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.consumer_s = 5 * MS;
    m->c.idle_s[CW_IDLE_CONSUMER] = 9 * MS;
    limited_by(m, "consumer", NULL);

    m = make();
    costs(m, 1, 0.1 * MS, 0.1 * MS);
    m->c.plan_s = 0.2 * MS;
    limited_by(m, "planning", NULL);
}

/* ---- what would help ---- */

static void more_threads_until_the_cpus_are_used(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.threads = 1;
    m->c.cpus = 4;
    struct found f = find(m, NULL, 0, NULL, 0);
    const struct cw_remedy *r = of_kind(&f, "threads");
    near(r->rate, 4000);
    assert_true(r->here);
    assert_int_equal(json_integer_value(json_object_get(r->change, "value")), 4);
    assert_string_equal(json_string_value(json_object_get(r->change, "option")), "threads");
    assert_null(of_kind(&f, "cores"));
    end(m, &f);
}

static void more_cpus_until_the_consumer_is_the_limit(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.consumer_s = 0.4 * MS;
    struct found f = find(m, NULL, 0, NULL, 0);
    assert_null(of_kind(&f, "threads"));
    const struct cw_remedy *r = of_kind(&f, "cores");
    near(r->rate, 2500);
    assert_false(r->here);
    end(m, &f);
}

static void what_is_not_shared_among_threads_makes_the_range_wider(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 0.9 * MS, 0.9 * MS);
    m->c.other_s = 0.1 * MS;
    m->c.cpu_s += 0.1 * MS;
    struct found f = find(m, NULL, 0, NULL, 0);
    const struct cw_remedy *r = of_kind(&f, "cores");
    near(r->rate, 4000);
    near(r->low, 4 / (1.1 * MS)); /* 4 threads; scheduling costs an element twice as much as with 2 */
    end(m, &f);
}

static void threads_that_wait_want_more_threads(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 4 * MS, 0.5 * MS);
    struct found f = find(m, NULL, 0, NULL, 0);
    const struct cw_remedy *r = of_kind(&f, "threads");
    near(r->rate, 4000); /* both CPUs busy: 16 threads */
    assert_int_equal(json_integer_value(json_object_get(r->change, "value")), 16);
    end(m, &f);
}

static void cpus_that_others_use_are_not_to_be_had(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 2 * MS, 1 * MS); /* half of the time others have the CPU */
    m->c.delay_s = 1 * MS;
    m->c.cpus = 1;
    struct found f = find(m, NULL, 0, NULL, 0);
    assert_null(of_kind(&f, "threads"));
    end(m, &f);
}

static void nothing_but_a_quicker_consumer_helps_who_takes_the_batches(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_place place = {.at = 1, .cache_point = -1, .last = 0, .bytes = 1000};
    costs(m, 0, 1 * MS, 1 * MS);
    m->c.consumer_s = 5 * MS;
    m->c.idle_s[CW_IDLE_CONSUMER] = 9 * MS;
    struct found f = find(m, &place, 1, NULL, 0);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.list[0].kind, "consumer");
    assert_false(f.list[0].here); /* nobody limited the rate */
    near(f.list[0].rate, 2000);
    end(m, &f);
}

static void no_more_comes_than_is_taken(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.consumer_s = 0.1 * MS; /* it waits most of the time all the same */
    m->c.taken = 1500;
    struct found f = find(m, NULL, 0, NULL, 0);
    near(m->c.rate, 1500);
    assert_string_equal(cw_costs_bottleneck(&m->c).kind, "consumer");
    assert_int_equal(f.n, 1);
    assert_string_equal(f.list[0].kind, "consumer");
    assert_true(f.list[0].here);
    near(f.list[0].rate, 2000);
    end(m, &f);
}

static void calls_that_are_waited_for_come_one_after_the_other(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->ops[2].function = true;
    m->ops[2].call_s = m->c.calls_s = 4 * MS;
    m->c.consumer_s = 1 * MS;
    measured(m);
    near(m->c.rate, 200);
    near(cw_costs_bottleneck(&m->c).share, 0.8);
    limited_by(m, "calls", "second");
}

static void memory_and_storage(void **state)
{
    (void)state;
    struct made *m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.idle_s[CW_IDLE_MEMORY] = 1 * MS; /* half of the time */
    struct found f = find(m, NULL, 0, NULL, 0);
    near(of_kind(&f, "memory")->rate, 2000);
    assert_int_equal(json_integer_value(json_object_get(of_kind(&f, "memory")->change, "value")),
                     (json_int_t)1 << 31);
    end(m, &f);

    m = make();
    costs(m, 1, 1 * MS, 1 * MS);
    m->c.cold_bytes = 1e6;
    m->c.storage_bytes_per_s = 8e8;
    m->c.idle_s[CW_IDLE_READING] = 1.5 * MS;
    f = find(m, NULL, 0, NULL, 0);
    near(m->c.rate, 800);
    near(of_kind(&f, "storage")->rate, 1600);
    near(of_kind(&f, "storage")->high, 2000); /* all in memory: the threads are the limit */
    end(m, &f);
}

static void a_cache_saves_what_stands_before_it(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_place places[] = {{.at = 1, .cache_point = -1, .last = 0, .bytes = 1000},
                                      {.at = 2, .cache_point = 7, .last = 1, .bytes = 500}};
    costs(m, 0, 2 * MS, 2 * MS);
    costs(m, 1, 0.03 * MS, 0.03 * MS);
    costs(m, 2, 1 * MS, 1 * MS);
    struct found f = find(m, places, 2, NULL, 0);
    /* The second one saves more and takes fewer bytes: the first is not told. */
    assert_int_equal(f.n, 2);
    const struct cw_remedy *r = of_kind(&f, "cache");
    near(r->rate, 2 / (1 * MS + 10 * US + 500 * 0.01 * US));
    near(r->low, 2 / (1 * MS + 20 * US + 500 * 0.05 * US));
    near(r->bytes, 500 * 1e5);
    assert_string_equal(json_string_value(json_object_get(r->change, "option")), "cache");
    assert_int_equal(json_integer_value(json_object_get(r->change, "value")), 7);
    end(m, &f);
}

static void a_cache_larger_than_memory_is_read_from_the_disk(void **state)
{
    (void)state;
    struct made *m = make();
    /* 2 GB; 1 GB of page cache */
    const struct cw_place place = {.at = 1, .cache_point = -1, .last = 0, .bytes = 20000};
    costs(m, 0, 9 * MS, 9 * MS);
    costs(m, 1, 1 * MS, 1 * MS);
    struct found f = find(m, &place, 1, NULL, 0);
    const struct cw_remedy *r = of_kind(&f, "cache");
    near(r->rate, 2 / (1 * MS + 20 * US + 20000 * 0.05 * US));
    near(r->high, 2 / (1 * MS + 10 * US + 20000 * 0.01 * US));
    assert_false(r->here);
    json_t *insert = json_object_get(r->change, "insert");
    assert_string_equal(json_string_value(json_object_get(insert, "op")), "autocache");
    assert_int_equal(json_integer_value(json_object_get(r->change, "at")), 1);
    end(m, &f);
}

static void a_cache_within_a_fused_run_ends_it(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_place place = {.at = 2, .cache_point = -1, .last = 1, .bytes = 1000};
    costs(m, 1, 3 * MS, 3 * MS);
    costs(m, 2, 0.5 * MS, 0.5 * MS);
    m->ops[2].fused_into = 1;
    m->ops[2].alone_s = m->ops[2].alone_cpu_s = 1.5 * MS;
    struct found f = find(m, &place, 1, NULL, 0);
    near(of_kind(&f, "cache")->rate, 2 / (1.5 * MS + 20 * US));
    cw_remedies_free(f.list, f.n);

    /* Two that are left are a run again, which gains as much as the three did, if it gains anything. */
    costs(m, 3, 0.5 * MS, 0.5 * MS);
    m->ops[3].rows = 1;
    m->ops[3].fused_into = 1;
    m->ops[3].alone_s = m->ops[3].alone_cpu_s = 2.5 * MS;
    f = find(m, &place, 1, NULL, 0);
    near(of_kind(&f, "cache")->rate, 2 / (1 * MS + 20 * US));
    near(of_kind(&f, "cache")->low, 2 / (4 * MS + 70 * US));

    m->ops[2].alone_s = -1; /* never seen alone: nothing can be said */
    cw_remedies_free(f.list, f.n);
    f = find(m, &place, 1, NULL, 0);
    assert_null(of_kind(&f, "cache"));
    end(m, &f);
}

static void dropped_elements_are_not_read(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_place place = {.at = 2, .cache_point = -1, .last = 1, .bytes = 1000};
    m->ops[0].rows = m->ops[1].rows = 10; /* `first` keeps one in ten */
    costs(m, 0, 10 * MS, 10 * MS);
    costs(m, 2, 1 * MS, 1 * MS);
    struct found f = find(m, &place, 1, NULL, 0);
    near(of_kind(&f, "cache")->rate, 2 / (1 * MS + 20 * US));
    near(of_kind(&f, "cache")->bytes, 1e5 / 10 * 1000);
    end(m, &f);
}

static void a_filter_in_front_saves_the_rest(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_move move = {.from = 2, .to = 1, .first = 1, .last = 1, .factor = 0.25};
    costs(m, 1, 4 * MS, 4 * MS);
    costs(m, 2, 1 * MS, 1 * MS);
    struct found f = find(m, NULL, 0, &move, 1);
    near(m->c.rate, 400);
    near(of_kind(&f, "order")->rate, 1000);
    assert_int_equal(json_integer_value(json_object_get(of_kind(&f, "order")->change, "move")), 2);
    assert_int_equal(json_integer_value(json_object_get(of_kind(&f, "order")->change, "to")), 1);
    assert_true(f.list[0].rate >= f.list[f.n - 1].rate);
    end(m, &f);
}

static void small_gains_are_left_out(void **state)
{
    (void)state;
    struct made *m = make();
    const struct cw_move move = {.from = 2, .to = 1, .first = 1, .last = 1, .factor = 0.9};
    costs(m, 1, 0.2 * MS, 0.2 * MS); /* 2 % */
    costs(m, 2, 0.8 * MS, 0.8 * MS);
    struct found f = find(m, NULL, 0, &move, 1);
    assert_null(of_kind(&f, "order"));
    end(m, &f);
}

/* ---- changes of a pipeline ---- */

static void parse(const char *chain, struct cw_local *l)
{
    char text[4096];
    struct cw_error err = {0};
    *l = (struct cw_local){.as_written = true};
    int n = snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    if (cw_local_parse(l, text, (size_t)n, ".", &err) < 0)
        fail_msg("%s", err.message);
}

#define IMAGES "{\"op\": \"synthetic\", \"count\": 64, \"shape\": [40, 40, 3], \"dtype\": \"uint8\"}, "

/* The moves of a chain, as "from>to factor", where every operator gets `rows` elements, but for what stands
 * behind position `filter`: those get a quarter. */
static void moves(const char *chain, unsigned filter, const char *expected)
{
    struct cw_local l;
    struct cw_error err = {0};
    struct cw_move *list;
    size_t n;
    char got[256] = "";
    parse(chain, &l);
    struct cw_profile p = {.n_ops = l.pipeline->n_ops,
                           .ops = calloc(l.pipeline->n_ops, sizeof(*p.ops)),
                           .values = calloc(cw_n_values(l.compiled) + 1, sizeof(*p.values))};
    struct cw_costs c = {.n_ops = l.pipeline->n_ops, .ops = calloc(l.pipeline->n_ops, sizeof(*c.ops))};
    for (unsigned i = 0; i < c.n_ops; i++)
        c.ops[i] = (struct cw_op_cost){.position = i, .fused_into = i, .rows = i <= filter ? 4 : 1};
    assert_int_equal(cw_moves_find(&l, &c, &p, &list, &n, &err), 0);
    for (size_t i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%zu>%zu %.2f ", list[i].from, list[i].to,
                 list[i].factor);
    assert_string_equal(got, expected);
    free(list);
    free(p.ops);
    free(p.values);
    free(c.ops);
    cw_local_deinit(&l);
}

#define RANGE "{\"op\": \"range\", \"stop\": 100}, "
#define SQUARE "{\"op\": \"assign\", \"set\": {\"square\": \"value * value\"}}, "

static void finds_operators_that_could_stand_elsewhere(void **state)
{
    (void)state;
    moves(RANGE SQUARE "{\"op\": \"filter\", \"where\": \"value > 9\"}, {\"op\": \"batch\", \"size\": 4}", 2,
          "2>1 0.25 ");
    moves(RANGE SQUARE "{\"op\": \"filter\", \"where\": \"square > 9\"}, {\"op\": \"batch\", \"size\": 4}", 2,
          "");
    moves(RANGE SQUARE "{\"op\": \"delay\", \"us\": 1}, {\"op\": \"filter\", \"where\": \"square > 9\"}, "
                       "{\"op\": \"batch\", \"size\": 4}",
          3, "3>2 0.25 ");
    /* A cache point stays where it is; a name that changed is another one; take counts what arrives. */
    moves(RANGE SQUARE "{\"op\": \"autocache\"}, {\"op\": \"filter\", \"where\": \"value > 9\"}", 3, "");
    moves(RANGE "{\"op\": \"rename\", \"names\": {\"value\": \"other\"}}, {\"op\": \"filter\", \"where\": "
                "\"other > 9\"}",
          2, "");
    moves(RANGE SQUARE "{\"op\": \"take\", \"count\": 9}, {\"op\": \"filter\", \"where\": \"value > 9\"}", 3,
          "");
}

static void finds_crops_that_could_be_earlier(void **state)
{
    (void)state;
    const char *cast = "{\"op\": \"cast\", \"component\": \"data\", \"dtype\": \"float32\"}, ";
    char chain[1024];
    snprintf(chain, sizeof(chain),
             IMAGES "%s{\"op\": \"center_crop\", \"component\": \"data\", \"size\": [20, 20]}, {\"op\": "
                    "\"batch\", \"size\": 4}",
             cast);
    moves(chain, 9, "2>1 0.25 ");
    snprintf(chain, sizeof(chain),
             IMAGES "%s{\"op\": \"random_crop\", \"component\": \"data\", \"size\": [20, 20]}, {\"op\": "
                    "\"batch\", \"size\": 4}",
             cast);
    moves(chain, 9, "2>1 0.25 ");
    snprintf(chain, sizeof(chain),
             IMAGES "%s{\"op\": \"resize\", \"component\": \"data\", \"size\": [20, 20]}, {\"op\": "
                    "\"batch\", \"size\": 4}",
             cast);
    moves(chain, 9, ""); /* it rounds */
}

static void finds_places_for_a_cache(void **state)
{
    (void)state;
    struct cw_local l;
    struct cw_error err = {0};
    struct cw_place *places;
    size_t n;
    parse(IMAGES "{\"op\": \"shuffle\"}, {\"op\": \"center_crop\", \"component\": \"data\", \"size\": [20, "
                 "20]}, {\"op\": \"cache\"}, "
                 "{\"op\": \"random_flip\", \"component\": \"data\"}, {\"op\": \"cast\", \"component\": "
                 "\"data\", \"dtype\": \"float32\"}, {\"op\": \"batch\", \"size\": 4}",
          &l);
    struct cw_profile p = {.n_ops = l.pipeline->n_ops,
                           .ops = calloc(l.pipeline->n_ops, sizeof(*p.ops)),
                           .values = calloc(cw_n_values(l.compiled) + 1, sizeof(*p.values))};
    p.ops[0].rows = 64;
    assert_int_equal(cw_places_find(&l, &p, &places, &n, &err), 0);
    assert_int_equal(n, 2); /* behind the source; at the cache point; behind the flip nothing can be kept */
    assert_int_equal(places[0].at, 1);
    assert_int_equal(places[0].cache_point, -1);
    near(places[0].bytes, 40 * 40 * 3);
    assert_int_equal(places[1].at, 3);
    assert_int_equal(places[1].cache_point, 0);
    assert_int_equal(places[1].last, 2);
    near(places[1].bytes, 20 * 20 * 3);
    free(places);
    free(p.ops);
    free(p.values);
    cw_local_deinit(&l);
}

static void applies_changes(void **state)
{
    (void)state;
    json_t *root = json_pack("{s:[i, i, i, i]}", "pipeline", 0, 1, 2, 3),
           *insert = json_pack("{s:i, s:i}", "insert", 9, "at", 1),
           *move = json_pack("{s:i, s:i}", "move", 3, "to", 1), *inserted = cw_change_apply(root, insert),
           *moved = cw_change_apply(root, move);
    json_t *expected = json_pack("{s:[i, i, i, i, i]}", "pipeline", 0, 9, 1, 2, 3),
           *expected_moved = json_pack("{s:[i, i, i, i]}", "pipeline", 0, 3, 1, 2);
    assert_true(json_equal(inserted, expected));
    assert_true(json_equal(moved, expected_moved));
    json_t *all[] = {root, insert, move, inserted, moved, expected, expected_moved};
    for (size_t i = 0; i < CW_COUNT_OF(all); i++)
        json_decref(all[i]);
}

static void the_speed_of_a_cache_is_measured(void **state)
{
    (void)state;
    struct cw_cache_speed speed;
    struct cw_error err = {0};
    for (int scattered = 0; scattered < 2; scattered++) {
        assert_int_equal(cw_probe_cache(NULL, scattered, NULL, &speed, &err), 0);
        assert_true(speed.entry_s + 1e5 * speed.byte_s > 0 &&
                    speed.cold_entry_s + 1e5 * speed.cold_byte_s > 0);
    }
    assert_int_equal(cw_probe_cache("/nowhere/at/all", true, NULL, &speed, &err), CW_E_OPTION);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_what_limits),
        cmocka_unit_test(more_threads_until_the_cpus_are_used),
        cmocka_unit_test(more_cpus_until_the_consumer_is_the_limit),
        cmocka_unit_test(what_is_not_shared_among_threads_makes_the_range_wider),
        cmocka_unit_test(threads_that_wait_want_more_threads),
        cmocka_unit_test(cpus_that_others_use_are_not_to_be_had),
        cmocka_unit_test(nothing_but_a_quicker_consumer_helps_who_takes_the_batches),
        cmocka_unit_test(no_more_comes_than_is_taken),
        cmocka_unit_test(calls_that_are_waited_for_come_one_after_the_other),
        cmocka_unit_test(memory_and_storage),
        cmocka_unit_test(a_cache_saves_what_stands_before_it),
        cmocka_unit_test(a_cache_larger_than_memory_is_read_from_the_disk),
        cmocka_unit_test(a_cache_within_a_fused_run_ends_it),
        cmocka_unit_test(dropped_elements_are_not_read),
        cmocka_unit_test(a_filter_in_front_saves_the_rest),
        cmocka_unit_test(small_gains_are_left_out),
        cmocka_unit_test(finds_operators_that_could_stand_elsewhere),
        cmocka_unit_test(finds_crops_that_could_be_earlier),
        cmocka_unit_test(larger_batches_are_advised_where_they_would_help),
        cmocka_unit_test(finds_places_for_a_cache),
        cmocka_unit_test(applies_changes),
        cmocka_unit_test(the_speed_of_a_cache_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
