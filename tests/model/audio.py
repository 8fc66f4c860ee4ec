"""Operators on audio: decode_audio of WAV files, random_gain, random_noise, spec_augment, pad_or_trim. What
libsoxr and kissfft compute is compared elsewhere, with bounds: tests/python/test_audio.py.
"""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import numpy as np

from . import mathfn
from .dtypes import PlanError, RecordError, Type, Value, array, cast, storage
from .philox import Draw, integer, uniform

DRAWN = ("random_gain", "random_noise", "spec_augment")
ON_ONE = (*DRAWN, "pad_or_trim")
DAMAGE = ("cut", "garbage", "kind")


# ---- WAV files ----


def wav(rng: random.Random, damage: str | None) -> bytes:
    channels, frames = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 50, rng.randint(3, 300)])
    kind, bits = rng.choice([(1, 8), (1, 16), (1, 16), (1, 24), (1, 32), (3, 32)])
    rate = rng.choice([8000, 16000, 44100, 7])
    n = frames * channels
    if kind == 3:
        data = np.array([rng.uniform(-1.5, 1.5) for _ in range(n)], "<f4").tobytes()
    else:
        data = rng.randbytes(n * bits // 8)
    size = channels * bits // 8
    chunks = [(b"fmt ", struct.pack("<HHIIHH", kind, channels, rate, rate * size, size, bits))]
    if rng.random() < 0.3:
        chunks.append((b"odd ", b"abc"))
    chunks.append((b"data", data))
    body = b"".join(name + struct.pack("<I", len(c)) + c + b"\0" * (len(c) % 2) for name, c in chunks)
    whole = b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body
    if damage == "cut":
        return whole[: len(whole) - len(data) - len(data) % 2 + rng.randrange(len(data))]
    if damage == "garbage":
        return b"no audio" * rng.randint(1, 9)
    return b"XIFF" + whole[4:] if damage == "kind" else whole


def write(rng: random.Random, directory: Path, damaged: bool) -> None:
    """a/K.wav in the directory."""
    (directory / "a").mkdir(parents=True)
    for k in range(rng.randint(1, 20)):
        damage = rng.choice(DAMAGE) if damaged and (k == 0 or rng.random() < 0.1) else None
        (directory / "a" / f"{k:02d}.wav").write_bytes(wav(rng, damage))


def read(data: bytes) -> tuple[np.ndarray, int]:
    """float32 [n, channels] and the rate."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise RecordError("decode_audio: no WAV")
    at, form = 12, None
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        content = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = struct.unpack("<HHIIHH", content)
        if name == b"data":
            if len(content) < size or form is None:
                raise RecordError("decode_audio: cut off")
            kind, channels, rate, _, _, bits = form
            return samples(content, kind, bits).reshape(-1, channels), rate
        at += 8 + size + size % 2
    raise RecordError("decode_audio: no samples")


def samples(content: bytes, kind: int, bits: int) -> np.ndarray:
    if kind == 3:
        return np.frombuffer(content, "<f4")
    if bits == 8:
        numbers = np.frombuffer(content, np.uint8).astype(np.int64) - 128
    elif bits == 24:
        parts = np.frombuffer(content, np.uint8).reshape(-1, 3).astype(np.int64)
        numbers = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        numbers = np.where(numbers >= 1 << 23, numbers - (1 << 24), numbers)
    else:
        numbers = np.frombuffer(content, f"<i{bits // 8}")
    return numbers.astype(np.float32) / np.float32(2 ** (bits - 1))


# ---- operators ----


def number(types: dict[str, Type], name: str) -> Type:
    if name not in types:
        raise PlanError(f"no component {name}")
    return types[name]


def decode_audio(attrs: dict, types: dict[str, Type]):
    """The types of the outputs, and a function of a value that gives them."""
    name, rate_name = attrs["component"], attrs["sample_rate"]
    if number(types, name).dtype != "bytes" or rate_name == name:
        raise PlanError("decode_audio: no bytes")
    outputs = {name: Type("float32", (None,) if attrs["mono"] else (None, None))}
    if rate_name:
        outputs[rate_name] = Type("int32")

    def apply(value: Value, wanted: set[str]) -> dict[str, Value]:
        x, rate = read(bytes(value.data))
        n, channels = x.shape
        if name in wanted and n > attrs["max_samples"] // channels:
            raise RecordError("decode_audio: too many samples")
        if attrs["mono"] and channels > 1:
            total = x[:, 0]
            for c in range(1, channels):
                total = total + x[:, c]
            x = total / np.float32(channels)
        elif attrs["mono"]:
            x = x[:, 0]
        given = {name: Value("float32", x)}
        return given | ({rate_name: array("int32", rate)} if rate_name else {})

    return outputs, apply


def float_component(attrs: dict, types: dict[str, Type], least: int, most: int) -> Type:
    before = number(types, attrs["component"])
    if before.dtype != "float32" or before.dims is None or not least <= len(before.dims) <= most:
        raise PlanError("no audio")
    return before


def two(values) -> tuple[float, float]:
    values = values if isinstance(values, list) else [values, values]
    if values[0] > values[1]:
        raise PlanError("the larger number first")
    return float(values[0]), float(values[1])


def random_gain(attrs: dict, types: dict[str, Type]):
    before, (low, high) = float_component(attrs, types, 0, 6), two(attrs["db"])

    def apply(value: Value, draw: Draw) -> Value:
        gain = mathfn.exp((low + (high - low) * uniform(draw.word(0))) * (2.302585092994045684 / 20))
        with np.errstate(all="ignore"):
            return Value("float32", value.data * np.float32(gain))

    return before, apply


CENTRE = (
    [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457]
    + [13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
    [5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867]
    + [5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0],
)
TAIL = (
    [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258]
    + [3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
    [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459]
    + [0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0],
)


def horner(x: float, coefficients: list[float]) -> float:
    total = 0.0
    for c in coefficients:
        total = total * x + c
    return total


def normal(word: int) -> float:
    """The quantile of the standard normal distribution, algorithm AS 241."""
    p = ((word >> 8) + 0.5) * 2.0**-24
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * horner(r, CENTRE[0]) / horner(r, CENTRE[1])
    r = math.sqrt(-mathfn.log(min(p, 1 - p))) - 1.6
    return math.copysign(horner(r, TAIL[0]) / horner(r, TAIL[1]), q)


def random_noise(attrs: dict, types: dict[str, Type]):
    before, (low, high) = float_component(attrs, types, 0, 6), two(attrs["snr"])

    def apply(value: Value, draw: Draw) -> Value:
        flat = [float(x) for x in np.asarray(value.data).ravel()]
        power = 0.0
        for x in flat:
            power += x * x
        power = power / len(flat) if flat else 0.0
        snr = low + (high - low) * uniform(draw.word(0))
        deviation = math.sqrt(power) * mathfn.exp(-snr * (2.302585092994045684 / 20))
        noisy = [x + deviation * normal(draw.word(4 + i)) for i, x in enumerate(flat)]
        with np.errstate(all="ignore"):
            return Value("float32", np.array(noisy, np.float64).astype(np.float32).reshape(value.shape))

    return before, apply


def spec_augment(attrs: dict, types: dict[str, Type]):
    before = float_component(attrs, types, 2, 2)

    def apply(value: Value, draw: Draw) -> Value:
        data = value.data.copy()
        for k in range(attrs["freq_masks"] + attrs["time_masks"]):
            axis = int(k >= attrs["freq_masks"])
            most, n = attrs["time_mask" if axis else "freq_mask"], data.shape[axis]
            width = integer(draw.word(2 * k), min(most, n) + 1)
            begin = integer(draw.word(2 * k + 1), n - width + 1)
            where = (slice(None), slice(begin, begin + width))[:: 1 if axis else -1]
            data[where] = np.float32(attrs["value"])
        return Value("float32", data)

    return before, apply


def pad_or_trim(attrs: dict, types: dict[str, Type]):
    before, length = number(types, attrs["component"]), attrs["length"]
    if before.dtype == "bytes" or not before.dims:
        raise PlanError("pad_or_trim: no dimension")

    def apply(value: Value, _draw: Draw) -> Value:
        fill = cast(array("float64", float(attrs["value"])), before.dtype).data
        data = np.full((length, *value.shape[1:]), fill, storage(before.dtype))
        kept = min(length, value.shape[0])
        data[:kept] = value.data[:kept]
        return Value(value.dtype, data)

    return Type(before.dtype, (length, *before.dims[1:])), apply


OF = {
    "random_gain": random_gain,
    "random_noise": random_noise,
    "spec_augment": spec_augment,
    "pad_or_trim": pad_or_trim,
}


# ---- random attributes ----


def decoding(rng: random.Random) -> dict:
    given: dict = {"component": "data"}
    if rng.random() < 0.3:
        given["sample_rate"] = rng.choice(["", "hz"])
    if rng.random() < 0.1:
        given["max_samples"] = rng.randint(1, 300)
    return given


def of(rng: random.Random, kind: str, types: dict[str, Type]) -> dict | None:
    floats = [n for n, t in types.items() if t.dtype == "float32" and t.dims is not None]
    if kind == "pad_or_trim":
        fitting = [n for n, t in types.items() if t.dtype != "bytes" and t.dims]
        # an image without pixels fails in operators on images
        shortest = int(any(len(types[n].dims or ()) == 3 for n in fitting))
        given = {"length": rng.choice([shortest, 1, rng.randint(2, 40)])}
        given |= {"value": rng.choice([-1, 0.5, 300])} if rng.random() < 0.3 else {}
    elif kind == "spec_augment":
        fitting = [n for n in floats if len(types[n].dims or ()) == 2]
        given = {}
        for name, values in (
            ("freq_mask", [0, 3]),
            ("time_mask", [0, 2, 200]),
            ("freq_masks", [0, 2]),
            ("time_masks", [0, 3]),
            ("value", [-1.5]),
        ):
            given |= {name: rng.choice(values)} if rng.random() < 0.5 else {}
    else:
        fitting, name = floats, {"random_gain": "db", "random_noise": "snr"}[kind]
        given = {name: rng.choice([[-3, 20.5], [5, 5], 12])} if rng.random() < 0.6 else {}
    return {"component": rng.choice(fitting), **given} if fitting else None
