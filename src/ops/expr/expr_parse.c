/* Parses text to a syntax tree, with Python's grammar for the parts that the language has, by precedence
 * climbing. Owns the nodes until cw_tree_deinit. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ops/expr/expr_impl.h"

#define MAX_HEIGHT \
    1000 /* levels of the tree, to bound the recursion of the functions that walk it; a sum of 1,000 terms \
            has this height */

static const char *const xop_names[CW_N_XOPS] = {
    [CW_X_ADD] = "+",
    [CW_X_SUB] = "-",
    [CW_X_MUL] = "*",
    [CW_X_DIV] = "/",
    [CW_X_FLOORDIV] = "//",
    [CW_X_MOD] = "%",
    [CW_X_POW] = "**",
    [CW_X_BITAND] = "&",
    [CW_X_BITOR] = "|",
    [CW_X_BITXOR] = "^",
    [CW_X_SHL] = "<<",
    [CW_X_SHR] = ">>",
    [CW_X_LT] = "<",
    [CW_X_LE] = "<=",
    [CW_X_GT] = ">",
    [CW_X_GE] = ">=",
    [CW_X_EQ] = "==",
    [CW_X_NE] = "!=",
    [CW_X_MIN] = "min",
    [CW_X_MAX] = "max",
    [CW_X_AND] = "and",
    [CW_X_OR] = "or",
    [CW_X_NEG] = "-",
    [CW_X_POS] = "+",
    [CW_X_INVERT] = "~",
    [CW_X_NOT] = "not",
    [CW_X_ABS] = "abs",
    [CW_X_ROUND] = "round",
    [CW_X_FLOOR] = "floor",
    [CW_X_CEIL] = "ceil",
    [CW_X_SQRT] = "sqrt",
    [CW_X_EXP] = "exp",
    [CW_X_LOG] = "log",
    [CW_X_WHERE] = "where",
    [CW_X_LENGTH] = "length",
    [CW_X_SUM] = "sum",
    [CW_X_MEAN] = "mean",
    [CW_X_ISIN] = "isin",
    [CW_X_ISNAN] = "isnan",
    [CW_X_HASH] = "hash",
    [CW_X_LOWER] = "lower",
    [CW_X_STRIP] = "strip",
    [CW_X_STARTSWITH] = "startswith",
    [CW_X_ENDSWITH] = "endswith",
    [CW_X_IN] = "in",
    [CW_X_NOT_IN] = "not in",
};

const char *cw_xop_name(enum cw_xop op)
{
    return xop_names[op] ? xop_names[op] : "?";
}

static const struct function {
    enum cw_xop op;
    unsigned min, max;
} functions[] = {
    {CW_X_ABS, 1, 1},        {CW_X_CEIL, 1, 1},   {CW_X_ENDSWITH, 2, 2}, {CW_X_EXP, 1, 1},
    {CW_X_FLOOR, 1, 1},      {CW_X_HASH, 1, 1},   {CW_X_ISIN, 2, 2},     {CW_X_ISNAN, 1, 1},
    {CW_X_LENGTH, 1, 1},     {CW_X_LOG, 1, 1},    {CW_X_LOWER, 1, 1},    {CW_X_MAX, 1, 1000},
    {CW_X_MEAN, 1, 1},       {CW_X_MIN, 1, 1000}, {CW_X_ROUND, 1, 1},    {CW_X_SQRT, 1, 1},
    {CW_X_STARTSWITH, 2, 2}, {CW_X_STRIP, 1, 1},  {CW_X_SUM, 1, 1},      {CW_X_WHERE, 3, 3},
};

/* Binary operators by precedence, loosest first; ** is handled by itself. */
enum {
    LEVEL_OR = 1,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_BITOR,
    LEVEL_BITXOR,
    LEVEL_BITAND,
    LEVEL_SHIFT,
    LEVEL_SUM,
    LEVEL_PRODUCT,
    LEVEL_SIGN,
    LEVEL_POWER
};

enum token_kind {
    TOKEN_END,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_STRING,
    TOKEN_NAME,
    TOKEN_QUOTED_NAME,
    TOKEN_OP,
    TOKEN_PUNCTUATION
};

