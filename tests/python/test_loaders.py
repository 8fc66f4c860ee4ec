"""Loaders for torch and JAX: an epoch per loop, tensors over the slab, positions, devices, ranks."""

import gc
import itertools
import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import cachew
import numpy as np
import pytest
from cachew import Dataset

from deadlines import HANG_S, wait_for
from loaders import LOADERS, jax, needs_jax, torch


def known():
    return Dataset.range(100).shuffle().batch(8)


def unknown():
    return Dataset.range(100).shuffle().filter("value % 3 != 1").batch(8)


def values(batches):
    return [list(map(int, b["value"])) for b in batches]


def expected(ds, epochs, **options):
    found = [[] for _ in range(epochs)]
    for b in ds.iterator(epochs=epochs, **options):
        found[b.epoch].append(list(map(int, b["value"])))
    return found


def loaders(ds, **options):
    """Every way to make one."""
    return [
        cachew.torch.loader(ds, **options),
        cachew.torch.loader(ds, pin_memory=False, device="cpu", **options),
        ahead(ds, **options),
        *(make(ds, **options) for make in LOADERS[1:]),
    ]


def ahead(ds, **options):
    """A torch loader that works ahead on a thread, as it does for a device: tensors go to the CPU through
    the same code.
    """
    made = cachew.torch.loader(ds, **options)
    made._ahead = 2
    return made


@pytest.mark.parametrize("ds", [known(), unknown()], ids=["known", "unknown"])
def test_each_loop_is_the_next_epoch(ds):
    want = expected(ds, 4, seed=3)
    for loader in loaders(ds, seed=3):
        assert [values(loader) for _ in range(4)] == want and loader.epoch == 3


@pytest.mark.parametrize("ds", [known(), unknown()], ids=["known", "unknown"])
def test_a_loop_that_is_left_early(ds):
    want = expected(ds, 4)
    for loader in loaders(ds):
        for i, batch in enumerate(loader):
            assert list(map(int, batch["value"])) == want[0][i]
            if i == 3:
                break
        assert values(loader) == want[1]
        iter(loader)  # nothing is taken
        begun = iter(loader)
        assert list(map(int, next(begun)["value"])) == want[2][0]
        assert values(loader) == want[3] and list(begun) == []


@pytest.mark.parametrize("ds", [known(), unknown()], ids=["known", "unknown"])
def test_state_is_of_what_was_handed_out(ds):
    want = expected(ds, 5, seed=1)
    flat = [b for epoch in want for b in epoch]
    rng = random.Random(5)
    for stop in [0, len(want[0]), len(want[0]) + 1, *(rng.randrange(len(flat)) for _ in range(4))]:
        for first, second in zip(loaders(ds, seed=1), reversed(loaders(ds, seed=1, threads=1))):
            seen = []
            while len(seen) < stop:
                for batch in first:
                    seen.append(list(map(int, batch["value"])))
                    if len(seen) == stop:
                        break
            state = json.loads(json.dumps(first.state_dict()))
            assert len(json.dumps(state)) <= 1024
            second.load_state_dict(state)
            assert second.state_dict() == state
            while len(seen) < len(flat):
                seen += values(second)
            assert seen == flat


def test_state_in_the_middle_does_not_disturb():
    want = expected(unknown(), 2)
    for loader in loaders(unknown()):
        found = []
        for batch in loader:
            loader.state_dict()
            found.append(list(map(int, batch["value"])))
        assert found == want[0] and values(loader) == want[1]


@pytest.mark.parametrize(
    "state", [None, {}, {"cachew": 3}, {"cachew": {}}, {"cachew": {"cachew_state": 99}}, 3]
)
def test_a_state_that_does_not_fit_changes_nothing(state):
    for loader in loaders(known()):
        next(iter(loader))
        with pytest.raises(cachew.StateError):
            loader.load_state_dict(state)
        assert values(loader) == expected(known(), 2)[1]


def test_length():
    for loader in loaders(known()):
        assert len(loader) == 13
    for loader in loaders(known(), rank=1, world_size=4):
        assert len(loader) == 4 == len(list(loader))
    for loader in loaders(unknown()):
        assert loader
        with pytest.raises(TypeError, match="filter"):
            len(loader)


def test_ranks_get_equally_many():
    for make in (*LOADERS, ahead):
        parts = [make(known(), rank=r, world_size=3) for r in range(3)]
        epochs = [[list(zip(values([b]), [p.is_padding])) for b in p] for p in parts]
        assert [len(e) for e in epochs] == [5, 5, 5]
        real = [v for e in epochs for b in e for v, padding in b if not padding]
        assert sorted(x for v in real for x in v) == list(range(100))
        assert [len(list(p)) for p in parts] == [5, 5, 5]


