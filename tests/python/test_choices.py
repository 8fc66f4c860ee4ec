"""one_of and maybe: which list an element goes through, what the lists may do, errors."""

import numpy as np
import pytest

import cachew
from cachew import Dataset

N = 4000
NUMBERS = Dataset.arrays({"x": np.zeros(N, np.int64), "id": np.arange(N)})


def values(dataset, name="x", **options):
    return np.concatenate([batch[name] for batch in dataset.batch(128).iterator(seed=3, **options)])


def counts(dataset):
    return np.bincount(values(dataset)).tolist()


@pytest.mark.parametrize("weights", [[], [1, 2, 1], [0, 5, 0.5]])
def test_lists_are_chosen_in_proportion_to_weights(weights):
    choices = [lambda ds, k=k: ds.assign(x=f"x + {k}") for k in range(3)]
    found = counts(NUMBERS.one_of(choices, weights=weights))
    shares = np.array(weights or [1, 1, 1]) / sum(weights or [1, 1, 1])
    found = np.array(found + [0] * (3 - len(found)))
    # five standard deviations; the seed is fixed
    assert (np.abs(found - N * shares) <= 5 * np.sqrt(N * shares * (1 - shares))).all()
    assert (found[shares == 0] == 0).all()


@pytest.mark.parametrize("p", [0, 0.25, 1])
def test_maybe(p):
    dataset = NUMBERS.maybe(p, lambda ds: ds.assign(x="x + 1"))
    n = int(values(dataset).sum())
    assert abs(n - N * p) <= 5 * np.sqrt(N * p * (1 - p))


def test_choices_are_independent():
    """Of each other, of those of the next epoch, and of other operators inside."""
    dataset = NUMBERS
    for bit in (1, 2, 4):
        dataset = dataset.maybe(0.5, lambda ds, bit=bit: ds.assign(x=f"x + {bit}"))
    nested = NUMBERS.maybe(0.5, lambda ds: ds.assign(x="x + 4").one_of(
        [lambda ds: ds.assign(x="x + 1"), lambda ds: ds.maybe(0.5, lambda ds: ds.assign(x="x + 2"))]
    ))  # fmt: skip
    assert all(abs(n - N / 8) < 5 * np.sqrt(N / 8) for n in counts(dataset))
    assert [abs(n - share * N) < 5 * np.sqrt(N / 8) for n, share in
            zip(counts(nested), [0.5, 0, 0, 0, 0.125, 0.25, 0.125])] == [True] * 7  # fmt: skip
    first, second = np.split(
        np.concatenate([b["x"] for b in dataset.batch(128).iterator(seed=3, epochs=2)]), 2
    )
    assert abs(int((first == second).sum()) - N / 8) < 5 * np.sqrt(N / 8)


def test_images_of_different_sizes_and_draws():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 20, 24, 3), dtype=np.uint8)
    dataset = Dataset.arrays({"image": images, "boxes": np.full((60, 1, 4), [2, 3, 9, 10], np.float32)})
    mixed = dataset.one_of(
        [
            lambda ds: ds.random_crop("image", (8, 9), boxes="boxes"),
            lambda ds: ds.random_flip("image", boxes="boxes").invert("image"),
            lambda ds: ds,
        ]
    )
    assert mixed.schema["image"] == cachew.Field("uint8", (None, None, 3))
    elements = [dict(e) for e in mixed.iterator(seed=1)]
    again = [dict(e) for e in mixed.iterator(seed=1, optimize=False, threads=3)]
    flips = [(255 - image)[:, ::-1] for image in images], [255 - image for image in images]
    seen = set()
    for i, (a, b) in enumerate(zip(elements, again)):
        assert (a["image"] == b["image"]).all()
        assert (a["boxes"] == b["boxes"]).all()
        if a["image"].shape == (8, 9, 3):
            seen.add("crop")
        else:
            kinds = [images[i], flips[0][i], flips[1][i]]
            seen.add(next(k for k, image in enumerate(kinds) if (image == a["image"]).all()))
    assert seen == {"crop", 0, 1, 2}


