"""Datasets for torch.utils.data.DataLoader: as_map_style and as_iterable."""

import copy
import itertools
import pickle
from typing import NamedTuple

import cachew
import pytest
from cachew import Dataset

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from cachew import torch as torch_data  # noqa: E402

from deadlines import HANG_S  # noqa: E402


def shuffled(n=40):
    return Dataset.range(n).shuffle().defaults(seed=4)


def texts():
    return Dataset.arrays({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "name": ["a", "bc", ""]})


def rows(batches):
    return [v for b in batches for v in b["value"].reshape(-1).tolist()]


def of_epoch(ds, epoch, **options):
    return rows(ds.iterator(epoch=epoch, **options))


def parts_of(values, workers):
    """What each worker gave: a DataLoader takes an item of each in turn, as long as each has one."""
    n = max(workers, 1)
    lengths = [len(values) * (w + 1) // n - len(values) * w // n for w in range(n)]
    parts = [[] for _ in range(n)]
    turns = [w for turn in range(max(lengths)) for w in range(n) if turn < lengths[w]]
    for w, value in zip(turns, values):
        parts[w].append(value)
    return parts


def interleaved(values):
    """The order of a DataLoader with two workers."""
    half = len(values) // 2
    return [v for pair in zip(values[:half], values[half:]) for v in pair] + values[2 * half :]


def load(data, workers=0, **options):
    extra = {"multiprocessing_context": "fork", "timeout": HANG_S} if workers else {}
    return DataLoader(data, num_workers=workers, **extra, **options)


# ---- map style ----


@pytest.mark.parametrize("workers", [0, 2])
def test_map_style_in_a_data_loader(workers):
    data = shuffled().as_map_style()
    assert len(data) == 40 and isinstance(data, torch.utils.data.Dataset)
    assert rows(load(data, workers, batch_size=6)) == of_epoch(shuffled(), 0)
    data.set_epoch(3)
    assert rows(load(data, workers, batch_size=6)) == of_epoch(shuffled(), 3)
    torch.manual_seed(1)
    assert sorted(rows(load(data, workers, batch_size=6, shuffle=True))) == list(range(40))


def test_map_style_items_are_tensors_and_bytes():
    data = texts().as_map_style()
    assert data[1]["x"].tolist() == [3.0, 4.0] and data[-1]["x"].dtype == torch.float64
    assert data[1]["name"] == b"bc"
    batch = next(iter(load(data, batch_size=3)))
    assert batch["x"].shape == (3, 2) and batch["name"] == [b"a", b"bc", b""]


def test_map_style_of_batches():
    data = texts().batch(2).as_map_style()
    assert len(data) == 2 and data[0]["x"].shape == (2, 2) and data[1]["name"] == [b""]
    assert [b["name"] for b in load(data, batch_size=None)] == [[b"a", b"bc"], [b""]]


def test_map_style_can_be_pickled():
    data = shuffled().as_map_style(seed=9, epoch=2)
    other = pickle.loads(pickle.dumps(data))
    assert rows(other[i] for i in range(40)) == of_epoch(shuffled(), 2, seed=9)


def test_map_style_index_that_does_not_exist():
    with pytest.raises(IndexError, match=r"ds\[40\] does not exist"):
        shuffled().as_map_style()[40]


def test_map_style_needs_places():
    with pytest.raises(TypeError, match="because of filter"):
        Dataset.range(5).filter("value > 1").as_map_style()
    with pytest.raises(TypeError, match="has no end"):
        Dataset.range(5).repeat(-1).as_map_style()


def test_a_data_loader_refuses_a_dataset_itself():
    with pytest.raises(TypeError, match=r"expected ds.as_iterable\(\) or ds.as_map_style\(\)"):
        next(iter(DataLoader(shuffled(), batch_size=4)))


FAILING = Dataset.range(9)._for_tests("fail", where="value % 4 == 1").on_error("skip")


def test_map_style_item_that_failed():
    with pytest.raises(cachew.RecordError, match='element 5 of epoch 0 failed, and on_error is "skip"'):
        FAILING.as_map_style()[5]
    assert len(FAILING.batch(9).as_map_style()[0]["value"]) == 7


# ---- iterable ----


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_loop_is_the_next_epoch(workers, persistent):
    ds = shuffled()
    loader = load(ds.as_iterable(), workers, batch_size=None, persistent_workers=persistent and workers > 0)
    found = [rows(loader) for _ in range(3)]
    assert [sorted(f) for f in found] == [list(range(40))] * 3
    for epoch, values in enumerate(found):
        want = of_epoch(ds, epoch)
        for w in range(max(workers, 1)):  # each worker gives a part of the epoch, in the epoch's order
            assert [v for v in want if v in parts_of(values, workers)[w]] == parts_of(values, workers)[w]
            assert parts_of(values, workers)[w][0] == want[40 * w // max(workers, 1)]


PIPELINES = {
    "counted": shuffled(41),
    "batches": shuffled(41).batch(4),
    "filter": shuffled(41).filter("value != 7"),
    "batches behind a filter": shuffled(41).filter("value != 7").batch(4),
    "take behind a filter": shuffled(41).filter("value != 7").take(30),
    "flat_map": Dataset.range(5).flat_map(
        lambda e: [{"value": 2 * e["value"]}, {"value": 2 * e["value"] + 1}]
    ),
    "iterable": Dataset.iterable([{"value": v} for v in range(9)]),
    "buckets": shuffled(41).assign(n="value % 5").bucket_by_length("n", boundaries=[2], sizes=[3, 4]),
    "fewer than workers": Dataset.range(2),
    "failing": FAILING,
    "concat": Dataset.concat([Dataset.range(5), Dataset.range(20).skip(5).filter("value % 2 == 0")]),
}


class Worker(NamedTuple):
    id: int
    num_workers: int
    seed: int


@pytest.mark.parametrize("name", PIPELINES)
def test_workers_and_ranks_together_give_each_item_once(name, monkeypatch):
    ds, found = PIPELINES[name], []
    for rank in range(2):
        data = ds.as_iterable(rank=rank, world_size=2)
        data.set_epoch(3)
        for worker in range(2):
            info = Worker(worker, 2, 100 + worker)
            monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
            found += rows(pickle.loads(pickle.dumps(data)))
            monkeypatch.undo()
    assert sorted(found) == sorted(of_epoch(ds, 3))


@pytest.mark.parametrize("name", PIPELINES)
def test_the_state_of_a_worker_resumes(name, monkeypatch):
    for worker in range(2):
        info = Worker(worker, 2, 100 + worker)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
        whole = rows(PIPELINES[name].as_iterable())
        data, other = PIPELINES[name].as_iterable(), PIPELINES[name].as_iterable()
        first = list(itertools.islice(data, 1))
        other.load_state_dict(data.state_dict())
        assert rows(first) + (rows(other) if first else []) == whole


def test_states_of_workers_that_end_at_different_times(monkeypatch):
    ds = Dataset.range(40).filter(
        "value < 2 or value >= 20"
    )  # 2 elements in the first half, 20 in the second

    def in_worker(id):
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: Worker(id, 2, 100 + id))

    loops = []
    for id in range(2):
        in_worker(id)
        data = ds.as_iterable()
        loops.append((data, iter(data)))
    in_worker(0)
    first = rows(loops[0][1])  # to the end
    states = [loops[0][0].state_dict()]
    in_worker(1)
    first += rows(itertools.islice(loops[1][1], 5))
    states.append(loops[1][0].state_dict())

    main = ds.as_iterable()
    monkeypatch.setattr(torch_data, "get_spawning_popen", lambda: True)  # pickles are sent to workers
    workers = [pickle.loads(pickle.dumps(main)) for _ in range(2)]
    monkeypatch.undo()
    for id, data in enumerate(workers):
        in_worker(id)
        data.load_state_dict(states[id])
    loops = []
    for id, data in enumerate(workers):
        in_worker(id)
        loops.append(iter(data))
        assert data.state_dict() == states[id]
    assert sorted(first + [v for loop in loops for v in rows(loop)]) == of_epoch(ds, 0)
    for id, data in enumerate(workers):
        in_worker(id)
        assert rows(data) == ([0, 1] if id == 0 else list(range(20, 40)))  # the next loop is whole again


def test_loops_with_the_same_seed_of_torch_are_different_epochs():
    data = shuffled().as_iterable()
    for epoch in (0, 1, 2, 7, 8):
        if epoch == 7:
            data.set_epoch(7)
        torch.manual_seed(5)
        assert rows(load(data, 2, batch_size=None)) == interleaved(of_epoch(shuffled(), epoch))


def test_an_iterator_that_gives_no_item_begins_no_epoch():
    data = shuffled().as_iterable()
    iter(data)  # as torchdata does when it loads the state of the end of an epoch
    assert rows(data) == of_epoch(shuffled(), 0)


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_an_endless_dataset(workers):
    loop = iter(load(Dataset.range(3).repeat(-1).batch(2).as_iterable(), workers, batch_size=None))
    found = rows(next(loop) for _ in range(12))
    assert all(found.count(v) >= 6 for v in range(3))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_the_data_loader_have_each_item_once(workers):
    data = shuffled(41).filter("value != 7").as_iterable()
    for _ in range(2):
        assert sorted(rows(load(data, workers, batch_size=4))) == [v for v in range(41) if v != 7]


def test_a_worker_that_is_sent_a_pickle():
    data = shuffled().as_iterable()
    data.set_epoch(3)
    loader = DataLoader(data, num_workers=1, batch_size=None, multiprocessing_context="spawn", timeout=HANG_S)
    assert rows(loader) == of_epoch(shuffled(), 3)
    assert rows(data) == of_epoch(shuffled(), 4)  # the worker counted its loop


def test_a_copy_counts_for_itself():
    data = shuffled().as_iterable()
    data.set_epoch(2)
    other = pickle.loads(pickle.dumps(data))
    assert rows(data) == rows(other) == of_epoch(shuffled(), 2)
    assert rows(data) == rows(copy.deepcopy(other)) == of_epoch(shuffled(), 3)


def test_two_loaders_of_one_dataset_at_once():
    data = shuffled().as_iterable()
    pairs = list(zip(load(data, 2, batch_size=None), load(data, 2, batch_size=None)))
    epochs = [interleaved(of_epoch(shuffled(), e)) for e in range(2)]
    assert sorted(rows(side) for side in zip(*pairs)) == sorted(epochs)  # each loop has an epoch of its own


def test_a_loop_with_workers_that_is_left_early():
    data = shuffled().as_iterable()
    next(iter(load(data, 2, batch_size=None)))
    assert rows(load(data, 2, batch_size=None)) == interleaved(of_epoch(shuffled(), 1))


def test_ranks_divide_the_items():
    parts = [shuffled(41).as_iterable(rank=r, world_size=3) for r in range(3)]
    assert [len(p) for p in parts] == [13, 14, 14]
    found = [rows(load(p, 2, batch_size=None)) for p in parts]
    assert [len(f) for f in found] == [13, 14, 14]
    assert sorted(v for f in found for v in f) == list(range(41))


def test_set_epoch():
    data = shuffled().as_iterable(seed=8)
    data.set_epoch(5)
    assert rows(load(data, 0, batch_size=None)) == of_epoch(shuffled(), 5, seed=8)
    assert rows(load(data, 2, batch_size=None)) == interleaved(of_epoch(shuffled(), 6, seed=8))


def test_the_length_of_an_iterable():
    assert len(shuffled().as_iterable()) == 40
    with pytest.raises(TypeError, match="not known beforehand"):
        len(Dataset.range(5).filter("value > 1").as_iterable())


@pytest.mark.parametrize("ds", [shuffled(), shuffled().filter("value % 3 != 1"), shuffled().batch(3)])
def test_a_state_resumes(ds):
    for taken in (0, 1, 5):
        data = ds.as_iterable()
        loop = iter(data)
        first = [next(loop) for _ in range(taken)]
        state = data.state_dict()
        other = ds.as_iterable()
        other.load_state_dict(copy.deepcopy(state))
        assert other.state_dict() == state
        assert rows(first) + rows(other) == of_epoch(ds, 0)
        assert rows(other) == of_epoch(ds, 1)


def test_a_state_of_the_end_of_an_epoch():
    data = shuffled().as_iterable()
    rows(data)
    other = shuffled().as_iterable()
    other.load_state_dict(data.state_dict())
    assert rows(other) == of_epoch(shuffled(), 1)


def test_a_state_before_the_first_loop():
    data = shuffled().as_iterable()
    data.set_epoch(2)
    other = shuffled().as_iterable()
    other.load_state_dict(data.state_dict())
    assert rows(other) == of_epoch(shuffled(), 2)


def test_states_that_do_not_fit():
    data = shuffled().as_iterable()
    for wrong in (shuffled(39).as_iterable().state_dict(), {}, {"cachew": {"epoch": 1}}):
        with pytest.raises(cachew.StateError):
            data.load_state_dict(wrong)
    assert rows(data) == of_epoch(shuffled(), 0)