struct token {
    enum token_kind kind;
    size_t at, length;
    cw_i128 integer;
    double real;
    enum cw_xop op;   /* for + and -: the binary operator */
    char punctuation; /* ( ) , [ ] : */
};

struct parser {
    struct cw_tree *tree;
    const char *text;
    struct token token; /* the next token */
    unsigned depth;
    struct cw_error *err;
};

int cw_tree_error(const struct cw_tree *t, size_t at, struct cw_error *err, const char *fmt, ...)
{
    char reason[400], before[44], after[44];
    CW_FORMAT(reason, fmt);
    size_t size = strnlen(t->text, CW_EXPR_MAX_TEXT), from = at > 30 ? at - 30 : 0;
    snprintf(before, sizeof(before), "%s%.*s", from ? "..." : "", (int)(at - from), t->text + from);
    snprintf(after, sizeof(after), "%.30s%s", t->text + at, size - at > 30 ? "..." : "");
    for (char *p = before; *p; p++)
        *p = iscntrl((unsigned char)*p) ? ' ' : *p;
    for (char *p = after; *p; p++)
        *p = iscntrl((unsigned char)*p) ? ' ' : *p;
    return cw_error_set(err, CW_E_PIPELINE, "%s (character %zu: %s>>>%s)", reason, at + 1, before, after);
}

#define FAIL(p, at, ...) cw_tree_error((p)->tree, at, (p)->err, __VA_ARGS__)

/* ---- tokens ---- */

static bool parse_name_start(char c)
{
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool parse_name_part(char c)
{
    return parse_name_start(c) || isdigit((unsigned char)c);
}

static int parse_digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads digits with single underscores between them. Returns the number of characters, 0 if there are none.
 */
static size_t lex_digits(const char *s, int base)
{
    size_t n = 0;
    while (parse_digit_value(s[n]) < base ||
           (s[n] == '_' && n > 0 && s[n - 1] != '_' && parse_digit_value(s[n + 1]) < base))
        n++;
    return n;
}

static int lex_integer(struct parser *p, struct token *t, const char *s, size_t n, int base)
{
    const cw_i128 limit = (cw_i128)1 << 120;
    t->kind = TOKEN_INT;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_')
            continue;
        t->integer = t->integer * base + parse_digit_value(s[i]);
        if (t->integer > limit)
            return FAIL(p, t->at, "this integer is too large: expected at most 120 bits");
    }
    return 0;
}

static int lex_number(struct parser *p, struct token *t)
{
    const char *s = p->text + t->at;
    int r = 0, base = s[0] != '0'            ? 10
                      : (s[1] | 0x20) == 'x' ? 16
                      : (s[1] | 0x20) == 'o' ? 8
                      : (s[1] | 0x20) == 'b' ? 2
                                             : 10;
    if (base != 10) {
        size_t skip = s[2] == '_' ? 3 : 2, n = lex_digits(s + skip, base);
        t->length = skip + n;
        if (n == 0)
            return FAIL(p, t->at, "expected digits after %.2s", s);
        r = lex_integer(p, t, s + skip, n, base);
    } else {
        size_t whole = lex_digits(s, 10), n = whole;
        if (s[n] == '.')
            n += 1 + lex_digits(s + n + 1, 10);
        if ((s[n] | 0x20) == 'e') {
            size_t sign = s[n + 1] == '+' || s[n + 1] == '-', digits = lex_digits(s + n + 1 + sign, 10);
            n += digits ? 1 + sign + digits : 0;
        }
        t->length = n;
        if (n > whole) {
            _cleanup_free_ char *clean = malloc(n + 1);
            char *c = clean;
            if (!clean)
                return cw_error_nomem(p->err, n, "an expression");
            for (size_t i = 0; i < n; i++)
                if (s[i] != '_')
                    *c++ = s[i];
            *c = 0;
            t->kind = TOKEN_FLOAT;
            t->real = strtod(clean, NULL);
            if (isinf(t->real))
                return FAIL(p, t->at, "this number is too large: expected less than 1.8e308");
        } else {
            if (s[0] == '0' && whole > 1 && strspn(s, "0_") < whole)
                return FAIL(p, t->at, "integers don't start with 0 (octal is 0o17)");
            r = lex_integer(p, t, s, whole, 10);
        }
    }
    if (r < 0)
        return r;
    if (parse_name_part(p->text[t->at + t->length]) || p->text[t->at + t->length] == '.')
        return FAIL(p, t->at + t->length, "expected an operator after the number");
    return 0;
}

