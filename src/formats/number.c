/* Converts decimal text and numbers to values of a dtype. Pure functions. */
#include "formats/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/macro.h"
#include "data/convert.h"

const char *cw_number_why(enum cw_number n)
{
    static const char *const texts[] = {"is a number", "is no number", "is out of range",
                                        "is not an integer"};
    return texts[n];
}

/* Stores a magnitude with a sign as a value of an integer dtype or bool. */
static enum cw_number number_store_integer(bool negative, uint64_t magnitude, enum cw_dtype dtype, void *out)
{
    size_t size = cw_dtype_size(dtype);
    uint64_t most = dtype == CW_BOOL ? 1 : UINT64_MAX >> (64 - 8 * size + cw_dtype_is_signed(dtype));
    uint64_t limit = !negative ? most : cw_dtype_is_signed(dtype) ? most + 1 : 0;
    if (magnitude > limit)
        return CW_NUMBER_RANGE;
    uint64_t value = negative ? 0 - magnitude : magnitude;
    memcpy(out, &value, size); /* the low bytes come first: little-endian */
    return CW_NUMBER_OK;
}

static enum cw_number number_store_float(double v, enum cw_dtype dtype, void *out)
{
    double stored;
    cw_convert(CW_FLOAT64, dtype, out, &v, 1);
    cw_convert(dtype, CW_FLOAT64, &stored, out, 1);
    return isinf(stored) && !isinf(v) ? CW_NUMBER_RANGE : CW_NUMBER_OK;
}

enum cw_number cw_number_from_int(int64_t v, enum cw_dtype dtype, void *out)
{
    if (cw_dtype_is_float(dtype))
        return number_store_float((double)v, dtype, out);
    return number_store_integer(v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, dtype, out);
}

enum cw_number cw_number_from_double(double v, enum cw_dtype dtype, void *out)
{
    if (cw_dtype_is_float(dtype))
        return number_store_float(v, dtype, out);
    if (isnan(v) || fabs(v) > 0x1p53)
        return CW_NUMBER_RANGE;
    if (v != floor(v))
        return CW_NUMBER_FRACTION;
    return number_store_integer(v < 0, (uint64_t)fabs(v), dtype, out);
}

static locale_t c_locale;

static void number_make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Parses with the C library, in the "C" locale, so that the program's locale does not matter. glibc's "C"
 * locale is static: making it can't fail. */
static enum cw_number number_parse_slowly(const char *text, size_t size, double *ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char copy[CW_NUMBER_MAX + 1], *end;
    if (size > CW_NUMBER_MAX)
        return CW_NUMBER_SYNTAX;
    pthread_once(&once, number_make_locale);
    memcpy(copy, text, size);
    copy[size] = 0;
    *ret = strtod_l(copy, &end, c_locale);
    if (end != copy + size)
        return CW_NUMBER_SYNTAX;
    return isinf(*ret) ? CW_NUMBER_RANGE : CW_NUMBER_OK;
}

struct decimal {            /* digits times 10^exponent */
    bool negative, integer; /* integer: written without point and exponent */
    bool exact;             /* all digits are in `digits` */
    uint64_t digits;
    int exponent;
};

/* Reads digits into *d. Returns their number. */
static size_t number_take_digits(const char **p, const char *end, struct decimal *d, bool fraction)
{
    const char *start = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        if (d->digits > (UINT64_MAX - (uint64_t)(**p - '0')) / 10)
            d->exact = false;
        d->digits = d->exact ? d->digits * 10 + (uint64_t)(**p - '0') : d->digits;
        d->exponent -= fraction;
    }
    return (size_t)(*p - start);
}

static bool number_split(const char *p, const char *end, struct decimal *d)
{
    *d = (struct decimal){.negative = p < end && *p == '-', .integer = true, .exact = true};
    p += p < end && (*p == '-' || *p == '+');
    size_t n = number_take_digits(&p, end, d, false);
    if (p < end && *p == '.') {
        p++;
        d->integer = false;
        n += number_take_digits(&p, end, d, true);
    }
    if (n > 0 && p < end && (*p == 'e' || *p == 'E')) {
        bool negative = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        int e = 0;
        for (n = 0; p < end && *p >= '0' && *p <= '9'; p++, n++)
            e = CW_MIN(e * 10 + (*p - '0'), 1000000);
        d->exponent += negative ? -e : e;
        d->integer = false;
    }
    return n > 0 && p == end;
}

static bool number_parse_word(const char *text, size_t size, double *ret)
{
    static const struct {
        const char *text;
        double value;
    } words[] = {
        {"NaN", NAN},
        {"nan", NAN},
        {"Infinity", INFINITY},
        {"inf", INFINITY},
    };

    bool negative = size && *text == '-', sign = size && (*text == '-' || *text == '+');
    for (size_t i = 0; i < CW_COUNT_OF(words); i++)
        if (size - sign == strlen(words[i].text) && memcmp(text + sign, words[i].text, size - sign) == 0) {
            *ret = negative && isinf(words[i].value) ? -INFINITY : words[i].value;
            return true;
        }
    return false;
}

enum cw_number cw_number_parse(const char *text, size_t size, enum cw_dtype dtype, void *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal d;
    double v;
    if (size > CW_NUMBER_MAX)
        return CW_NUMBER_SYNTAX;
    if (!number_split(text, text + size, &d))
        return number_parse_word(text, size, &v) ? cw_number_from_double(v, dtype, out) : CW_NUMBER_SYNTAX;
    if (d.integer && !cw_dtype_is_float(dtype))
        return d.exact ? number_store_integer(d.negative, d.digits, dtype, out) : CW_NUMBER_RANGE;
    if (d.exact && d.digits <= (UINT64_C(1) << 53) && d.exponent >= -22 && d.exponent <= 22) {
        /* both operands are exact, so the result is rounded only once */
        v = d.exponent < 0 ? (double)d.digits / powers[-d.exponent] : (double)d.digits * powers[d.exponent];
        v = d.negative ? -v : v;
    } else {
        enum cw_number r = number_parse_slowly(text, size, &v);
        if (r != CW_NUMBER_OK)
            return r;
    }
    return cw_number_from_double(v, dtype, out);
}
