"""Parts of datasets: the number of elements, ds[i], slices, random splits and shards, against plain lists."""

import gzip
import random

import cachew
import numpy as np
import pytest
from cachew import Dataset


def plus_noise(element, rng):
    return {"value": element["value"], "noise": rng.integers(1 << 40)}


def lengths():
    return Dataset.range(100).assign(n="value % 7")


COUNTED = {
    "range": Dataset.range(23),
    "shuffled": Dataset.range(100).shuffle(),
    "cut": Dataset.range(50).skip(7).take(20).repeat(3),
    "batches": Dataset.range(50).shuffle().batch(8),
    "no remainder": Dataset.range(50).batch(8, drop_remainder=True),
    "batches cut": Dataset.range(100).batch(8).skip(2).take(5),
    "batches repeated": Dataset.range(24).shuffle().batch(8).repeat(3),
    "concat": Dataset.concat([Dataset.range(9), Dataset.range(5).shuffle()]).repeat(2).batch(4),
    "zip": Dataset.zip([Dataset.range(9), Dataset.range(5).rename({"value": "b"})]),
    "drawn": Dataset.range(30).map(plus_noise).shuffle().batch(4),
    "images": Dataset.synthetic(20, shape=(8, 8, 3), dtype="uint8").random_crop("data", size=(3, 4)).batch(6),
    "replaced": Dataset.range(5000)._for_tests("fail", where="value % 9 == 1").batch(7).on_error("replace"),
    "skipped": Dataset.range(40)._for_tests("fail", where="value % 9 == 1").batch(7).on_error("skip"),
}
UNCOUNTED = {
    "filter": Dataset.range(20).filter("value % 3 != 1"),
    "filter in concat": Dataset.concat([Dataset.range(5), Dataset.range(20).filter("value > 3")]),
    "flat_map": Dataset.range(4).flat_map(lambda e: [e, e], outputs={"value": "int64"}).batch(3),
    "iterable": Dataset.iterable([{"value": 1}, {"value": 2}]),
}


def rows(batches):
    return [v for b in batches for v in np.atleast_1d(b["value"]).tolist()]


# ---- n_elements ----


@pytest.mark.parametrize("name", COUNTED)
def test_n_elements_is_the_number_of_rows(name):
    ds = COUNTED[name]
    n = sum(b.n_records for b in ds.iterator())
    lost = sum(v % 9 == 1 for v in range(40)) if name == "skipped" else 0  # failed records are counted
    assert ds.n_elements == n + lost


def test_n_elements_with_buckets():
    ds = lengths().bucket_by_length("n", boundaries=[3], sizes=[4, 6])
    assert ds.n_elements == 100 and ds.n_batches() is None
    assert ds.take(2).n_elements is None


@pytest.mark.parametrize("name", UNCOUNTED)
def test_n_elements_that_is_not_known(name):
    assert UNCOUNTED[name].n_elements is None


def test_n_elements_of_an_endless_dataset():
    assert Dataset.range(3).repeat(-1).n_elements is None


# ---- ds[i] ----


@pytest.mark.parametrize("name", COUNTED)
def test_an_item_is_that_of_the_loop(name):
    ds = COUNTED[name][:]
    for epoch in (0, 2):
        ds.set_epoch(epoch)
        want = [b.hash() for b in ds.iterator(epoch=epoch)]
        places = random.Random(name).sample(range(len(want)), min(len(want), 8))
        assert [ds[i].hash() for i in places] == [want[i] for i in places]
        assert [ds[i - len(want)].hash() for i in places] == [want[i] for i in places]
        assert ds.epoch == epoch


def test_an_item_is_of_the_next_loop():
    ds = Dataset.range(100).shuffle().batch(10).defaults(seed=3)
    first = ds[4]
    assert first.hash() == list(ds)[4].hash() and first.epoch == 0 and first.g == 4
    assert ds[4].epoch == 1 and ds[4].hash() == list(ds)[4].hash()


