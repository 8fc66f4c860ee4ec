"""materialized: directories with a manifest, whose shards hold elements in one of three formats; and a writer
of small random ones.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path

import numpy as np

from . import datasets, example, sources, tar
from .dtypes import DTYPES, FLOATS, RecordError, Type, Value, array, cast, float_value, storage, to_numpy
from .sources import Record, Source

FORMATS = ("cachew", "tfrecord", "tar")


def read_array(type_: Type, shape: tuple[int, ...], data: bytes) -> Value:
    return Value(type_.dtype, np.frombuffer(data, storage(type_.dtype)).reshape(shape))


def from_cachew(types: dict[str, Type], data: bytes) -> dict[str, Value]:
    found, stream = {}, io.BytesIO(data)

    def number() -> int:
        return int.from_bytes(stream.read(8), "little")

    for name, type_ in types.items():
        if type_.dtype == "bytes":
            found[name] = Value("bytes", stream.read(number()))
            continue
        shape = type_.dims
        if not type_.fixed():
            rank = number() if shape is None else len(shape)
            shape = tuple(number() for _ in range(rank))
        size = int(np.prod(shape, dtype=object)) * storage(type_.dtype).itemsize
        found[name] = read_array(type_, shape, stream.read(size))
    if stream.read(1):
        raise RecordError("bytes behind the last component")
    return found


def from_example(types: dict[str, Type], data: bytes) -> dict[str, Value]:
    features, found = example.parse(data), {}
    for name, type_ in types.items():
        kind, values = features[name.encode()]
        if type_.dtype == "bytes":
            found[name] = Value("bytes", values[0])
            continue
        shape = type_.dims if type_.fixed() else tuple(features[f"{name}/shape".encode()][1])
        assert kind == ("float32" if type_.dtype in FLOATS else "int64")
        if type_.dtype in FLOATS:
            value = float_value(type_.dtype, np.array(values, np.float32))
        else:
            value = cast(array("int64", values), type_.dtype)
        found[name] = Value(type_.dtype, np.asarray(value.data).reshape(shape))
    return found


def from_tar(types: dict[str, Type], sample: tar.Sample) -> dict[str, Value]:
    files, found = dict(sample.files), {}
    for name, type_ in types.items():
        if type_.dtype == "bytes":
            found[name] = Value("bytes", files[name])
        else:
            read = np.load(io.BytesIO(files[f"{name}.npy"]))
            found[name] = Value(type_.dtype, read.view(storage(type_.dtype)))
    return found


class Materialized(Source):
    def __init__(self, attrs: dict, base: Path):
        root = Path(base, attrs["path"])
        manifest = json.loads((root / "manifest.json").read_text())
        self.format = manifest["format"]
        self.types = {
            c["name"]: Type(c["dtype"], None if c["shape"] is None else tuple(c["shape"]))
            for c in manifest["components"]
        }
        files = {"files": [], "verify": True, "compression": "none", "components": {}}
        reader = tar.Tar(files, base) if self.format == "tar" else sources.TFRecord(files, base)
        for shard in manifest["shards"]:
            before = len(reader.records)
            reader.add_file(shard["name"], (root / shard["name"]).read_bytes(), "none")
            assert len(reader.records) - before == shard["elements"]
        self.records, self.chunk_lengths = reader.records, reader.chunk_lengths

    def element(self, record: Record) -> dict[str, Value]:
        if self.format == "tar":
            found = from_tar(self.types, record.content)
        else:
            found = (from_cachew if self.format == "cachew" else from_example)(self.types, record.content[0])
        return {name: value for name, value in found.items() if name in self.needed}


class MaterializedStream(Materialized):
    """Of complete data: the same elements, one after the other."""

    random_access = False
    stream = True

    def __init__(self, attrs: dict, base: Path):
        super().__init__(attrs, base)
        self.broken = None
        self.chunk_lengths = [len(self.records)]


# ---- writing ----


def random_types(rng: random.Random) -> dict[str, Type]:
    """A name may stand for several shapes: those of the types that vary."""
    dtypes = [d for d in DTYPES if d != "float64"]
    found = {}
    for name in sorted(rng.sample(["a", "b", "m", "x_1"], rng.randint(1, 4))):
        dtype = rng.choice(dtypes)
        shape = rng.choice([(), (), (3,), (None,), (2, None), (0, 2), None])
        found[name] = Type(dtype, () if dtype == "bytes" else shape)
    return found


def random_value(rng: random.Random, type_: Type) -> Value:
    if type_.dtype == "bytes":
        return Value("bytes", bytes(rng.choices(b"abc \xff\0", k=rng.randint(0, 6))))
    dims = type_.dims if type_.dims is not None else (None,) * rng.randint(0, 3)
    shape = [rng.randint(0, 3) if d is None else d for d in dims]
    n = int(np.prod(shape, dtype=object))
    values = np.array([rng.choice([0, 1, rng.randint(-(2**40), 2**40)]) for _ in range(n)], np.int64)
    value = cast(array("int64", values), type_.dtype)
    return Value(type_.dtype, np.asarray(value.data).reshape(shape))


def to_cachew(types: dict[str, Type], element: dict[str, Value]) -> bytes:
    out = b""
    for name, type_ in types.items():
        value = element[name]
        if type_.dtype == "bytes":
            out += len(value.data).to_bytes(8, "little")
        elif not type_.fixed():
            numbers = value.shape if type_.dims is not None else (len(value.shape), *value.shape)
            out += b"".join(n.to_bytes(8, "little") for n in numbers)
        out += value.raw()
    return out


def to_example(types: dict[str, Type], element: dict[str, Value]) -> bytes:
    features: dict[str, tuple[str, list]] = {}
    for name, type_ in types.items():
        value = element[name]
        if type_.dtype == "bytes":
            features[name] = ("bytes", [value.data])
            continue
        kind = "float32" if type_.dtype in FLOATS else "int64"
        features[name] = (kind, [v.item() for v in to_numpy(value).reshape(-1)])
        if not type_.fixed():
            features[f"{name}/shape"] = ("int64", list(value.shape))
    return example.write(features)


def to_tar(archive: tarfile.TarFile, number: int, element: dict[str, Value]) -> None:
    for name, value in element.items():
        file, data = name, value.data
        if value.dtype != "bytes":
            held = io.BytesIO()
            np.save(held, value.data.view("V2") if value.dtype == "bfloat16" else value.data)
            file, data = f"{name}.npy", held.getvalue()
        member = tarfile.TarInfo(f"{number:06}.{file}")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


def write(rng: random.Random, root: Path, types: dict[str, Type]) -> None:
    """A directory as the command writes it."""
    root.mkdir(parents=True)
    form, number, shards = rng.choice(FORMATS), 0, []
    for k in range(rng.choice([0, 1, 2, 3])):
        elements = [
            {name: random_value(rng, t) for name, t in types.items()} for _ in range(rng.randint(1, 25))
        ]
        path = root / f"shard-{k:06}.{form}"
        if form == "tar":
            with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
                for i, element in enumerate(elements):
                    to_tar(archive, number + i, element)
        else:
            encode = to_cachew if form == "cachew" else to_example
            path.write_bytes(datasets.tfrecord_bytes([encode(types, e) for e in elements]))
        number += len(elements)
        shards.append({"name": path.name, "elements": len(elements), "bytes": path.stat().st_size})
    manifest = {
        "materialized": 1,
        "format": form,
        "components": [
            {"name": name, "dtype": t.dtype, "shape": None if t.dims is None else list(t.dims)}
            for name, t in types.items()
        ],
        "shards": [{**s, "checksum": "0" * 32} for s in shards],
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