static const enum cw_xop words[] = {CW_X_AND, CW_X_OR, CW_X_NOT, CW_X_IN};

/* Operators, longest first. */
static const struct {
    const char *text;
    enum cw_xop op;
} operators[] = {
    {"**", CW_X_POW},   {"//", CW_X_FLOORDIV}, {"<<", CW_X_SHL}, {">>", CW_X_SHR},   {"<=", CW_X_LE},
    {">=", CW_X_GE},    {"==", CW_X_EQ},       {"!=", CW_X_NE},  {"+", CW_X_ADD},    {"-", CW_X_SUB},
    {"*", CW_X_MUL},    {"/", CW_X_DIV},       {"%", CW_X_MOD},  {"&", CW_X_BITAND}, {"|", CW_X_BITOR},
    {"^", CW_X_BITXOR}, {"~", CW_X_INVERT},    {"<", CW_X_LT},   {">", CW_X_GT},
};

static bool parse_token_is(const struct parser *p, const char *word)
{
    const struct token *t = &p->token;
    return t->kind == TOKEN_NAME && strlen(word) == t->length &&
           memcmp(p->text + t->at, word, t->length) == 0;
}

/* Reads the next token. */
static int lex_next(struct parser *p)
{
    size_t at = p->token.at + p->token.length;
    while (p->text[at] == ' ' || p->text[at] == '\t' || p->text[at] == '\n' || p->text[at] == '\r')
        at++;
    const char *s = p->text + at;
    p->token = (struct token){.at = at};
    struct token *t = &p->token;
    if (*s == 0)
        return 0;
    if (isdigit((unsigned char)*s) || (*s == '.' && isdigit((unsigned char)s[1])))
        return lex_number(p, t);
    if (parse_name_start(*s)) {
        t->kind = TOKEN_NAME;
        while (parse_name_part(s[t->length]))
            t->length++;
        for (size_t i = 0; i < CW_COUNT_OF(words); i++)
            if (parse_token_is(p, xop_names[words[i]])) {
                t->kind = TOKEN_OP;
                t->op = words[i];
                break;
            }
        return 0;
    }
    if (*s == '`' || *s == '\'' || *s == '"') {
        const char *end = strchr(s + 1, *s);
        if (!end)
            return FAIL(p, at, "this %c is not closed", *s);
        t->kind = *s == '`' ? TOKEN_QUOTED_NAME : TOKEN_STRING;
        t->length = (size_t)(end - s) + 1;
        if (t->kind == TOKEN_QUOTED_NAME && t->length == 2)
            return FAIL(p, at, "expected a component's name between the backquotes");
        if (t->kind == TOKEN_STRING && memchr(s, '\\', t->length))
            return FAIL(p, at, "strings have no escapes: a backslash is not allowed");
        return 0;
    }
    for (size_t i = 0; i < CW_COUNT_OF(operators); i++)
        if (strncmp(s, operators[i].text, strlen(operators[i].text)) == 0) {
            t->kind = TOKEN_OP;
            t->length = strlen(operators[i].text);
            t->op = operators[i].op;
            return 0;
        }
    if (strchr("(),[]:", *s)) {
        t->kind = TOKEN_PUNCTUATION;
        t->length = 1;
        t->punctuation = *s;
        return 0;
    }
    const char *hint = *s == '=' ? "; equality is written ==" : *s == '!' ? "; negation is written not" : "";
    return FAIL(p, at, "unexpected character '%c'%s", isprint((unsigned char)*s) ? *s : '?', hint);
}

static bool parse_is_punctuation(const struct parser *p, char c)
{
    return p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == c;
}

static int parse_unexpected(struct parser *p, const char *expected)
{
    const struct token *t = &p->token;
    if (t->kind == TOKEN_END)
        return FAIL(p, t->at, "expected %s, but the expression ends", expected);
    return FAIL(p, t->at, "expected %s, found \"%.*s\"", expected, (int)CW_MIN(t->length, 40u),
                p->text + t->at);
}

/* ---- nodes ---- */

