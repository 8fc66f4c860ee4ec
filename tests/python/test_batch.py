"""Batches: arrays over the engine's memory, byte strings, other dtypes, DLPack, Arrow, copies."""

import ctypes
import gc
import pickle
import sys

import cachew
import numpy as np
import pyarrow as pa
import pytest
from cachew import Bytes, Dataset

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
]


def address(array):
    return array.__array_interface__["data"][0]


def record_batch(batch):
    return pa.record_batch(batch.arrow())


def words(tmp_path, n=5):
    for i in range(n):
        (tmp_path / f"{i}.bin").write_bytes(bytes([65 + i]) * i)
    return Dataset.files(tmp_path / "*.bin")


def test_place_and_records():
    batches = list(Dataset.range(10).repeat(2).batch(8))
    b = batches[1]
    assert (b.epoch, b.g, b.flags, b.n_records, b.is_padding) == (0, 1, 0, 8, False)
    assert [r.split(":")[1] for r in b.records] == ["8.0", "9.0", *(f"{i}.1" for i in range(6))]
    assert b.record_flags == [0] * 8 and repr(b) == "<Batch 1 of epoch 0: value: int64[8]>"


def test_arrays_lie_in_the_slab():
    """Without a copy: components at multiples of 64 bytes of one mapping of the engine's."""
    batch = (
        Dataset.synthetic(64, shape=(32, 32, 3), dtype="uint8")
        .assign(m="float32(max(data))")
        .batch(32)
        .peek()
    )
    spans = []
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            span = tuple(int(x, 16) for x in words[0].split("-"))
        elif words[0] == "VmFlags:" and "dc" in words:  # not copied by a fork: memory of slabs
            spans.append(span)
    for array in batch.values():
        assert (
            address(array) % 64 == 0
            and array.flags.c_contiguous
            and array.flags.writeable
            and not array.flags.owndata
        )
        assert any(a <= address(array) and address(array) + array.nbytes <= b for a, b in spans)
    values = batch["data"].copy()
    ctypes.memset(address(batch["data"]), 7, 10)
    assert (batch["data"].ravel()[:10] == 7).all() and (
        batch["data"].ravel()[10:] == values.ravel()[10:]
    ).all()


def test_any_array_keeps_the_slab():
    it = Dataset.range(100).assign(x="value + 1").batch(10).iterator()
    batch = next(it)
    views = [batch["x"], batch["value"][3:4], memoryview(batch["x"]), batch["x"].reshape(2, 5).T]
    del batch
    gc.collect()
    while views:
        assert it._core.held() == 1
        views.pop()
    assert it._core.held() == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    batch = Dataset.range(6).cast("value", dtype).batch(6).peek()
    if dtype == "bfloat16":
        import ml_dtypes

        assert batch["value"].dtype == ml_dtypes.bfloat16
        dtype = ml_dtypes.bfloat16
    np.testing.assert_array_equal(batch["value"], np.arange(6).astype(dtype))


def test_bfloat16_without_ml_dtypes_is_its_bits(script):
    ran = script("""
import sys
sys.modules["ml_dtypes"] = None
import cachew
b = cachew.Dataset.range(3).cast("value", "bfloat16").batch(3).peek()
print(b["value"].dtype, [hex(v) for v in b["value"]])
""")
    assert ran.stdout.strip() == "uint16 ['0x0', '0x3f80', '0x4000']", ran.stderr


def test_bytes_as_texts():
    b = Dataset.arrays({"name": ["Z\u00fcrich", "", "a"]}).batch(3).peek()["name"]
    assert b.decode() == ["Z\u00fcrich", "", "a"] and b[1:].decode("ascii") == ["", "a"]
    with pytest.raises(UnicodeDecodeError):
        b.decode("ascii")
    assert b.decode("ascii", errors="ignore")[0] == "Zrich"


def test_bytes(tmp_path):
    b = words(tmp_path).batch(5).peek()["data"]
    want = [bytes([65 + i]) * i for i in range(5)]
    assert (
        isinstance(b, Bytes) and len(b) == 5 and b.tolist() == want and list(b.offsets) == [0, 0, 1, 3, 6, 10]
    )
    assert bytes(b.data) == b"".join(want) and [bytes(x) for x in b] == want
    assert b.decode() == [w.decode() for w in want]
    assert isinstance(b[3], memoryview) and b[3] == want[3] and b[-1] == want[4] and b[np.int64(2)] == want[2]
    assert (
        b[1:3].tolist() == want[1:3]
        and b[3:1].tolist() == []
        and b[:].tolist() == want
        and b[2:][1:].tolist() == want[3:]
    )
    assert b == want and b != want[:4] and b == b[:] and b != 3
    for i in (5, -6):
        with pytest.raises(IndexError):
            b[i]
    with pytest.raises(ValueError, match="step"):
        b[::2]
    b[4][0] = 0x7A
    assert bytes(b[4]) == b"zEEE"
    assert repr(b[:2]) == "<2 byte strings: b'', b'B'>"
    assert pickle.loads(pickle.dumps(b[3:])).tolist() == [b"DDD", b"zEEE"]
    with pytest.raises(TypeError):
        hash(b)