def test_an_element_without_a_batcher():
    element = Dataset.range(10)[np.int64(3)]
    assert element["value"] == 3 and element["value"].shape == () and element.n_records == 1


@pytest.mark.parametrize("index", [10, -11, 1 << 70])
def test_an_item_that_does_not_exist(index):
    with pytest.raises(IndexError, match=rf"ds\[{index}\] does not exist: an epoch of this dataset has 10"):
        Dataset.range(10)[index]


@pytest.mark.parametrize("index", ["value", 1.0, None])
def test_an_index_of_another_type(index):
    with pytest.raises(TypeError, match="of a dataset is a .*: expected an integer or a slice"):
        Dataset.range(10)[index]


@pytest.mark.parametrize("name", UNCOUNTED)
def test_an_item_that_depends_on_all_before_it(name):
    with pytest.raises(TypeError, match=f"because of {name.split()[0]}"):
        UNCOUNTED[name][1]


def test_items_behind_buckets():
    with pytest.raises(TypeError, match="because of bucket_by_length"):
        lengths().bucket_by_length("n", boundaries=[3], sizes=[4, 6])[0]


def test_an_item_of_an_endless_dataset():
    ds = Dataset.range(7).repeat(-1)
    assert ds[10**9]["value"] == 10**9 % 7
    with pytest.raises(IndexError, match="has no end"):
        ds[-1]


