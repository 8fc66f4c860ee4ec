/* The time of a batch by the numbers of local and of other workers, for jobs that may have workers on their
 * training host: guesses through measured points. Local workers add capacity, and may slow down the input
 * (this file) and the client's step (host.h). Pure functions, called by plan.c and auto_belief.c. */
#pragma once
#include "policy/curve.h"

#define CW_SURFACE_GUESSES 12

/* A guess is s = ((a / capacity)^p + (b f)^p)^(1/p), or that with b alone, times f (whole). f is the factor
 * by which local workers slow the input down: 1 + slow (local - free), for more than `free` of them. Where
 * all workers slow each other down (drag), s = a / capacity + b capacity. */
enum cw_guess_kind { CW_GUESS_LIMIT, CW_GUESS_SLOWED, CW_GUESS_DRAG, CW_GUESS_KINDS };

struct cw_guess {
    double a, b, p, free, slow;
    enum cw_guess_kind kind; /* SLOWED: slow is more than 0 */
    bool whole;
    double weight; /* all weights together: 1 */
};

struct cw_surface {
    struct cw_guess guesses[CW_SURFACE_GUESSES]; /* the most likely ones */
    size_t n_guesses;
    struct cw_point points[CW_CURVE_POINTS]; /* s: here the logarithm of measured / guessed */
    size_t n;
};

/* Keeps the guesses of a kind. Returns their weight. */
double cw_surface_keep(struct cw_surface *s, enum cw_guess_kind kind);
/* Fits a surface. points: at least one; their `local` is used. */
void cw_surface_fit(const struct cw_point *points, size_t n, struct cw_surface *ret);
/* Returns the seconds per batch of a guess. */
double cw_guess_s(const struct cw_guess *guess, double capacity, double local);
/* Returns the factor that corrects all guesses near measured points. */
double cw_surface_left(const struct cw_surface *s, double capacity, double local);
