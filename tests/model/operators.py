"""Maps and filters, one element at a time; attribute defaults of every operator."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from . import components as element_components
from . import (
    annotations,
    audio,
    augment,
    colours,
    example,
    expressions,
    geometry,
    hosted,
    images,
    mixup,
    rows,
    text,
)
from .dtypes import FLOATS, INTEGERS, PlanError, RecordError, Type, Value, array, cast, float_value, to_numpy
from .pack import Pack
from .philox import Draw, philox, uniform

DEFAULTS: dict[str, dict] = {
    "tfrecord": {"compression": "auto", "verify": True},
    "image_folder": {},
    "files": {},
    "text": {"compression": "auto", "max_line": 1 << 26},
    "jsonl": {"compression": "auto", "max_line": 1 << 26},
    "csv": {
        "compression": "auto",
        "max_line": 1 << 26,
        "header": True,
        "types": {},
        "columns": [],
        "delimiter": ",",
    },
    "parquet": {"columns": [], "nulls": {}},
    "fixed_length": {"header_bytes": 0, "footer_bytes": 0},
    "arrow": {"columns": [], "nulls": {}},
    "tar": {"compression": "auto"},
    "materialized": {},
    "materialized_stream": {"wait": 600},
    "range": {"start": 0, "step": 1},
    "synthetic": {"shape": [], "dtype": "float32", "cost_us": 0, "fill": "random"},
    "parse_example": {"component": "record"},
    "decode_image": {
        "channels": 3,
        "dtype": "uint8",
        "orientation": True,
        "max_pixels": 1 << 28,
        "scale": "full",
    },
    "random_resized_crop": {
        "scale": [0.08, 1],
        "ratio": [0.75, 1.3333],
        "interpolation": "bilinear",
        "antialias": True,
    },
    "resize": {"interpolation": "bilinear", "antialias": True},
    "center_crop": {},
    "random_crop": {},
    "random_flip": {"horizontal": 0.5, "vertical": 0},
    "invert": {"p": 1},
    "posterize": {"p": 1},
    "solarize": {"p": 1},
    "equalize": {"p": 1},
    "autocontrast": {"p": 1},
    "adjust_sharpness": {"p": 1},
    "grayscale": {"num_output_channels": 1},
    "random_grayscale": {"p": 0.1},
    "rand_augment": {"num_ops": 2, "magnitude": 9, "num_magnitude_bins": 31},
    "trivial_augment": {},
    "auto_augment": {"policy": "imagenet"},
    "augmix": {"severity": 3, "mixture_width": 3, "chain_depth": -1, "alpha": 1.0, "all_ops": True},
    "color_jitter": {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0},
    "normalize": {"dtype": "float32"},
    "cast": {},
    "transpose_image": {"layout": "chw"},
    "assign": {},
    "filter": {},
    "select": {},
    "drop": {},
    "rename": {},
    "shuffle": {"by": "record", "window": 0, "reshuffle": True, "seed": -1},
    "batch": {"drop_remainder": False, "pad": {}},
    "bucket_by_length": {"drop_remainder": False, "pad": "longest", "group": 1, "remainder": "next"},
    "repeat": {},
    "take": {},
    "enumerate": {"name": "index", "start": 0},
    "skip": {},
    "concat": {},
    "tokenize": {"add_special_tokens": True, "truncation": []},
    "mix": {"stop": "first"},
    "interleave": {"block_length": 1},
    "decode_audio": {"mono": True, "sample_rate": "sample_rate", "max_samples": 1 << 28},
    "random_gain": {"db": [-6, 6]},
    "random_noise": {"snr": [10, 40]},
    "spec_augment": {"freq_mask": 27, "time_mask": 100, "freq_masks": 1, "time_masks": 1, "value": 0},
    "pad_or_trim": {"value": 0},
    "zip": {"stop": "first"},
    "delay": {"where": "true"},
    "fail": {"where": "true", "kind": "error"},
    "count": {},
    "autocache": {"freeze": False, "reuse": 0, "seed": -1},
    "cache": {"freeze": False, "reuse": 0, "seed": -1},
    "iterable": {},
    "map": {},
    "filter_function": {},
    "flat_map": {},
    "unbatch": {},
    "take_while": {},
    "resample": {},
    "group_by": {"drop_remainder": False, "pad": {}},
    "rebatch": {"drop_remainder": False, "pad": {}},
    "window": {"shift": 0, "stride": 1, "drop_remainder": True, "components": []},
    "pack": {"algorithm": "next", "bins": 16, "split": True, "separator": [], "pad": 0, "window": 1024},
    "map_batches": {},
    **element_components.DEFAULTS,
    **geometry.DEFAULTS,
    **mixup.DEFAULTS,
    "one_of": {"weights": []},
    "maybe": {},
    "sanitize_boxes": {"labels": [], "min_size": 1, "min_area": 1},
}
for _name in annotations.MOVING:
    DEFAULTS[_name] = DEFAULTS[_name] | annotations.NONE

Types = dict[str, Type]
Components = dict[str, Value]


@dataclass(eq=False)
class Bound:
    """An operator that has seen the types that arrive. `apply` maps components (or says what a filter or a
    length says).
    """

    types: Types
    apply: Callable[[Components, Draw | None], object]
    before: Types = field(default_factory=dict)  # the types that arrive
    rows: Callable[[list[list[int]]], list[Components]] | None = (
        None  # of `pack`: from the tokens of a window
    )


def need(types: Types, component: str) -> Type:
    if component not in types:
        raise PlanError(f"no component {component}")
    return types[component]


def on_component(types: Types, component: str, type_: Type, function) -> Bound:
    """Replaces one component; function(value, draw) gives the new value."""

    def apply(components: Components, draw: Draw) -> Components:
        return {**components, component: function(components[component], draw)}

    need(types, component)
    return Bound({**types, component: type_}, apply)


# ---- records ----


@dataclass
class Feature:
    key: bytes
    dtype: str
    shape: tuple[int, ...]
    variable: bool
    default: object

    def type(self) -> Type:
        if self.dtype == "bytes":
            return Type("bytes")
        return Type(self.dtype, (None, *self.shape) if self.variable else self.shape)

    def value(self, found: tuple[str, list] | None) -> Value:
        if found is None or not found[1] and not self.variable:
            if self.default is None and not self.variable:
                raise RecordError(f"feature {self.key!r} is missing")
            return self.of_default()
        kind, values = found
        if kind != self.dtype:
            raise RecordError(f"feature {self.key!r} holds {kind}, not {self.dtype}")
        size = math.prod(self.shape)
        if self.variable:
            if size == 0 or len(values) % size:
                raise RecordError(f"feature {self.key!r} has {len(values)} values, no multiple of {size}")
            shape = (len(values) // size, *self.shape)
        else:
            if len(values) != size:
                raise RecordError(f"feature {self.key!r} has {len(values)} values, not {size}")
            shape = self.shape
        if self.dtype == "bytes":
            return Value("bytes", values[0])
        return Value(self.dtype, array(self.dtype, values).data.reshape(shape))

    def of_default(self) -> Value:
        if self.dtype == "bytes":
            return Value("bytes", str(self.default).encode())
        if self.default is None:
            return array(self.dtype, np.zeros((0, *self.shape)))
        given = np.asarray(self.default)
        values = (
            float_value(self.dtype, given.astype(np.float64)).data
            if self.dtype in FLOATS
            else array(self.dtype, given).data
        )
        if self.variable:
            return Value(self.dtype, values.reshape(-1, *self.shape))
        shaped = (
            np.broadcast_to(values.reshape(()), self.shape)
            if values.size == 1
            else values.reshape(self.shape)
        )
        return Value(self.dtype, shaped)


def read_features(features: dict[str, str | dict]) -> dict[str, Feature]:
    """The attribute `features`."""
    read = {}
    for name, given in features.items():
        given = {"dtype": given} if isinstance(given, str) else given
        read[name] = Feature(
            given.get("key", name).encode(),
            given["dtype"],
            tuple(given.get("shape", ())),
            given.get("variable", False),
            given.get("default"),
        )
    return read


def parse_example(attrs: dict, types: Types) -> Bound:
    need(types, attrs["component"])
    features = read_features(attrs["features"])

    def apply(components: Components, _draw: Draw) -> Components:
        found = example.parse(components[attrs["component"]].data)
        return {name: feature.value(found.get(feature.key)) for name, feature in features.items()}

    return Bound({name: feature.type() for name, feature in features.items()}, apply)


# ---- images ----


def decode_image(attrs: dict, types: Types) -> Bound:
    """attrs["then"]: name and attributes of the operator that follows, if the image is reduced for it.

    Its draw is then this operator's, too.
    """

    def decode(value: Value, draw: Draw) -> Value:
        def reduced_by(height: int, width: int) -> int:
            name, then = attrs["then"]
            _y, _x, h, w = geometry.CUTS[name](then, height, width, draw)
            return max(
                by
                for by in (1, 2, 4, 8)
                if by == 1 or h >= by * then["size"][0] and w >= by * then["size"][1]
            )

        pixels = images.decode(
            value.data,
            attrs["channels"],
            attrs["dtype"],
            attrs["orientation"],
            attrs["max_pixels"],
            reduced_by if "then" in attrs else None,
        )
        return array(attrs["dtype"], pixels)

    type_ = Type(attrs["dtype"], (None, None, attrs["channels"] or None))
    return on_component(types, attrs["component"], type_, decode)


def sized(types: Types, attrs: dict) -> Type:
    """The component's type with its first two dimensions replaced by `size`."""
    before = need(types, attrs["component"])
    return Type(before.dtype, before.dims and (*attrs["size"], *before.dims[2:]))