def test_datasets_without_batches():
    for ds in (Dataset.range(0).batch(2), Dataset.range(9).filter("value > 10").batch(2)):
        for loader in loaders(ds):
            assert [list(loader) for _ in range(3)] == [[], [], []]


def test_errors_come_to_the_loop():
    ds = Dataset.range(20).assign(value="10 // (value - 7)").batch(5)
    for loader in loaders(ds):
        found = []
        with pytest.raises(cachew.RecordError) as caught:
            for batch in loader:
                found.append(batch)
        assert len(found) == 1 and caught.value.operator == "assign"
    hang = Dataset.range(20)._for_tests("fail", "value == 7", kind="hang").batch(5)
    for loader in loaders(hang, timeout_s=0.3):
        with pytest.raises(cachew.DeadlineError):
            list(loader)


@pytest.mark.large
def test_a_deadline_is_not_the_end(tmp_path):
    """What was late comes when it is asked for again."""

    def hold(batch):
        while not os.path.exists(go):
            time.sleep(0.01)
        return batch

    go = str(tmp_path / "go")
    ds = Dataset.range(10).batch(2).map_batches(hold, outputs={"value": "int64"}, deterministic=False)
    for loader in loaders(ds, timeout_s=0.05):
        Path(go).unlink(missing_ok=True)
        batches, found = iter(loader), []
        with pytest.raises(cachew.DeadlineError):
            next(batches)
        Path(go).touch()
        while len(found) < 5:
            try:
                found.append(next(batches))
            except cachew.DeadlineError:
                pass
        assert values(found) == values(list(cachew.torch.loader(ds)))
        loader.close()


def stuck():
    return Dataset.range(10)._for_tests("fail", kind="hang").batch(2)


@pytest.mark.parametrize("make", [ahead, cachew.torch.loader])
def test_close_from_another_thread_ends_the_wait_for_a_batch(make):
    loader = make(stuck())
    batches, caught = iter(loader), []

    def wait():
        try:
            next(batches)
        except BaseException as error:
            caught.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    wait_for(lambda: loader._stream is not None)
    threading.Event().wait(0.2)  # until it waits; if it does not yet, the loop is over instead
    loader.close()
    waiter.join(HANG_S)
    assert not waiter.is_alive() and isinstance(caught[0], (cachew.UsageError, StopIteration))


def test_close_while_the_thread_waits_for_room():
    loader = ahead(known())
    next(iter(loader))
    wait_for(lambda: len(loader._stream.items) == 2)
    thread = loader._stream._thread
    loader.close()
    assert not thread.is_alive()
    assert values(loader) == expected(known(), 2)[1]


def test_wrong_arguments():
    for make in LOADERS:
        with pytest.raises(TypeError, match="cachew.Dataset"):
            make([1, 2])
        with pytest.raises(cachew.OptionError, match="prefetch"):
            make(known(), prefetch=0)
        with pytest.raises(cachew.OptionError, match="rank"):
            list(make(known(), rank=3, world_size=2))


def running():
    return threading.active_count(), len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("make", [cachew.torch.loader, ahead])
def test_a_loader_that_is_dropped_leaves_nothing(make):
    ds = Dataset.range(1000).batch(2)
    gc.disable()
    try:
        before = running()
        for how in ("drop", "close") * 5:
            loader = make(ds)
            next(iter(loader))
            assert running() > before
            if how == "close":
                loader.close()
            del loader
            wait_for(lambda: running() <= before)
    finally:
        gc.enable()


@needs_jax
def test_a_jax_loader_that_is_dropped_leaves_nothing():
    """JAX keeps what lies under its arrays a little longer, until it next looks."""
    ds = Dataset.range(1000).batch(2)
    for _ in range(3):
        next(iter(cachew.jax.loader(ds)))
    jax.block_until_ready(jax.device_put(1))
    before = running()
    for _ in range(10):
        next(iter(cachew.jax.loader(ds)))
    wait_for(lambda: (jax.block_until_ready(jax.device_put(1)), running() <= before)[1])


def tasks():
    return len(os.listdir("/proc/self/task"))


def test_a_ctrl_c_as_the_thread_has_started_ends_it():
    """It was left running, with the iterator and its hosts."""
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    before, loader = tasks(), ahead(known())
    for _ in range(3):
        with mock.patch.object(threading.Thread, "start", interrupted), pytest.raises(KeyboardInterrupt):
            iter(loader)
        wait_for(lambda: tasks() <= before)
    assert values(loader) == expected(known(), 1)[0]