static struct cw_node *parse_node_new(struct parser *p, enum cw_node_kind kind, size_t at, const char *text,
                                      size_t length)
{
    struct cw_node *n = calloc(1, sizeof(*n) + length + 1);
    if (!n) {
        cw_error_nomem(p->err, sizeof(*n) + length + 1, "an expression");
        return NULL;
    }
    n->kind = kind;
    n->at = at;
    n->height = 1;
    n->length = length;
    if (length)
        memcpy(n->text, text, length);
    n->next_made = p->tree->made;
    p->tree->made = n;
    return n;
}

/* Appends an operand to a node; `last` is the operand before it, or NULL. */
static int parse_node_add(struct parser *p, struct cw_node *n, struct cw_node *last, struct cw_node *operand)
{
    if (last)
        last->sibling = operand;
    else
        n->first = operand;
    n->n_operands++;
    n->height = CW_MAX(n->height, operand->height + 1);
    if (n->height > MAX_HEIGHT)
        return FAIL(p, n->at,
                    "the expression is too deep: expected at most %d operations in a row; use parentheses",
                    MAX_HEIGHT);
    return 0;
}

/* Makes the node of an operator with one or two operands. */
static int parse_node_op(struct parser *p, enum cw_xop op, size_t at, struct cw_node *a, struct cw_node *b,
                         struct cw_node **ret)
{
    struct cw_node *n = parse_node_new(p, b ? CW_NODE_BINARY : CW_NODE_UNARY, at, NULL, 0);
    if (!n)
        return CW_E_MEMORY;
    n->op = op;
    *ret = n;
    int r = parse_node_add(p, n, NULL, a);
    return r < 0 || !b ? r : parse_node_add(p, n, a, b);
}

static int parse_level(struct parser *p, int level, struct cw_node **ret);

/* Parses an item of a list: an operand of n, after its operand `last`. Sets *last to it. */
typedef int (*parse_item)(struct parser *p, struct cw_node *n, struct cw_node **last);

/* Parses items with commas between them, from the opening bracket (the current token) past the closing one.
 */
static int parse_items(struct parser *p, struct cw_node *n, struct cw_node *last, char close, parse_item item)
{
    int r = lex_next(p);
    while (r == 0 && !parse_is_punctuation(p, close)) {
        if ((r = item(p, n, &last)) < 0)
            return r;
        if (parse_is_punctuation(p, ','))
            r = lex_next(p);
        else if (!parse_is_punctuation(p, close))
            return parse_unexpected(p, close == ')' ? "\",\" or \")\"" : "\",\" or \"]\"");
    }
    return r < 0 ? r : lex_next(p);
}

static int parse_list_item(struct parser *p, struct cw_node *n, struct cw_node **last)
{
    struct cw_node *value;
    int r = parse_level(p, LEVEL_OR, &value);
    if (r == 0)
        r = parse_node_add(p, n, *last, value);
    if (r == 0)
        *last = value;
    return r;
}

/* An argument of a function: an expression, or axis=expression. */
static int parse_argument(struct parser *p, struct cw_node *n, struct cw_node **last)
{
    const char *after = p->text + p->token.at + p->token.length;
    after += strspn(after, " \t\n\r");
    if (!parse_token_is(p, "axis") || after[0] != '=' || after[1] == '=')
        return parse_list_item(p, n, last);
    p->token.length = (size_t)(after + 1 - p->text) - p->token.at; /* past the = */
    int r = lex_next(p);
    return r < 0 ? r : parse_level(p, LEVEL_OR, &n->axis);
}

/* Parses a part of a slice, which may be left out, and the colon before it. */
static int parse_slice_part(struct parser *p, struct cw_node *slice, struct cw_node **last, bool colon)
{
    struct cw_node *part = NULL;
    bool written = !colon || parse_is_punctuation(p, ':');
    int r = colon && written ? lex_next(p) : 0;
    if (r < 0)
        return r;
    written &= !parse_is_punctuation(p, ':') && !parse_is_punctuation(p, ',') &&
               !parse_is_punctuation(p, ']');
    if (written)
        r = parse_level(p, LEVEL_OR, &part);
    else if (!(part = parse_node_new(p, CW_NODE_NONE, p->token.at, NULL, 0)))
        r = CW_E_MEMORY;
    if (r == 0)
        r = parse_node_add(p, slice, *last, part);
    *last = part;
    return r;
}