def region(name: str):
    """An operator that cuts; resize and random_resized_crop also resize."""

    def bound(attrs: dict, types: Types) -> Bound:
        def apply(value: Value, draw: Draw) -> Value:
            if "resize" in name and 0 in value.shape[:2]:
                raise RecordError("an image without pixels")
            part = images.crop(value.data, *geometry.CUTS[name](attrs, *value.shape[:2], draw))
            if "resize" in name:
                part = images.resize(part, attrs["size"], attrs["interpolation"], attrs["antialias"])
            return Value(value.dtype, part)

        return on_component(types, attrs["component"], sized(types, attrs), apply)

    return bound


def random_flip(attrs: dict, types: Types) -> Bound:
    def apply(value: Value, draw: Draw) -> Value:
        data = value.data
        if uniform(draw.word(0)) < attrs["horizontal"]:
            data = data[:, ::-1]
        if uniform(draw.word(1)) < attrs["vertical"]:
            data = data[::-1]
        return Value(value.dtype, data)

    return on_component(types, attrs["component"], need(types, attrs["component"]), apply)


def normalize(attrs: dict, types: Types) -> Bound:
    mean, std = (np.atleast_1d(np.array(attrs[k], dtype=np.float32)) for k in ("mean", "std"))

    def apply(value: Value, _draw: Draw) -> Value:
        x = to_numpy(value).astype(np.float32)
        x = x[:, :, None] if value.data.ndim == 2 else x
        for per_channel in (mean, std):
            if len(per_channel) not in (1, x.shape[-1]):
                raise RecordError("normalize: another number of channels")
        with np.errstate(all="ignore"):
            return float_value(attrs["dtype"], ((x - mean) / std).reshape(value.shape))

    before = need(types, attrs["component"])
    return on_component(types, attrs["component"], Type(attrs["dtype"], before.dims), apply)


