"""What users of other libraries type: it works, or the error says what to write."""

import threading

import numpy as np
import pytest
from function_runs import values

import cachew
from cachew import Dataset

NUMBERS = Dataset.range(20)
BATCHES = NUMBERS.batch(4)
IMAGES = Dataset.synthetic(count=4, shape=(8, 10, 3), dtype="uint8")
OUTPUTS = {"value": "int64"}


def same(element):
    return element


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: NUMBERS.prefetch(2), "leave it out: batches are computed in advance"),
        (lambda: Dataset.from_generator(same), "Dataset.iterable"),
        (lambda: Dataset.from_tensor_slices({}), "Dataset.arrays"),
        (lambda: NUMBERS.from_generator(same), "Dataset.iterable"),
        (lambda: NUMBERS.zip(NUMBERS), r"Dataset.zip\(\[ds, other\]\)"),
        (lambda: NUMBERS.concatenate(NUMBERS), r"Dataset.concat\(\[ds, other\]\)"),
        (lambda: NUMBERS.interleave(same), r"Dataset.interleave\(\[ds, other\]\)"),
        (lambda: BATCHES.numpy(), "batches have NumPy arrays"),
        (lambda: BATCHES.as_numpy_iterator(), r"ds.iterator\(\)"),
        (lambda: NUMBERS.padded_batch(4), "bucket_by_length"),
        (lambda: Dataset.arays({}), "did you mean arrays"),
        (lambda: NUMBERS.bacth(4), "did you mean batch"),
    ],
)
def test_methods(call, instead):
    with pytest.raises(AttributeError, match=instead):
        call()


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: NUMBERS.batch(4, drop_last=True), "drop_remainder=True"),
        (lambda: NUMBERS.batch(batch_size=4), r"batch\(n\)"),
        (lambda: NUMBERS.shuffle(buffer_size=9), r"shuffle\(\) permutes all elements"),
        (lambda: NUMBERS.map(same, num_parallel_calls=4), "threads=n"),
        (lambda: NUMBERS.iterator(num_workers=2), "threads=n"),
        (lambda: NUMBERS.map(same, batched=True), "map_batches"),
        (lambda: BATCHES.iterator(collate_fn=list), "map_batches"),
        (lambda: NUMBERS.map(lambda x, y: x), r"<lambda> takes \(x, y\): expected one parameter, a dict"),
        (lambda: NUMBERS.filter(lambda: True), r"<lambda> takes \(\): expected one parameter, a dict"),
        (lambda: Dataset.iterable(same), r"same takes \(element\): expected no parameter"),
        (lambda: NUMBERS.repeat(), r"lacks count; repeat\(-1\)"),
    ],
)
def test_arguments(call, instead):
    with pytest.raises(TypeError, match=instead):
        call()


def test_every_name_is_one_that_cachew_does_not_have():
    from cachew import _foreign

    assert not [name for name in _foreign.METHODS if name in dir(Dataset) or name in dir(NUMBERS)]


def test_a_buffer_for_shuffle():
    with pytest.raises(cachew.PipelineError, match=r"shuffle\(\) permutes all elements"):
        NUMBERS.shuffle(1000)


def test_torch_loaders():
    pytest.importorskip("torch")
    from cachew.torch import loader

    for name in ("num_workers", "collate_fn", "shuffle", "batch_size", "drop_last"):
        with pytest.raises(TypeError, match=rf"loader\(\) has no argument {name}: (write|leave)"):
            loader(BATCHES, **{name: 1})


def test_dtypes_of_other_libraries():
    assert NUMBERS.cast("value", np.float32) == NUMBERS.cast("value", "float32")
    with pytest.raises(cachew.PipelineError, match='dtype is "float": expected .*float32, float64'):
        NUMBERS.cast("value", "float")
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.bool):
        assert NUMBERS.cast("value", dtype) == NUMBERS.cast("value", str(dtype).removeprefix("torch."))
    assert NUMBERS.map(same, outputs={"value": torch.int64}).schema["value"].dtype == "int64"
    with pytest.raises(cachew.PipelineError, match='dtype is "complex64"'):
        NUMBERS.cast("value", torch.complex64)


def test_dtypes_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    for dtype in (jnp.float32, jnp.bfloat16, jnp.dtype("int8")):
        assert NUMBERS.cast("value", dtype) == NUMBERS.cast("value", np.dtype(dtype).name)


def test_one_number_is_a_square():
    for method in ("resize", "center_crop", "random_crop", "random_resized_crop"):
        one, two = getattr(IMAGES, method)("data", 6), getattr(IMAGES, method)("data", (6, 6))
        assert one.schema == two.schema and one.schema["data"].shape == (6, 6, 3)
        assert one.peek()["data"].tobytes() == two.peek()["data"].tobytes()
    with pytest.raises(cachew.PipelineError, match="size is 0"):
        IMAGES.resize("data", 0)


def test_one_number_is_the_mean_of_all_channels():
    expected = (IMAGES.peek()["data"].astype("float32") - np.float32(100)) / np.float32(50)
    for mean, std in ((100, 50), ([100, 100, 100], 50), (100, [50, 50, 50])):
        assert (IMAGES.normalize("data", mean=mean, std=std).peek()["data"] == expected).all()
    with pytest.raises(cachew.PipelineError, match="expected 3 values"):
        IMAGES.normalize("data", mean=100, std=[50, 50])
    with pytest.raises(cachew.PipelineError, match="expected 3 values"):
        IMAGES.normalize("data", mean=[100], std=50)


def test_a_captured_lock_and_what_works(tmp_path, monkeypatch):
    lock = threading.Lock()

    def locked(element):
        with lock:
            return element

    for version in (None, "1"):
        with pytest.raises(cachew.PipelineError, match="can't be sent .*or in a module that the function"):
            NUMBERS.map(locked, outputs=OUTPUTS, version=version)

    code = ("import threading", "lock = threading.Lock()", "def of_module(element):", "    with lock:")
    (tmp_path / "module_with_lock.py").write_text("\n".join((*code, "        return element", "")))
    monkeypatch.syspath_prepend(tmp_path)

    def imports(element):
        import module_with_lock

        with module_with_lock.lock:
            return element

    assert values(NUMBERS.map(imports, outputs=OUTPUTS)) == list(range(20))

    import module_with_lock

    of_module = module_with_lock.of_module
    with pytest.raises(cachew.PipelineError, match="give version="):  # it can be sent, but has no hash
        NUMBERS.map(of_module, outputs=OUTPUTS)
    assert values(NUMBERS.map(of_module, outputs=OUTPUTS, version="1")) == list(range(20))