/* An item of x[...]: an index or a slice. */
static int parse_index_item(struct parser *p, struct cw_node *n, struct cw_node **last)
{
    struct cw_node *slice = parse_node_new(p, CW_NODE_SLICE, p->token.at, NULL, 0), *part = NULL;
    if (!slice)
        return CW_E_MEMORY;
    int r = parse_slice_part(p, slice, &part, false);
    struct cw_node *item = slice;
    if (r == 0 && part->kind != CW_NODE_NONE && !parse_is_punctuation(p, ':'))
        item = part;
    else if (r == 0 && !parse_is_punctuation(p, ':'))
        return parse_unexpected(p, "an index or a slice");
    for (int k = 1; r == 0 && item == slice && k < 3; k++)
        r = parse_slice_part(p, slice, &part, true);
    if (r == 0)
        r = parse_node_add(p, n, *last, item);
    *last = item;
    return r;
}

/* Parses x[...] after x, as often as there are brackets. */
static int parse_indexes(struct parser *p, struct cw_node **ret)
{
    int r = 0;
    while (r == 0 && parse_is_punctuation(p, '[')) {
        struct cw_node *n = parse_node_new(p, CW_NODE_INDEX, p->token.at, NULL, 0);
        if (!n)
            return CW_E_MEMORY;
        r = parse_node_add(p, n, NULL, *ret);
        if (r == 0)
            r = parse_items(p, n, *ret, ']', parse_index_item);
        if (r == 0 && n->n_operands == 1)
            return FAIL(p, n->at, "expected an index or a slice between the brackets");
        *ret = n;
    }
    return r;
}