def test_bytes_keep_the_slab(tmp_path):
    it = words(tmp_path).batch(5).iterator()
    view = next(it)["data"][2]
    gc.collect()
    assert it._core.held() == 1 and view == b"CC"
    del view
    assert it._core.held() == 0


def test_elements_have_no_batch_dimension(tmp_path):
    e = words(tmp_path).assign(n="length(data)").skip(2).peek()
    assert isinstance(e["data"], memoryview) and e["data"] == b"CC" and e["n"].shape == () and e["n"] == 2
    assert Dataset.synthetic(3, shape=(2, 3)).peek()["data"].shape == (2, 3)


def test_empty_batches_and_components(tmp_path):
    (tmp_path / "e.bin").write_bytes(b"")
    batch = Dataset.files(tmp_path / "e.bin").batch(4).peek()
    assert batch["data"].tolist() == [b""] and len(batch["data"].data) == 0
    nothing = Dataset.range(3).assign(x="1 // (value - value)").on_error("skip").batch(3).peek()
    assert nothing["x"].shape == (0,) and nothing.records == [] and nothing.n_records == 0
    assert record_batch(nothing).num_rows == 0


def test_copies(tmp_path):
    batch = words(tmp_path).assign(n="length(data)").batch(5).peek()
    copy = pickle.loads(pickle.dumps(batch))
    assert (copy.g, copy.records, copy.n_records, copy["data"].tolist()) == (
        batch.g,
        batch.records,
        5,
        batch["data"].tolist(),
    )
    assert np.array_equal(copy["n"], batch["n"]) and address(copy["n"]) != address(batch["n"])
    with pytest.raises(cachew.UsageError, match="copy"):
        copy.hash()


# ---- Arrow ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrow_scalars(dtype):
    batch = Dataset.range(20).cast("value", dtype).batch(13).peek()
    column = record_batch(batch).column("value")
    want = batch["value"].view("uint16") if dtype == "bfloat16" else batch["value"]
    assert column.type == pa.from_numpy_dtype(want.dtype)
    np.testing.assert_array_equal(column.to_numpy(zero_copy_only=False), want)
    if dtype != "bool":
        assert column.buffers()[1].address == address(batch["value"])


def test_arrow_shapes():
    batch = (
        Dataset.synthetic(8, shape=(2, 3), dtype="int16")
        .assign(row="data * 2", flag="data > 0")
        .batch(5)
        .peek()
    )
    flat = Dataset.synthetic(8, shape=(4,), dtype="float32").batch(5).peek()
    columns = record_batch(batch)
    assert columns.column("data").type == pa.fixed_shape_tensor(pa.int16(), (2, 3))
    np.testing.assert_array_equal(columns.column("data").to_numpy_ndarray(), batch["data"])
    assert columns.column("data").storage.flatten().buffers()[1].address == address(batch["data"])
    assert [v for row in columns.column("flag").storage.to_pylist() for v in row] == list(
        batch["flag"].ravel()
    )
    assert record_batch(flat).column("data").type == pa.list_(
        pa.field("item", pa.float32(), nullable=False), 4
    )
    np.testing.assert_array_equal(
        np.array(record_batch(flat).column("data").to_pylist(), np.float32), flat["data"]
    )


def test_arrow_bytes_and_elements(tmp_path):
    ds = words(tmp_path).assign(n="length(data)")
    batch, element = ds.batch(5).peek(), ds.skip(3).peek()
    column = record_batch(batch).column("data")
    assert column.type == pa.large_binary() and column.to_pylist() == batch["data"].tolist()
    assert column.buffers()[2].address == address(batch["data"].data)
    assert record_batch(element).to_pylist() == [{"data": b"DDD", "n": 3, "path": bytes(element["path"])}]
    shaped = record_batch(Dataset.synthetic(3, shape=(2, 2)).peek())
    assert shaped.num_rows == 1 and shaped.column("data").type.shape == [2, 2]


def test_arrow_keeps_the_slab_and_gives_it_back():
    it = Dataset.synthetic(100, shape=(2,)).assign(b="data > 0.5").batch(10).iterator()
    columns = record_batch(next(it))
    column = columns.column("data")
    want = column.to_pylist()
    del columns
    gc.collect()
    assert it._core.held() == 1
    for _ in range(5):
        next(it)
    assert column.to_pylist() == want
    del column
    assert it._core.held() == 0
    capsules = next(it).__arrow_c_array__()  # that nobody imports
    assert it._core.held() == 1
    del capsules
    assert it._core.held() == 0


def test_arrow_released_on_another_thread():
    import threading

    it = Dataset.range(100).batch(10).iterator()
    held = [record_batch(next(it))]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert it._core.held() == 0


def test_arrow_takes_a_batch_as_it_is():
    batch = Dataset.range(5).batch(5).peek()
    assert pa.array(batch).to_pylist() == [{"value": i} for i in range(5)]


# ---- DLPack ----


def test_dlpack():
    batch = Dataset.synthetic(10, shape=(3, 2)).batch(10).peek()
    again = np.from_dlpack(batch["data"])
    assert address(again) == address(batch["data"])
    before = sys.getrefcount(batch["data"])
    del again
    after = sys.getrefcount(batch["data"])
    assert after == before - 1