def transpose_image(attrs: dict, types: Types) -> Bound:
    axes = (2, 0, 1) if attrs["layout"] == "chw" else (1, 2, 0)
    before = need(types, attrs["component"])
    dims = before.dims and tuple(before.dims[a] for a in axes)
    return on_component(
        types,
        attrs["component"],
        Type(before.dtype, dims),
        lambda v, _: Value(v.dtype, v.data.transpose(axes)),
    )


def colour(change, *arguments: str, float_too: bool = True):
    """An operator that changes colours: change(image, *values of attributes) gives those of the elements
    that are drawn.
    """

    def bind_colour(attrs: dict, types: Types) -> Bound:
        before = colour_type(types, attrs["component"], float_too)

        def apply(value: Value, draw: Draw) -> Value:
            p = attrs.get("p", 1)
            if p < 1 and uniform(draw.word(0)) >= p:
                return value
            return changed(value, lambda x: change(x, *(attrs[name] for name in arguments)))

        return on_component(types, attrs["component"], before, checked(apply))

    return bind_colour


def colour_type(types: Types, component: str, float_too: bool) -> Type:
    before = need(types, component)
    channels = before.dims[2] if before.dims and len(before.dims) == 3 else 1
    if (
        before.dtype not in ("uint8", "float32")[: 1 + float_too]
        or not before.dims
        or len(before.dims) not in (2, 3)
        or channels not in (None, 1, 3)
    ):
        raise PlanError(f"{component} is no image of 1 or 3 channels")
    return before