def test_an_item_after_the_data_have_changed(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    ds = Dataset.text(str(tmp_path / "*"))
    assert bytes(ds[1]["line"]) == b"2" if "line" in ds.schema else ds[1]
    (tmp_path / "b").write_text("3\n")
    name = next(iter(ds.schema))
    assert bytes(ds[-1][name]) == b"3" and bytes(ds[0][name]) == b"1"


# ---- ds[a:b] ----


def test_slices_are_those_of_a_list():
    rng = random.Random(1)
    bounds = [None, *range(-14, 15)]
    ds, want = Dataset.range(12), list(range(12))
    for _ in range(60):
        cut = slice(rng.choice(bounds), rng.choice(bounds))
        got = ds[cut]
        assert got.n_elements == len(want[cut]), cut
        if want[cut]:
            assert rows(got.iterator()) == want[cut], cut


def test_a_slice_of_batches_and_behind_a_filter():
    assert rows(Dataset.range(50).batch(8)[2:4]) == list(range(16, 32))
    assert rows(UNCOUNTED["filter"][2:5]) == [v for v in range(20) if v % 3 != 1][2:5]
    with pytest.raises(TypeError, match="the end of the dataset.* because of filter: expected bounds >= 0"):
        UNCOUNTED["filter"][-2:]


def test_a_slice_with_a_step():
    with pytest.raises(ValueError, match="a slice of a dataset has step 2: expected 1"):
        Dataset.range(9)[::2]


# ---- random_split ----


def split_rows(n, parts, seed=0, **options):
    return [rows(p.batch(4096).iterator(**options)) for p in Dataset.range(n).random_split(parts, seed=seed)]


@pytest.mark.parametrize("n", [10, 11, 999, 70_000])
@pytest.mark.parametrize("parts", [[0.5, 0.5], [0.9, 0.1], [0.8, 0.1, 0.1]], ids=str)
def test_parts_are_disjoint_and_complete(n, parts):
    found = split_rows(n, parts)
    assert sorted(v for p in found for v in p) == list(range(n))
    assert all(abs(len(p) - n * share) <= 1 for p, share in zip(found, parts))
    assert n < 100 or all(p != sorted(p) for p in found)


def test_a_split_of_ten_million():
    train, val = Dataset.range(10_000_000).random_split([9_999_000, 1000])
    seen = np.zeros(10_000_000, bool)
    for batch in val.batch(1000):
        seen[batch["value"]] = True
    assert seen.sum() == 1000
    assert train.n_elements == 9_999_000
    for batch in train[:200_000].batch(65_536):
        assert not seen[batch["value"]].any()


def test_a_split_depends_on_its_seed_only():
    want = [set(p) for p in split_rows(1000, [0.7, 0.3])]
    assert [set(p) for p in split_rows(1000, [0.7, 0.3], seed=1)] != want
    assert [set(p) for p in split_rows(1000, [0.7, 0.3], **{"epoch": 5})] == want
    ds = Dataset.range(1000).shuffle().shuffle()  # other shuffles before it
    train, val = Dataset.range(1000).random_split([0.7, 0.3])
    assert set(rows(val.batch(7).iterator(seed=9, epoch=3))) == want[1]
    assert set(rows(val.repeat(3))) == want[1] and len(rows(val.repeat(3))) == 900
    both = rows(Dataset.concat([train, val]))
    assert set(both[700:]) == want[1]  # the second shuffle of the pipeline gives the same order
    assert set(rows(val.shuffle().batch(10))) == want[1]
    a, b = ds.random_split([0.5, 0.5])
    for epoch in range(2):  # of one epoch: what comes before the split is in another order in each
        assert sorted(rows(a.iterator(epoch=epoch)) + rows(b.iterator(epoch=epoch))) == list(range(1000))


def test_a_split_by_numbers():
    assert [p.n_elements for p in Dataset.range(10).random_split([np.int64(7), 3])] == [7, 3]
    with pytest.raises(cachew.OptionError, match="expected numbers that add up to 10"):
        Dataset.range(10).random_split([7, 2])


@pytest.mark.parametrize("parts", [[], [0.5, 0.4], [0.5, -0.5, 1.0], ["0.5", 0.5], [0, 10]], ids=str)
def test_parts_that_are_wrong(parts):
    with pytest.raises(cachew.OptionError, match="option parts is .*: expected "):
        Dataset.range(10).random_split(parts)


def test_a_part_without_elements():
    with pytest.raises(cachew.PipelineError, match=r"part 1 of the split \[0.99, 0.01\] has no element"):
        Dataset.range(10).random_split([0.99, 0.01])


@pytest.mark.parametrize("name", UNCOUNTED)
def test_a_split_of_what_has_no_known_length(name):
    ds = UNCOUNTED[name]
    with pytest.raises(cachew.PipelineError, match="random_split"):
        ds.random_split([0.5, 0.5])


def test_a_split_after_a_batcher():
    with pytest.raises(cachew.PipelineError, match="comes after a batcher"):
        Dataset.range(10).batch(2).random_split([0.5, 0.5])


def test_a_split_of_compressed_files(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wt") as file:
        file.write("".join(f"{i}\n" for i in range(20)))
    with pytest.raises(
        cachew.PipelineError, match="seed is 0: expected -1, because this shuffle is by chunk"
    ):
        Dataset.text(str(tmp_path / "*.gz")).random_split([0.5, 0.5])


# ---- shard ----


@pytest.mark.parametrize("n", [7, 8, 100, 101])
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_are_disjoint_and_complete(n, shards):
    found = [rows(Dataset.range(n).shard(shards, i)) for i in range(shards)]
    assert [v for s in found for v in s] == list(range(n))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_shards_of_batches():
    found = [rows(Dataset.range(50).batch(8).shard(3, i)) for i in range(3)]
    assert [v for s in found for v in s] == list(range(50)) and [len(s) for s in found] == [16, 16, 18]


def test_shards_that_are_wrong():
    with pytest.raises(cachew.OptionError, match="option index is 3: expected an integer from 0 to 2"):
        Dataset.range(10).shard(3, 3)
    with pytest.raises(cachew.PipelineError, match="shard 0 of 4 has no element"):
        Dataset.range(3).shard(4, 0)
    with pytest.raises(cachew.PipelineError, match="not known after filter"):
        UNCOUNTED["filter"].shard(2, 0)