@pytest.mark.large
def test_a_ctrl_c_at_any_line_of_opening_leaves_nothing():
    before, at, left = tasks(), 0, 0

    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code.co_filename != cachew._loader.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    while left <= 0:  # until there are fewer lines
        at += 1
        left, loader = at, ahead(known())
        sys.settrace(trace)
        try:
            iter(loader)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert values(loader) == expected(known(), 1)[0]
        del loader
        wait_for(lambda: tasks() <= before)
    assert at > 30, at


@pytest.mark.large
@pytest.mark.parametrize("kind", ["torch", pytest.param("jax", marks=needs_jax)])
def test_the_process_ends_with_live_loaders(script, kind):
    ran = script(f"""
import cachew, cachew.{kind}
loader = cachew.{kind}.loader(cachew.Dataset.range(10**6).batch(2))
loader._ahead = 3
for batch in loader:
    break
hang = cachew.{kind}.loader(cachew.Dataset.range(20)._for_tests("fail", "value == 7", kind="hang").batch(5))
hang._ahead = 3
next(iter(hang))
""")
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr


# ---- torch ----


@pytest.mark.parametrize(
    "dtype",
    [
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
    ],
)
def test_torch_dtypes(dtype):
    batch = next(iter(cachew.torch.loader(Dataset.range(6).cast("value", dtype).batch(6))))
    assert batch["value"].dtype == getattr(torch, dtype)
    assert batch["value"].to(torch.float64).tolist() == [
        float(bool(i)) if dtype == "bool" else i for i in range(6)
    ]


def test_torch_tensors_lie_in_the_slab(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    loader = cachew.torch.loader(Dataset.files(tmp_path / "a.bin").assign(n="length(data)").batch(2))
    batch = next(iter(loader))
    assert type(batch) is dict and batch["data"].tolist() == [b"abc"] and batch["n"].tolist() == [3]
    array = Dataset.range(10).batch(10).peek()["value"]
    for tensor in (torch.from_dlpack(array), torch.from_numpy(array), cachew.torch.as_tensor(array)):
        assert tensor.data_ptr() == array.__array_interface__["data"][0]
        tensor[3] = 77
        assert array[3] == 77
        array[3] = 3


def test_a_tensor_keeps_the_slab():
    it = Dataset.range(100).batch(10).iterator()
    tensor = cachew.torch.as_tensor(next(it)["value"])[2:]
    for _ in range(5):
        next(it)
    assert it._core.held() == 1 and tensor.tolist() == list(range(2, 10))
    del tensor
    assert it._core.held() == 0


def test_torch_distributed_gives_the_ranks():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    want = values(known().iterator(rank=1, world_size=3))
    loader = cachew.torch.loader(known())
    assert len(loader) == 13
    torch.distributed.init_process_group("fake", rank=1, world_size=3, store=FakeStore())
    try:
        assert len(loader) == 5 and values(loader) == want
        assert len(cachew.torch.loader(known(), rank=0, world_size=1)) == 13
    finally:
        torch.distributed.destroy_process_group()


def test_a_device():
    """ "meta" stands for a device here: it has no data, but all the rest."""
    loader = cachew.torch.loader(known(), device="meta", prefetch=3)
    batches = list(loader)
    assert [b["value"].device.type for b in batches] == ["meta"] * 13 and batches[-1]["value"].shape == (4,)
    if torch.cuda.is_available():
        loader = cachew.torch.loader(known(), device="cuda")
        assert [b["value"].tolist() for b in loader] == expected(known(), 1)[0]


@pytest.mark.large
def test_a_loader_in_a_forked_child(script):
    ran = script("""
import os, sys, cachew, cachew.torch
loader = cachew.torch.loader(cachew.Dataset.range(100).batch(4))
loader._ahead = 2 if len(sys.argv) > 1 else 0
batches = iter(loader)
next(batches)
pid = os.fork()
if pid == 0:
    try:
        next(batches)
    except cachew.UsageError as error:
        loader.close()
        del loader, batches
        os._exit(0 if "forked child" in str(error) else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sum(1 for _ in batches))
""")
    assert ran.stdout.strip() == "0 24", ran.stderr


def test_what_trainers_look_at():
    loader = cachew.torch.loader(known())
    assert isinstance(loader, torch.utils.data.DataLoader) and loader.num_workers == 0
    assert loader.batch_size == 8 and len(loader.dataset) == 100
    assert len(cachew.torch.loader(known(), rank=1, world_size=3).dataset) == 100
    assert len(cachew.torch.loader(Dataset.range(100).batch(8, drop_remainder=True)).dataset) == 96
    assert len(cachew.torch.loader(Dataset.range(100)).dataset) == 100
    assert not hasattr(cachew.torch.loader(unknown()).dataset, "__len__")
    with pytest.raises(TypeError, match="the element 3 can't be read alone"):
        loader.dataset[3]


PIPELINES = {
    "known": known,
    "unknown": unknown,
    "elements": lambda: Dataset.range(30).shuffle(),
    "pieces": lambda: Dataset.concat([Dataset.range(50), Dataset.range(25)]).repeat(2).skip(3).batch(7),
    "some batches": lambda: Dataset.range(100).shuffle().batch(8).skip(3).take(7),
    "whole batches": lambda: Dataset.arrays({"value": np.arange(62)}).batch(4, drop_remainder=True),
    "flat_map": lambda: (
        Dataset.range(40).flat_map(lambda e: [{"value": e["value"]}] * 3, outputs={"value": "int64"}).batch(8)
    ),
}


class Skip:
    """A batch sampler without the first n batches of another one."""

    def __init__(self, batch_sampler, n):
        self.batch_sampler, self.n = batch_sampler, n

    def __iter__(self):
        return itertools.islice(self.batch_sampler, self.n, None)


def flat(batches):
    return [batch["value"].reshape(-1).tolist() for batch in batches]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_data_loader_over_its_parts_can_skip_batches(name):
    """As Accelerate makes one to resume in the middle of an epoch."""
    ds = PIPELINES[name]()
    for world_size in (1, 2):
        ranks = {"rank": world_size - 1, "world_size": world_size}
        second, third = (
            flat(b for b in ds.iterator(seed=1, epochs=4, **ranks) if b.epoch == e) for e in (2, 3)
        )
        for n in (0, 1, 3):
            loader = cachew.torch.loader(ds, seed=1, **ranks)
            loader.set_epoch(2)
            parts = torch.utils.data.DataLoader(
                loader.dataset, batch_sampler=Skip(loader.batch_sampler, n), collate_fn=loader.collate_fn
            )
            assert flat(parts) == second[n:] and loader.epoch == 2
            assert flat(loader) == third


def test_skipping_computes_nothing_where_batches_are_counted():
    loader = cachew.torch.loader(Dataset.range(10**6)._for_tests("fail", "value < 899990").batch(10))
    assert loader._skip(90000) == 0
    assert int(next(iter(loader))["value"][0]) == 900000 and loader.state_dict()["cachew"]["g"] == 90001


def test_an_epoch_that_was_set_during_a_loop_can_begin_with_any_batch():
    loader = cachew.torch.loader(known())
    next(iter(loader))
    loader.batch_sampler.set_epoch(3)
    parts = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=Skip(loader.batch_sampler, 4), collate_fn=loader.collate_fn
    )
    assert flat(parts) == expected(known(), 4)[3][4:]