def checked(apply):
    """apply, for images that have pixels and 1 or 3 channels."""

    def apply_checked(value: Value, draw: Draw) -> Value:
        if 0 in value.shape or len(value.shape) == 3 and value.shape[2] not in (1, 3):
            raise RecordError("an image without pixels, or without 1 or 3 channels")
        return apply(value, draw)

    return apply_checked


def changed(value: Value, change) -> Value:
    """The image after a change of [height, width, channels]."""
    x = value.data if value.data.ndim == 3 else value.data[:, :, None]
    with np.errstate(all="ignore"):
        result = change(x)
    if value.data.ndim == 2:
        result = result[:, :, 0]
    return float_value("float32", result) if value.dtype == "float32" else Value("uint8", result)


def grayscale(attrs: dict, types: Types) -> Bound:
    channels = attrs["num_output_channels"]
    before = colour_type(types, attrs["component"], True)
    if len(before.dims) != 3 or channels not in (1, 3):
        raise PlanError("grayscale: no channels")
    return on_component(
        types,
        attrs["component"],
        Type(before.dtype, (*before.dims[:2], channels)),
        checked(lambda value, _: changed(value, lambda x: colours.grayscale(x, channels))),
    )


def color_jitter(attrs: dict, types: Types) -> Bound:
    return on_component(
        types,
        attrs["component"],
        colour_type(types, attrs["component"], True),
        checked(lambda value, draw: changed(value, lambda x: colours.color_jitter(x, attrs, draw))),
    )


def policy(name: str):
    def bind_policy(attrs: dict, types: Types) -> Bound:
        if name == "rand_augment" and attrs["magnitude"] >= attrs["num_magnitude_bins"]:
            raise PlanError("rand_augment: no such magnitude")
        return on_component(
            types,
            attrs["component"],
            colour_type(types, attrs["component"], False),
            checked(lambda value, draw: changed(value, lambda x: augment.augment(name, x, attrs, draw))),
        )

    return bind_policy


# ---- components ----


def cast_component(attrs: dict, types: Types) -> Bound:
    before = need(types, attrs["component"])
    type_ = Type(attrs["dtype"], before.dims)
    return on_component(types, attrs["component"], type_, lambda value, _: cast(value, attrs["dtype"]))


def on_one_component(operator: type) -> Callable[[dict, Types], Bound]:
    def bound(attrs: dict, types: Types) -> Bound:
        compute = operator(attrs, types)
        return on_component(types, attrs["component"], compute.type, lambda value, _: compute(value))

    return bound


def join(stacks: bool) -> Callable[[dict, Types], Bound]:
    def bound(attrs: dict, types: Types) -> Bound:
        compute = element_components.Join(attrs, types, stacks)
        name, inputs = attrs["name"], attrs["components"]
        return Bound(
            {**types, name: compute.type}, lambda c, _: {**c, name: compute([c[other] for other in inputs])}
        )

    return bound


def assign(attrs: dict, types: Types) -> Bound:
    compiled = {name: expressions.Expression(str(text), types) for name, text in attrs["set"].items()}

    def apply(components: Components, _draw: Draw) -> Components:
        return {**components, **{name: e.evaluate(components) for name, e in compiled.items()}}

    return Bound({**types, **{name: e.type for name, e in compiled.items()}}, apply)


def select(attrs: dict, types: Types) -> Bound:
    names = [attrs["components"]] if isinstance(attrs["components"], str) else attrs["components"]
    return Bound(
        {n: need(types, n) for n in names},
        lambda components, _: {n: components[n] for n in names if n in components},
    )


def drop(attrs: dict, types: Types) -> Bound:
    names = [attrs["components"]] if isinstance(attrs["components"], str) else attrs["components"]
    kept = [n for n in types if n not in [need(types, n) and n for n in names]]
    return select({"components": kept}, types)


def rename(attrs: dict, types: Types) -> Bound:
    names = {old: new for old, new in attrs["names"].items() if need(types, old)}
    if len({names.get(name, name) for name in types}) < len(types):
        raise PlanError("rename: two components of one name")

    def renamed(components: dict) -> dict:
        return {names.get(name, name): value for name, value in components.items()}

    return Bound(renamed(types), lambda components, _: renamed(components))


