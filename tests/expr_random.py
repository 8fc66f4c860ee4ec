"""Random expressions as trees, and their text."""


class Generator:
    """dtypes: names of those that casts may give."""

    def __init__(self, rng, dtypes):
        self.rng = rng
        self.dtypes = dtypes

    def literal(self):
        r = self.rng
        k = r.random()
        if k < 0.45:
            v = r.choice([0, 1, 2, 3, 5, 7, 10, 16, 64, 100, 127, 128, 255, 256, 1000])
        elif k < 0.6:
            v = r.choice(
                [2**15, 2**16 - 1, 2**24 + 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**70]
            )
        elif k < 0.9:
            v = r.choice([0.0, 0.5, 1.5, 2.0, 2.5, 3.0, 0.1, 1e-3, 1e3, 1e10, 1e300, 0.25])
        else:
            return ("bool", r.random() < 0.5)
        return ("literal", v)

    def name(self, columns):
        return ("name", self.rng.choice(columns))

    def tree(self, depth, columns):
        r = self.rng
        if depth == 0 or r.random() < 0.12:
            return self.name(columns) if r.random() < 0.72 else self.literal()
        k = r.random()
        sub = lambda: self.tree(depth - 1, columns)
        if k < 0.42:
            return (
                "binary",
                r.choice(
                    ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "+", "*", "//", "%"]
                ),
                sub(),
                sub(),
            )
        if k < 0.54:
            return (
                "compare",
                [r.choice(["<", "<=", ">", ">=", "==", "!="]) for _ in range(1 if r.random() < 0.8 else 2)],
                [sub(), sub(), sub()],
            )
        if k < 0.60:
            return ("logical", r.choice(["and", "or"]), sub(), sub())
        if k < 0.68:
            return ("unary", r.choice(["-", "+", "~", "not"]), sub())
        if k < 0.78:
            return ("function", r.choice(["abs", "round", "floor", "ceil", "sqrt", "exp", "log"]), sub())
        if k < 0.84:
            return ("minmax", r.choice(["min", "max"]), [sub() for _ in range(r.choice([1, 2, 2, 3]))])
        if k < 0.90:
            return ("where", sub(), sub(), sub())
        if k < 0.91:
            return ("length", sub())
        if k < 0.93:
            return ("reduce", r.choice(["min", "max", "sum", "mean"]), r.choice([0, 1, -1, None]), sub())
        if k < 0.95:
            return ("index", sub(), [self.index(columns) for _ in range(r.choice([1, 1, 2]))])
        if k < 0.965:
            return self.on_words(columns, sub)
        return ("cast", r.choice(self.dtypes), sub())

    def index(self, columns):
        r = self.rng
        if r.random() < 0.4:
            return ("literal", r.choice([0, 1, 2, -1, -2, -3, 5]))
        if r.random() < 0.2:
            return self.name([n for n in columns if n[0] in "st"] or columns)
        return (
            "slice",
            *[r.choice([None, 0, 1, 2, -1, -2, 9]) for _ in range(2)],
            r.choice([None, 1, 2, -1]),
        )

    def word(self):
        """Bytes: a component, a string, or made of another one."""
        r = self.rng
        k = r.random()
        if k < 0.5:
            return ("name", r.choice(["b_word", "b_other"]))
        if k < 0.7:
            return ("string", r.choice(["cat", "", "a", "dog", "C", "  ", "r"]))
        if k < 0.85:
            return ("bytes", r.choice(["lower", "strip"]), [self.word()])
        return (
            "index",
            self.word(),
            [("slice", r.choice([None, 0, 1, -2]), r.choice([None, 1, 3, -1]), None)],
        )

    def on_words(self, columns, sub):
        r = self.rng
        k = r.random()
        if k < 0.2:
            return ("hash", self.word() if r.random() < 0.6 else sub())
        if k < 0.3:
            return ("isnan", sub())
        if k < 0.5:
            values = [self.literal() for _ in range(r.choice([0, 1, 3]))]
            return ("isin", self.name(columns), values)
        if k < 0.6:
            return ("isin", self.word(), [self.word() for _ in range(r.choice([1, 3]))])
        if k < 0.7:
            return ("length", self.word())
        if k < 0.8:
            return ("length", ("where", sub(), self.word(), self.word()))
        return ("bytes", r.choice(["startswith", "endswith", "in", "not in"]), [self.word(), self.word()])


def text(t):
    k = t[0]
    if k == "literal":
        return repr(t[1])
    if k == "bool":
        return str(t[1])
    if k == "name":
        return t[1]
    if k in ("binary", "logical"):
        return f"({text(t[2])} {t[1]} {text(t[3])})"
    if k == "compare":
        s = text(t[2][0])
        for op, v in zip(t[1], t[2][1:]):
            s += f" {op} {text(v)}"
        return f"({s})"
    if k == "unary":
        return f"({t[1]} {text(t[2])})"
    if k in ("function", "cast"):
        return f"{t[1]}({text(t[2])})"
    if k == "minmax":
        return f"{t[1]}({', '.join(map(text, t[2]))})"
    if k == "where":
        return f"where({text(t[1])}, {text(t[2])}, {text(t[3])})"
    if k == "string":
        return repr(t[1])
    if k == "reduce":
        return f"{t[1]}({text(t[3])}{'' if t[2] is None else f', axis={t[2]}'})"
    if k == "index":
        return f"({text(t[1])})[{', '.join(map(text, t[2]))}]"
    if k == "slice":
        start, stop, step = ("" if x is None else x for x in t[1:])
        return f"{start}:{stop}" + (f":{step}" if t[3] is not None else "")
    if k == "bytes" and t[1] in ("in", "not in"):
        return f"({text(t[2][0])} {t[1]} {text(t[2][1])})"
    if k == "bytes":
        return f"{t[1]}({', '.join(map(text, t[2]))})"
    if k == "isin":
        return f"isin({text(t[1])}, [{', '.join(map(text, t[2]))}])"
    if k in ("hash", "isnan"):
        return f"{k}({text(t[1])})"
    return f"length({text(t[1])})"