static int parse_call(struct parser *p, const struct token *name, struct cw_node **ret)
{
    char word[64];
    enum cw_dtype dtype = CW_BOOL;
    const struct function *f = NULL;
    snprintf(word, sizeof(word), "%.*s", (int)CW_MIN(name->length, sizeof(word) - 1), p->text + name->at);
    bool cast = cw_dtype_parse(word, &dtype) == 0 && dtype != CW_BYTES;
    for (size_t i = 0; i < CW_COUNT_OF(functions); i++)
        if (strcmp(xop_names[functions[i].op], word) == 0)
            f = &functions[i];
    if (!f && !cast) {
        const char *names[CW_COUNT_OF(functions) + CW_N_DTYPES];
        size_t n = 0;
        for (size_t i = 0; i < CW_COUNT_OF(functions); i++)
            names[n++] = xop_names[functions[i].op];
        for (int i = 0; i < CW_BYTES; i++)
            names[n++] = cw_dtype_name((enum cw_dtype)i);
        const char *near = cw_nearest(word, names, n);
        char known[256];
        size_t used = 0;
        for (size_t i = 0; i < CW_COUNT_OF(functions) && used < sizeof(known); i++)
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s, ", names[i]);
        return FAIL(p, name->at, "there is no function \"%s\"%s%s%s; expected %sor a dtype", word,
                    near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", known);
    }
    struct cw_node *n = parse_node_new(p, cast ? CW_NODE_CAST : CW_NODE_CALL, name->at, word, strlen(word));
    if (!n)
        return CW_E_MEMORY;
    n->dtype = dtype;
    if (f)
        n->op = f->op;
    unsigned min = f ? f->min : 1, max = f ? f->max : 1;
    int r = parse_items(p, n, NULL, ')', parse_argument);
    if (r < 0)
        return r;
    bool reduces = f && (f->op == CW_X_MIN || f->op == CW_X_MAX || f->op == CW_X_SUM || f->op == CW_X_MEAN);
    if (n->axis && !(reduces && n->n_operands == 1))
        return FAIL(p, name->at, "axis= is for min, max, sum and mean of a single array");
    if (n->n_operands < min || n->n_operands > max)
        return FAIL(p, name->at, "%s has %u argument%s: expected %u%s", word, n->n_operands,
                    n->n_operands == 1 ? "" : "s", min, max > min ? " or more" : "");
    *ret = n;
    return 0;
}

static int parse_atom(struct parser *p, struct cw_node **ret)
{
    static const enum cw_node_kind kinds[] = {[TOKEN_INT] = CW_NODE_INT,
                                              [TOKEN_FLOAT] = CW_NODE_FLOAT,
                                              [TOKEN_STRING] = CW_NODE_STRING,
                                              [TOKEN_NAME] = CW_NODE_NAME,
                                              [TOKEN_QUOTED_NAME] = CW_NODE_NAME};
    const struct token t = p->token;
    const char *s = p->text + t.at;
    int r;
    if (parse_is_punctuation(p, '(')) {
        if ((r = lex_next(p)) < 0 || (r = parse_level(p, LEVEL_OR, ret)) < 0)
            return r;
        return parse_is_punctuation(p, ')') ? lex_next(p) : parse_unexpected(p, "an operator or \")\"");
    }
    if (parse_is_punctuation(p, '[')) {
        *ret = parse_node_new(p, CW_NODE_LIST, t.at, NULL, 0);
        return *ret ? parse_items(p, *ret, NULL, ']', parse_list_item) : CW_E_MEMORY;
    }
    if (t.kind == TOKEN_PUNCTUATION || t.kind == TOKEN_END || t.kind == TOKEN_OP)
        return parse_unexpected(p, "a value");
    bool is_true = parse_token_is(p, "True") || parse_token_is(p, "true");
    bool boolean = is_true || parse_token_is(p, "False") || parse_token_is(p, "false");
    bool name = t.kind == TOKEN_NAME && !boolean;
    size_t quote = t.kind == TOKEN_STRING || t.kind == TOKEN_QUOTED_NAME;
    if ((r = lex_next(p)) < 0)
        return r;
    if (name && parse_is_punctuation(p, '('))
        return parse_call(p, &t, ret);
    struct cw_node *n = parse_node_new(p, boolean ? CW_NODE_BOOL : kinds[t.kind], t.at, s + quote,
                                       name || quote ? t.length - 2 * quote : 0);
    if (!n)
        return CW_E_MEMORY;
    n->integer = boolean ? is_true : t.integer;
    n->real = t.real;
    *ret = n;
    return 0;
}

/* Parses signs, ~ and `not`, then a power, whose right side may have a sign. */
static int parse_unary(struct parser *p, int level, struct cw_node **ret)
{
    static const struct {
        enum cw_xop token, op;
        int level;
    } prefixes[] = {
        {CW_X_SUB, CW_X_NEG, LEVEL_SIGN},
        {CW_X_ADD, CW_X_POS, LEVEL_SIGN},
        {CW_X_INVERT, CW_X_INVERT, LEVEL_SIGN},
        {CW_X_NOT, CW_X_NOT, LEVEL_NOT},
    };
    struct token t = p->token;
    struct cw_node *operand;
    int r;
    for (size_t i = 0; t.kind == TOKEN_OP && i < CW_COUNT_OF(prefixes); i++) {
        if (t.op != prefixes[i].token)
            continue;
        if (level > prefixes[i].level && prefixes[i].level == LEVEL_NOT)
            return FAIL(p, t.at, "\"not\" needs parentheses here");
        if ((r = lex_next(p)) < 0 || (r = parse_level(p, prefixes[i].level, &operand)) < 0)
            return r;
        return parse_node_op(p, prefixes[i].op, t.at, operand, NULL, ret);
    }
    if ((r = parse_atom(p, ret)) < 0 || (r = parse_indexes(p, ret)) < 0)
        return r;
    t = p->token;
    if (t.kind != TOKEN_OP || t.op != CW_X_POW)
        return 0;
    if ((r = lex_next(p)) < 0 || (r = parse_level(p, LEVEL_SIGN, &operand)) < 0)
        return r;
    return parse_node_op(p, CW_X_POW, t.at, *ret, operand, ret);
}

static int parse_binary_level(const struct token *t)
{
    static const uint8_t levels[CW_N_XOPS] = {
        [CW_X_OR] = LEVEL_OR,         [CW_X_AND] = LEVEL_AND,       [CW_X_LT] = LEVEL_COMPARE,
        [CW_X_LE] = LEVEL_COMPARE,    [CW_X_GT] = LEVEL_COMPARE,    [CW_X_GE] = LEVEL_COMPARE,
        [CW_X_EQ] = LEVEL_COMPARE,    [CW_X_NE] = LEVEL_COMPARE,    [CW_X_BITOR] = LEVEL_BITOR,
        [CW_X_BITXOR] = LEVEL_BITXOR, [CW_X_BITAND] = LEVEL_BITAND, [CW_X_SHL] = LEVEL_SHIFT,
        [CW_X_SHR] = LEVEL_SHIFT,     [CW_X_ADD] = LEVEL_SUM,       [CW_X_SUB] = LEVEL_SUM,
        [CW_X_MUL] = LEVEL_PRODUCT,   [CW_X_DIV] = LEVEL_PRODUCT,   [CW_X_FLOORDIV] = LEVEL_PRODUCT,
        [CW_X_MOD] = LEVEL_PRODUCT,   [CW_X_IN] = LEVEL_COMPARE,    [CW_X_NOT] = LEVEL_COMPARE,
    };
    return t->kind == TOKEN_OP ? levels[t->op] : 0;
}

/* Reads a comparison operator, of which "not in" has two words. */
static int parse_comparison_op(struct parser *p, enum cw_xop *ret)
{
    *ret = p->token.op;
    int r = lex_next(p);
    if (r < 0 || *ret != CW_X_NOT)
        return r;
    *ret = CW_X_NOT_IN;
    bool in = p->token.kind == TOKEN_OP && p->token.op == CW_X_IN;
    return in ? lex_next(p) : parse_unexpected(p, "\"in\" after \"not\"");
}

/* Parses an operand, followed by binary operators of at least this level. */
static int parse_binary(struct parser *p, int level, struct cw_node **ret)
{
    struct cw_node *right, *n;
    int r = parse_unary(p, level, ret), l;
    while (r == 0 && (l = parse_binary_level(&p->token)) >= level && l > 0) {
        struct token t = p->token;
        if (l != LEVEL_COMPARE) {
            if ((r = lex_next(p)) < 0 || (r = parse_level(p, l + 1, &right)) < 0)
                return r;
            r = parse_node_op(p, t.op, t.at, *ret, right, ret);
            continue;
        }
        struct cw_node *last = *ret; /* a < b < c is one node */
        if (!(n = parse_node_new(p, CW_NODE_COMPARE, t.at, NULL, 0)))
            return CW_E_MEMORY;
        r = parse_node_add(p, n, NULL, last);
        for (; r == 0 && parse_binary_level(&p->token) == LEVEL_COMPARE; last = right) {
            enum cw_xop op;
            if ((r = parse_comparison_op(p, &op)) < 0 || (r = parse_level(p, LEVEL_BITOR, &right)) < 0)
                return r;
            right->before = op;
            r = parse_node_add(p, n, last, right);
        }
        *ret = n;
    }
    return r;
}

static int parse_level(struct parser *p, int level, struct cw_node **ret)
{
    if (p->depth == CW_EXPR_MAX_NESTING)
        return FAIL(p, p->token.at, "the expression is nested too deeply: expected at most %d levels",
                    CW_EXPR_MAX_NESTING);
    p->depth++;
    int r = parse_binary(p, level, ret);
    p->depth--;
    return r;
}

int cw_tree_parse(const char *text, struct cw_tree *ret, struct cw_error *err)
{
    *ret = (struct cw_tree){.text = text};
    if (strnlen(text, CW_EXPR_MAX_TEXT + 1) > CW_EXPR_MAX_TEXT)
        return cw_error_set(err, CW_E_PIPELINE, "the expression is too long: expected at most %zu bytes",
                            CW_EXPR_MAX_TEXT);
    struct parser p = {.tree = ret, .text = text, .err = err};
    int r = lex_next(&p);
    if (r == 0)
        r = parse_level(&p, LEVEL_OR, &ret->root);
    if (r == 0 && p.token.kind != TOKEN_END)
        r = parse_token_is(&p, "if") ? FAIL(&p, p.token.at, "there is no \"if\": use where(condition, a, b)")
                                     : parse_unexpected(&p, "an operator or the end");
    if (r < 0)
        cw_tree_deinit(ret);
    return r;
}

void cw_tree_deinit(struct cw_tree *t)
{
    while (t->made) {
        struct cw_node *next = t->made->next_made;
        free(t->made);
        t->made = next;
    }
    t->root = NULL;
}