def test_set_epoch():
    want = expected(known(), 5)
    for loader in loaders(known()):
        loader.set_epoch(3)
        assert loader.state_dict()["cachew"]["epoch"] == 3
        assert values(loader) == want[3]
        loader.set_epoch(4)  # the next one anyway
        assert values(loader) == want[4]
        loader.set_epoch(1)
        batches = iter(loader)
        assert values([next(batches), next(batches)]) == want[1][:2]
        state = loader.state_dict()
        loader.load_state_dict(state)
        loader.set_epoch(1)  # the epoch of the state: nothing changes
        assert values(loader) == want[1][2:]
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert values(loader) == want[0]
        batches = iter(loader)
        loader.set_epoch(4)  # nothing of the loop was delivered yet
        assert values([next(batches)]) == want[4][:1]
        loader.set_epoch(2)  # of the next loop
        assert values(batches) == want[4][1:] and values(loader) == want[2] and values(loader) == want[3]
        with pytest.raises(cachew.OptionError, match="epoch is -1"):
            loader.set_epoch(-1)


def test_batches_as_tuples():
    ds = Dataset.range(6).assign(double="value * 2").batch(3)
    for first, second in cachew.torch.loader(ds, as_tuple=("double", "value")):
        assert (first == 2 * second).all()
    with pytest.raises(cachew.OptionError, match=r"as_tuple is \['x'\]: expected .*, among double, value"):
        cachew.torch.loader(ds, as_tuple=["x"])


# ---- JAX ----


