/* Draws a simulation as an SVG picture: workers and waiting over time, with marks at decisions. Each job has
 * a strip of two panels. Lengths are SVG units. */
#include "base/macro.h"
#include "base/text.h"
#include "sim/sim.h"
#include "storage/file.h"

#define WIDTH 900.0
#define LEFT 60.0
#define TOP 50.0
#define HIGH 150.0 /* height of a panel */
#define GAP 40.0   /* between panels */
#define STRIP (2 * HIGH + 2 * GAP)
#define POINTS 1500               /* most points of a line */
#define INNER (WIDTH - LEFT - 20) /* width of a panel */

struct frame { /* a panel: the times at its left and right end, its upper edge, the value at that edge */
    double x0, x1, top, most;
};

static double frame_x(const struct frame *f, double t)
{
    return LEFT + INNER * (f->x1 > f->x0 ? (t - f->x0) / (f->x1 - f->x0) : 0);
}

static double frame_y(const struct frame *f, double v)
{
    return f->top + HIGH * (1 - v / f->most);
}

/* Adds a text, which may contain any characters, to the XML. */
static void plot_add_text(struct cw_text *t, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            cw_text_add(t, "&#%d;", *text);
        else if ((unsigned char)*text >= ' ')
            cw_text_add(t, "%c", *text);
}

static void plot_axes(struct cw_text *t, const struct frame *f, const char *what, bool percent)
{
    cw_text_add(t,
                "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' class='frame'/><text x='%.1f' "
                "y='%.1f'>%s</text>\n",
                LEFT, f->top, INNER, HIGH, LEFT, f->top - 6, what);
    for (int i = 0; i <= 4; i++) {
        double v = f->most * i / 4, y = frame_y(f, v);
        cw_text_add(t,
                    "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' class='grid'/><text x='%.1f' y='%.1f' "
                    "class='right'>%.4g%s</text>\n",
                    LEFT, y, LEFT + INNER, y, LEFT - 6, y + 4, percent ? 100 * v : v, percent ? " %" : "");
        double at = f->x0 + (f->x1 - f->x0) * i / 4;
        cw_text_add(t, "<text x='%.1f' y='%.1f' class='middle'>%.4g s</text>\n", frame_x(f, at),
                    f->top + HIGH + 14, at);
    }
}

/* Draws a line of horizontal steps, since a sample covers the time since the sample before. If there are more
 * than POINTS samples, each step is the mean of several. */
static void plot_stair(struct cw_text *t, const struct frame *f, const struct cw_sim_outcome *o,
                       const char *style, double (*value)(const struct cw_sim_sample *s))
{
    size_t stride = o->n_samples / POINTS + 1;
    double from = o->began_s;
    cw_text_add(t, "<path class='%s' d='", style);
    for (size_t i = 0; i < o->n_samples; i += stride) {
        size_t n = CW_MIN(stride, o->n_samples - i);
        double sum = 0;
        for (size_t k = 0; k < n; k++)
            sum += value(&o->samples[i + k]);
        double y = frame_y(f, CW_MIN(sum / (double)n, f->most)), to = o->samples[i + n - 1].t;
        cw_text_add(t, "%s%.1f %.1fL%.1f %.1f", i ? "L" : "M", frame_x(f, from), y, frame_x(f, to), y);
        from = to;
    }
    cw_text_add(t, "'/>\n");
}

static double sample_running(const struct cw_sim_sample *s)
{
    return s->running;
}

static double sample_wanted(const struct cw_sim_sample *s)
{
    return s->target;
}

static double sample_waiting(const struct cw_sim_sample *s)
{
    return CW_MAX(s->waiting, 0); /* rounding may give a number just below 0 */
}

static void plot_decisions(struct cw_text *t, const struct frame *f, const struct cw_sim_job *job,
                           const struct cw_sim_outcome *o)
{
    for (size_t i = 0; i < o->n_decisions; i++) {
        const struct cw_sim_decision *d = &o->decisions[i];
        double x = frame_x(f, d->t);
        cw_text_add(t, "<g><title>%.4g s: %d workers, cache %s: ", d->t, d->workers,
                    d->cache_point >= 0 ? "after " : "none");
        if (d->cache_point >= 0)
            plot_add_text(t, job->stages[job->cache_points[d->cache_point]].name);
        cw_text_add(t, ". ");
        plot_add_text(t, json_string_value(json_object_get(d->record, "why")));
        cw_text_add(t,
                    "</title><line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' class='decision'/><text x='%.1f' "
                    "y='%.1f' class='mark'>%d%s</text></g>\n",
                    x, f->top, x, f->top + HIGH, x + 3, f->top + 12 + 12 * (double)(i % 3), d->workers,
                    d->cache_point >= 0 ? " +cache" : "");
    }
}

static void plot_strip(struct cw_text *t, const struct cw_sim_job *job, const struct cw_sim_outcome *o,
                       double top, double end)
{
    struct frame f = {0, end, top, 1};
    for (size_t i = 0; i < o->n_samples; i++)
        f.most = CW_MAX(f.most, CW_MAX(o->samples[i].running, o->samples[i].target));
    plot_axes(t, &f, "number of workers: running (solid line), wanted (dashed line)", false);
    plot_stair(t, &f, o, "wanted", sample_wanted);
    plot_stair(t, &f, o, "running", sample_running);
    plot_decisions(t, &f, job, o);
    struct frame g = {0, end, top + HIGH + GAP, 1};
    plot_axes(t, &g, "part of the time that the client waited for batches", true);
    plot_stair(t, &g, o, "waiting", sample_waiting);
}

static const char style[] =
    "<style>text{font:11px "
    "sans-serif;fill:#333}.title{font-size:14px}.right{text-anchor:end}.middle{text-anchor:middle}.frame{"
    "fill:none;stroke:#888}.grid{stroke:#ddd}.running{fill:none;stroke:#1f5fa8;stroke-width:1.5}.wanted{fill:"
    "none;stroke:#999;stroke-dasharray:4 "
    "3}.waiting{fill:none;stroke:#b03a2e}.decision{stroke:#2e7d32}.mark{fill:#2e7d32}</style>";

int cw_sim_plot(const char *path, const struct cw_workload *w, const char *policy,
                const struct cw_sim_outcome *outcomes, struct cw_error *err)
{
    struct cw_text t = {0};
    double end = 0, height = TOP + STRIP * (double)w->n_jobs;
    for (size_t i = 0; i < w->n_jobs; i++)
        end = CW_MAX(end, outcomes[i].ended_s);
    cw_text_add(&t,
                "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' width='%.0f' "
                "height='%.0f'>%s<rect width='100%%' height='100%%' fill='white'/>\n",
                WIDTH, height, WIDTH, height, style);
    for (size_t i = 0; i < w->n_jobs; i++) {
        double top = TOP + STRIP * (double)i;
        cw_text_add(&t, "<text x='%.1f' y='%.1f' class='title'>", LEFT, top - 26);
        plot_add_text(&t, w->jobs[i].name);
        cw_text_add(&t, ": ");
        plot_add_text(&t, policy);
        cw_text_add(&t, ", %.5g s, cost %.5g</text>\n", outcomes[i].ended_s - outcomes[i].began_s,
                    outcomes[i].cost);
        plot_strip(&t, &w->jobs[i], &outcomes[i], top, end);
    }
    cw_text_add(&t, "</svg>\n");
    int r = t.failed ? cw_error_nomem(err, 0, "a picture") : cw_put(path, t.data, t.size, err);
    cw_text_deinit(&t);
    return r;
}
