/*
 * exp, log, pow, sin and cos that give the same bits on every machine: only + - * / in double precision and
 * integer operations on the bits, no fused multiply-add (the build says -ffp-contract=off), no tables,
 * nothing from libm. Within 1 ulp of the exact result. Special cases are those of C's Annex F; no flags, no
 * errno. docs/expressions.md gives the algorithms step by step.
 */
#pragma once

double cw_exp(double x);
double cw_log(double x);
double cw_pow(double x, double y);
/* Of an angle in radians; NaN beyond |x| = 2^20. */
double cw_sin(double x);
double cw_cos(double x);