def condition(text: str, types: Types) -> Callable[[Components], bool]:
    where = expressions.Expression(text, types)
    if where.type.dims != () or where.type.dtype == "bytes":
        raise PlanError("a condition must be a scalar")
    return lambda components: bool(where.truth(where.evaluate(components)))


def filter_(attrs: dict, types: Types) -> Bound:
    where = condition(attrs["where"], types)
    return Bound(types, lambda components, _: where(components))


def delay(attrs: dict, types: Types) -> Bound:
    """Waiting changes nothing, but the condition may fail."""
    where = condition(attrs["where"], types)

    def apply(components: Components, _draw: Draw) -> Components:
        where(components)
        return components

    return Bound(types, apply)


def fail(attrs: dict, types: Types) -> Bound:
    where = condition(attrs["where"], types)

    def apply(components: Components, _draw: Draw) -> Components:
        if where(components):
            raise RecordError(f"fail: {attrs['where']}")
        return components

    return Bound(types, apply)


def enumerate_(attrs: dict, types: Types) -> Bound:
    """`apply` gets the number in place of a draw."""
    name, start = attrs["name"], attrs["start"]
    return Bound(
        {**types, name: Type("int64", ())},
        lambda components, number: {**components, name: Value("int64", np.array(start + number, np.int64))},
    )


def integer_of(text: str, types: Types) -> Callable[[Components], int]:
    expression = expressions.Expression(text, types)
    if expression.type.dims != () or expression.type.dtype not in (*INTEGERS, "bool"):
        raise PlanError("a length or key must be an integer")
    return lambda components: cast(expression.evaluate(components), "int64").data.item()


def key_of_bucket_by_length(attrs: dict, types: Types) -> Bound:
    length = integer_of(attrs["length"], types)
    return Bound(types, lambda c, _: bisect_right(attrs["boundaries"], length(c)))


def key_of_group_by(attrs: dict, types: Types) -> Bound:
    key = integer_of(attrs["key"], types)

    def apply(components: Components, _draw: Draw) -> int:
        if not 0 <= key(components) < attrs["keys"]:
            raise RecordError("group_by: no such key")
        return key(components)

    return Bound(types, apply)


def resample(attrs: dict, types: Types) -> Bound:
    type_, target, initial = need(types, attrs["component"]), attrs["target"], attrs["initial"]
    if type_.dims != () or type_.dtype not in (*INTEGERS, "bool"):
        raise PlanError("resample: not one integer")
    if len(target) != len(initial) or not any(target) or any(t and not i for t, i in zip(target, initial)):
        raise PlanError("resample: shares")
    quotients = [t / i if t else 0 for t, i in zip(target, initial)]

    def apply(components: Components, draw: Draw) -> bool:
        k = int(components[attrs["component"]].data)
        if not 0 <= k < len(target):
            raise RecordError("resample: no such class")
        return uniform(draw.word(0)) < quotients[k] / max(quotients)

    return Bound(types, apply)


def identity(_attrs: dict, types: Types) -> Bound:
    return Bound(types, lambda components, _: components)


def pack(attrs: dict, types: Types) -> Bound:
    packs = Pack(attrs, types)
    return Bound(packs.types, lambda components, _: packs.check(components), rows=packs.rows)


def tokenize(attrs: dict, types: Types) -> Bound:
    need(types, attrs["component"])
    return on_component(types, attrs["component"], *text.tokenize(attrs, types))


def decode_audio(attrs: dict, types: Types, wanted: set[str] | None = None) -> Bound:
    """wanted: names of the outputs that a later operator or the batch reads; None: all."""
    outputs, decode = audio.decode_audio(attrs, types)

    def apply(components: Components, _draw: Draw) -> Components:
        given = decode(components[attrs["component"]], set(outputs) if wanted is None else wanted)
        return {**components, **given}

    return Bound({**types, **outputs}, apply)


def of_audio(name: str) -> Callable[[dict, Types], Bound]:
    return lambda attrs, types: on_component(types, attrs["component"], *audio.OF[name](attrs, types))