def test_a_component_that_moves_or_goes():
    dataset = NUMBERS.assign(y="id").one_of(
        [
            lambda ds: ds.drop("x").rename({"y": "x"}),
            lambda ds: ds.assign(x="-id").drop("y"),
        ]
    )
    assert list(dataset.schema) == ["id", "x"]
    x, ids = values(dataset), values(dataset, "id")
    assert (np.abs(x) == ids).all()
    assert 0.4 * N < (x >= 0).sum() < 0.6 * N


def test_only_what_is_chosen_can_fail():
    dataset = NUMBERS.maybe(
        0.5, lambda ds: ds.assign(x="id + 1").one_hot("x", 9, dtype="int64").assign(x="sum(x)")
    )
    kept = dataset.on_error("skip")
    x = values(kept)
    assert 0.4 * N < len(x) < 0.6 * N  # the others have no such class
    with pytest.raises(cachew.RecordError) as caught:
        list(dataset.batch(8).iterator(seed=3))
    assert 'one_hot: "x" has class' in str(caught.value)


def test_json_and_text():
    dataset = NUMBERS.one_of([lambda ds: ds.assign(x="1").cast("x", "int64"), lambda ds: ds], weights=[1, 3])
    node = dataset.maybe(0.5, lambda ds: ds.assign(x="x + 1"))
    text = repr(node)
    assert "one_of([lambda ds: ds.assign(x='1').cast('x', 'int64'), lambda ds: ds], weights=[1, 3])" in text
    assert ".maybe(0.5, lambda ds: ds.assign(x='x + 1'))" in text
    first = [{"op": "assign", "set": {"x": "1"}}, {"op": "cast", "component": "x", "dtype": "int64"}]
    same = NUMBERS.one_of([first, []], weights=[1, 3])
    np.testing.assert_array_equal(values(dataset), values(same))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: NUMBERS.maybe(2, lambda ds: ds), "p is 2: expected a number, from 0 to 1"),
        (
            lambda: NUMBERS.maybe(0.5, lambda ds: ds.filter("x > 0")),
            '"filter" works on more than one element',
        ),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.shuffle()), '"shuffle" works on more than one element'),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.autocache()), '"autocache" works on more than one'),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.map(lambda e: e)), '"map" calls a function'),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.assign(y="x")), '"y" is not after all'),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.drop("x")), '"x" is not after all'),
        (lambda: NUMBERS.maybe(0.5, lambda ds: ds.cast("x", "int8")), '"x", but it is int8 or int64'),
        (lambda: NUMBERS.maybe(0.5, 3), "operators is 3: expected a list of operators"),
        (lambda: NUMBERS.maybe(0.5, [[]]), 'operators: "?" is no operator'),
        (lambda: NUMBERS.one_of([]), "choices is []: expected 1 to 64 lists"),
        (lambda: NUMBERS.one_of([{"op": "invert"}]), "expected a list of lists of operators"),
        (lambda: NUMBERS.one_of([[{"op": "inver"}]]), '"inver" is no operator'),
        (lambda: NUMBERS.one_of([lambda ds: ds], weights=[1, 2]), "expected 1 numbers, one for each"),
        (lambda: NUMBERS.one_of([lambda ds: ds], weights=[0]), "expected at least one number above 0"),
        (lambda: NUMBERS.one_of([lambda ds: ds.invert("x")]), 'invert: component is "x"'),
    ],
)
def test_wrong_attributes(build, text):
    with pytest.raises(cachew.PipelineError) as caught:
        build().batch(1).peek()
    assert text in str(caught.value)


def test_a_function_that_returns_something_else():
    for wrong in (lambda ds: None, lambda ds: Dataset.range(3)):
        with pytest.raises(TypeError, match="expected a function that returns its dataset"):
            NUMBERS.maybe(0.5, wrong)