@needs_jax
def test_jax_arrays():
    loader = cachew.jax.loader(Dataset.synthetic(24, shape=(3,)).assign(n="int32(max(data) * 100)").batch(8))
    numpy = list(Dataset.synthetic(24, shape=(3,)).assign(n="int32(max(data) * 100)").batch(8))
    for batch, want in zip(loader, numpy, strict=True):
        assert type(batch) is dict and isinstance(batch["data"], jax.Array)
        np.testing.assert_array_equal(batch["data"], want["data"])
        np.testing.assert_array_equal(batch["n"], want["n"])


@needs_jax
def test_jax_dlpack():
    array = Dataset.synthetic(8, shape=(16,)).batch(8).peek()["data"]
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(array), array)


@needs_jax
def test_jax_arrays_stay_when_the_slab_is_used_again():
    ds = Dataset.range(4000).assign(x="float32(value)").batch(8)
    arrays = [b["x"] for b in cachew.jax.loader(ds, memory="4M")]
    assert [int(a[0]) for a in arrays] == list(range(0, 4000, 8))


@needs_jax
def test_jax_shards_over_local_devices(script):
    ran = script("""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import cachew, cachew.jax, jax
from jax.sharding import NamedSharding, PartitionSpec
loader = cachew.jax.loader(cachew.Dataset.range(64).batch(16))
batch = next(iter(loader))
shards = batch["value"].addressable_shards
print([list(map(int, s.data)) for s in shards][1], len(batch["value"].sharding.device_set))
replicated = NamedSharding(jax.make_mesh((4,), ("x",)), PartitionSpec())
loader = cachew.jax.loader(cachew.Dataset.range(64).batch(16), sharding=replicated)
print(len(next(iter(loader))["value"].addressable_shards[3].data))
try:
    list(cachew.jax.loader(cachew.Dataset.range(64).batch(10)))
except cachew.OptionError as error:
    print(error.attribute, "drop_remainder" in str(error))
""")
    assert ran.stdout.split("\n") == ["[4, 5, 6, 7] 4", "16", "batch_size True", ""], (ran.stdout, ran.stderr)


# ---- the state before the first batch ----


@pytest.mark.parametrize(
    "ds",
    [known(), unknown(), known().take(3), Dataset.range(50)],
    ids=["known", "unknown", "take", "elements"],
)
def test_the_state_before_the_first_batch_is_that_of_an_iterator(ds):
    with ds.iterator(seed=4) as it:
        want = it.state_dict()
        next(it)
        later = it.state_dict()
    for loader in loaders(ds, seed=4):
        assert loader.state_dict() == {"cachew": want}
        iter(loader)
        assert loader.state_dict() == {"cachew": want}
        loader.load_state_dict({"cachew": later})
        assert loader.state_dict() == {"cachew": later}
        loader.close()


def test_the_state_before_the_first_batch_starts_no_threads_and_processes():
    """An iterator was opened each time it was asked for: handlers of a timer, one within the other, came to
    hundreds of host processes.
    """
    ds = Dataset.range(100).map(lambda e: {"value": e["value"] + 1}, outputs={"value": "int64"}).batch(10)
    state = ds.iterator(seed=1).state_dict()
    for loader in loaders(ds, seed=1):
        with mock.patch("cachew._core.open") as opened:
            assert loader.state_dict() == {"cachew": state}
            loader.load_state_dict({"cachew": state})
        assert not opened.called


@pytest.mark.large
def test_a_timer_that_asks_for_the_state_before_the_first_batch(script):
    ran = script("""
import os, signal, time
import cachew, cachew.torch
def add(element):
    return {"value": element["value"] + 1}
ds = cachew.Dataset.range(100).map(add, outputs={"value": "int64"}).batch(10)
loader = cachew.torch.loader(ds, seed=1)
states, most = [], 0
def hosts():
    return len(open(f"/proc/self/task/{os.getpid()}/children").read().split())
def ask(number, frame):
    global most
    states.append(loader.state_dict())
    most = max(most, hosts())
    if not over:  # with an interval, handlers could come one within the other without end on a busy machine
        signal.setitimer(signal.ITIMER_REAL, 0.003)
over = False
signal.signal(signal.SIGALRM, ask)
signal.setitimer(signal.ITIMER_REAL, 0.003)
while len(states) < 300:
    time.sleep(0.01)
assert most == 0, most
first = next(iter(loader))
over = True
signal.setitimer(signal.ITIMER_REAL, 0)
later = loader.state_dict()
assert all(state == states[0] or state == later for state in states)
assert states[0]["cachew"]["g"] == 0 and later["cachew"]["g"] == 1
print(first["value"].tolist(), most <= 2 * os.cpu_count())
""")
    assert ran.stdout == "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10] True\n", (ran.stdout, ran.stderr)
