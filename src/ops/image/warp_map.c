/* The maps of warps: rotations as Pillow computes them, affine maps and perspectives as torchvision does. */
#include <math.h>

#include "base/math.h"
#include "ops/image/warp.h"

#define DEGREE 0x1.1df46a2529d39p-6 /* pi / 180 */

static bool map_odd(double k)
{
    return k * 0.5 != floor(k * 0.5);
}

/* Returns x rounded to 15 digits after the point, as Python's round(x, 15), for |x| <= 1: the nearest
 * multiple of 10^-15, the even one of two, from the exact product of x and 10^15. */
static double map_round15(double x)
{
    const double unit = 1e15, c = 0x1.0000002p+27, uc = c * unit, uh = uc - (uc - unit), ul = unit - uh;
    double p = x * unit, xc = c * x, xh = xc - (xc - x), xl = x - xh;
    double rest = ((xh * uh - p) + xh * ul + xl * uh) + xl * ul; /* Dekker: x * unit is p + rest */
    double k = rint(p), d = p - k;
    if (d - 0.5 + rest > 0 || (d == 0.5 && rest == 0 && map_odd(k)))
        k += 1;
    else if (d + 0.5 + rest < 0 || (d == -0.5 && rest == 0 && map_odd(k)))
        k -= 1;
    return k / unit;
}

/* Makes the linear part m0, m1, m3, m4 of the map one around a centre, with a translation before it. */
static void map_centre(struct cw_warp *p, const double centre[2], double tx, double ty)
{
    double *m = p->m, x = centre ? centre[0] : (double)p->w * 0.5,
           y = centre ? centre[1] : (double)p->h * 0.5;
    m[2] = m[0] * (-x - tx) + m[1] * (-y - ty) + x;
    m[5] = m[3] * (-x - tx) + m[4] * (-y - ty) + y;
}

/* Makes the result as large as the whole rotated image. quarter: the angle is 90 or 270 degrees, and the
 * centre is the middle: width and height change places. */
static void map_expand(struct cw_warp *p, bool quarter)
{
    double *m = p->m, lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
    for (int k = 0; k < 4; k++) {
        double x = k & 1 ? (double)p->w : 0, y = k & 2 ? (double)p->h : 0;
        double at[2] = {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
        for (int i = 0; i < 2; i++) {
            lo[i] = fmin(lo[i], at[i]);
            hi[i] = fmax(hi[i], at[i]);
        }
    }
    p->out_w = quarter ? p->h : (int64_t)(ceil(hi[0]) - floor(lo[0]));
    p->out_h = quarter ? p->w : (int64_t)(ceil(hi[1]) - floor(lo[1]));
    double x = -(double)(p->out_w - p->w) / 2.0, y = -(double)(p->out_h - p->h) / 2.0;
    double m2 = m[0] * x + m[1] * y + m[2];
    m[5] = m[3] * x + m[4] * y + m[5];
    m[2] = m2;
}

void cw_warp_rotate(struct cw_warp *p, double angle, const double centre[2], bool expand)
{
    angle -= 360.0 * floor(angle / 360.0); /* Python's angle % 360.0 */
    angle = angle < 0 ? angle + 360.0 : angle;
    double c = map_round15(cw_cos(angle * DEGREE)), s = -map_round15(cw_sin(angle * DEGREE));
    p->perspective = false;
    p->m[0] = c;
    p->m[1] = s;
    p->m[3] = -s;
    p->m[4] = c;
    map_centre(p, centre, 0, 0);
    p->out_h = p->h;
    p->out_w = p->w;
    if (expand)
        map_expand(p, !centre && (angle == 90 || angle == 270));
}

void cw_warp_affine(struct cw_warp *p, double angle, const double translate[2], double scale,
                    const double shear[2], const double centre[2])
{
    double turn = angle * DEGREE, sx = shear[0] * DEGREE, sy = shear[1] * DEGREE;
    double c = cw_cos(turn - sy), s = cw_sin(turn - sy), tx = cw_sin(sx) / cw_cos(sx), cy = cw_cos(sy);
    double m[4] = {c / cy, -c * tx / cy - cw_sin(turn), s / cy, -s * tx / cy + cw_cos(turn)};
    p->perspective = false;
    p->m[0] = m[3] / scale;
    p->m[1] = -m[1] / scale;
    p->m[3] = -m[2] / scale;
    p->m[4] = m[0] / scale;
    map_centre(p, centre, translate[0], translate[1]);
    p->out_h = p->h;
    p->out_w = p->w;
}

/* Solves a system of 8 linear equations, rows of 8 coefficients and a right side, by Gaussian elimination
 * with pivots: the largest of a column, the first of several. The solution is in the right sides. false: a
 * pivot is 0. */
static bool map_solve(double a[8][9])
{
    for (int k = 0; k < 8; k++) {
        int pivot = k;
        for (int i = k + 1; i < 8; i++)
            if (fabs(a[i][k]) > fabs(a[pivot][k]))
                pivot = i;
        if (a[pivot][k] == 0)
            return false;
        for (int j = 0; j < 9; j++) {
            double t = a[k][j];
            a[k][j] = a[pivot][j];
            a[pivot][j] = t;
        }
        for (int i = k + 1; i < 8; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = k + 1; j < 9; j++)
                a[i][j] -= f * a[k][j];
        }
    }
    for (int k = 7; k >= 0; k--) {
        for (int j = k + 1; j < 8; j++)
            a[k][8] -= a[k][j] * a[j][8];
        a[k][8] /= a[k][k];
    }
    return true;
}

bool cw_warp_perspective(struct cw_warp *p, const double corners[4][2])
{
    double a[8][9], right = (double)(p->w - 1), bottom = (double)(p->h - 1);
    for (int k = 0; k < 4; k++) {
        double x = corners[k][0], y = corners[k][1], to_x = k == 1 || k == 2 ? right : 0,
               to_y = k >= 2 ? bottom : 0;
        const double row_x[9] = {x, y, 1, 0, 0, 0, -to_x * x, -to_x * y, to_x};
        const double row_y[9] = {0, 0, 0, x, y, 1, -to_y * x, -to_y * y, to_y};
        for (int j = 0; j < 9; j++) {
            a[2 * k][j] = row_x[j];
            a[2 * k + 1][j] = row_y[j];
        }
    }
    if (!map_solve(a))
        return false;
    p->perspective = true;
    for (int k = 0; k < 8; k++)
        p->m[k] = (double)(float)a[k][8];
    p->out_h = p->h;
    p->out_w = p->w;
    return true;
}