BINDERS = {
    "decode_audio": decode_audio,
    **{name: of_audio(name) for name in audio.OF},
    "pack": pack,
    "tokenize": tokenize,
    "parse_example": parse_example,
    "decode_image": decode_image,
    **{name: region(name) for name in geometry.CUTS},
    "random_flip": random_flip,
    "invert": colour(colours.invert),
    "posterize": colour(colours.posterize, "bits", float_too=False),
    "solarize": colour(colours.solarize, "threshold"),
    "equalize": colour(colours.equalize, float_too=False),
    "autocontrast": colour(colours.autocontrast),
    "adjust_sharpness": colour(colours.adjust_sharpness, "sharpness_factor"),
    "grayscale": grayscale,
    "random_grayscale": colour(colours.random_grayscale),
    "color_jitter": color_jitter,
    **{name: policy(name) for name in augment.NAMES},
    "normalize": normalize,
    "cast": cast_component,
    "transpose_image": transpose_image,
    **{name: on_one_component(operator) for name, operator in element_components.ON_ONE.items()},
    **{name: join(stacks) for name, stacks in element_components.JOINS.items()},
    "assign": assign,
    "filter": filter_,
    "select": select,
    "drop": drop,
    "rename": rename,
    "delay": delay,
    "enumerate": enumerate_,
    "fail": fail,
    "count": identity,
    "autocache": identity,
    "cache": identity,
    "key of bucket_by_length": key_of_bucket_by_length,
    "key of group_by": key_of_group_by,
    "take_while": filter_,
    "resample": resample,
    "map": lambda attrs, types: Bound(*hosted.map_(attrs, types)),
    "filter_function": lambda attrs, types: Bound(*hosted.filter_function(attrs, types)),
    "unbatch": lambda _, types: Bound(
        rows.unbatch_types(types), lambda components, _: rows.unbatch(components)
    ),
    "flat_map": lambda attrs, types: Bound(*hosted.flat_map(attrs, types)),
}


def of_component(make: Callable) -> Callable[[dict, Types], Bound]:
    """A binder from a function that maps attributes and a type to a type and a function of values."""

    def bound(attrs: dict, types: Types) -> Bound:
        return on_component(types, attrs["component"], *make(attrs, need(types, attrs["component"])))

    return bound


BINDERS |= {name: of_component(make) for name, make in geometry.OPERATORS.items()}


def lists_of(name: str, attrs: dict) -> list[list[dict]]:
    """The lists of operators of one_of and maybe."""
    return attrs["choices"] if name == "one_of" else [attrs["operators"], []]


def choice(name: str):
    """one_of and maybe: operator number k of all lists draws with the key that follows from k."""

    def bound(attrs: dict, types: Types) -> Bound:
        lists, k = [], 0
        for given in lists_of(name, attrs):
            now, nodes = types, []
            for node in given:
                operator = bind(node["op"], DEFAULTS[node["op"]] | node, now)
                nodes.append((k, operator))
                now, k = operator.types, k + 1
            lists.append((nodes, now))
        after = lists[0][1]
        for _, other in lists[1:]:
            if after.keys() != other.keys() or any(after[n].dtype != other[n].dtype for n in after):
                raise PlanError(f"{name}: other components")
            after = {n: merged(type_, other[n]) for n, type_ in after.items()}
        if name == "one_of":
            weights = attrs["weights"] or [1] * len(lists)
            shares = list(itertools.accumulate(float(w) for w in weights))
            bounds = [share / shares[-1] for share in shares]
        else:
            bounds = [attrs["p"], 1]

        def apply(components: Components, draw: Draw) -> Components:
            drawn = uniform(draw.word(0))
            chosen = next((i for i, bound in enumerate(bounds) if drawn < bound), len(bounds) - 1)
            for k, operator in lists[chosen][0]:
                words = philox(draw.key, (k, 0, 0, 1))
                components = operator.apply(components, Draw(words[0] | words[1] << 32, draw.element))
            return components

        return Bound(after, apply)

    return bound


def merged(a: Type, b: Type) -> Type:
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        return Type(a.dtype, None)
    return Type(a.dtype, tuple(m if m == n else None for m, n in zip(a.dims, b.dims)))


BINDERS |= {name: choice(name) for name in ("one_of", "maybe")}


def bind(name: str, attrs: dict, types: Types, wanted: set[str] | None = None) -> Bound:
    """wanted: of an operator with annotations, the components that are needed; None: all."""
    if name == "sanitize_boxes":
        return annotations.sanitize_boxes(attrs, types, Bound, wanted)
    if list(annotations.of(attrs)) and name in annotations.MOVING:
        return annotations.bind(name, attrs, types, BINDERS[name], Bound, wanted)
    return BINDERS[name](attrs, types)
