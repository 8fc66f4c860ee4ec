"""Batches from a service: those of this process, whatever happens to workers; states, errors, ends."""

import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import cachew
import numpy as np
import pytest
from cachew import Dataset
from conftest import COMMAND
from waiting import comes_to

MASK128 = (1 << 128) - 1


class Up:
    """`cachew up` with two workers."""

    def __init__(self, *options):
        self.process = subprocess.Popen([COMMAND, "up", "--workers", "2", "--listen", "127.0.0.1:0", "--end-with-stdin", "--drain-timeout", "5", *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ready = json.loads(self.process.stdout.readline())["ready"]
        self.address = self.ready["address"]

    def pids(self):
        return [self.ready["up"], self.ready["pid"], *(w["pid"] for w in self.ready["workers"])]

    def ask(self, what):
        return json.loads(subprocess.run([COMMAND, what, "--service", self.address, "--json"], check=True, capture_output=True, timeout=30).stdout)

    def job(self, name):
        return next((j for j in self.ask("jobs") if j["name"] == name), None)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(30)


@pytest.fixture(scope="module")
def service():
    up = Up()
    yield up
    assert up.end() == 0


@pytest.fixture
def own_service():
    """One that may be broken."""
    up = Up()
    yield up
    if up.process.poll() is None:
        up.end()


def runs(pid):
    """Whether a process is there, and not merely not yet reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def place(b):
    return b.epoch, b.g, b.split, b.index, b.flags, b.n_records


def all_of(iterator):
    """Everything that a user sees of batches."""
    found = []
    for b in iterator:
        arrays = {name: v.tolist() if isinstance(v, cachew.Bytes) else bytes(v) if isinstance(v, memoryview) else (v.dtype.name, v.shape, v.tobytes())
                  for name, v in b.items()}
        found.append((place(b), b.hash(), b.records, b.record_flags, arrays))
    return found


def values(batches):
    return [list(map(int, b["value"])) for b in batches]


def doubled(element):
    return {"value": element["value"] * 2, "text": str(int(element["value"])).encode() * 3}


def drawn(element, rng):
    return {"value": element["value"] + rng.integers(1000), "noise": rng.normal(size=3)}


def odd(element):
    return int(element["value"]) % 2 == 1


def several(element):
    for i in range(int(element["value"]) % 4):
        yield {"value": element["value"] * 10 + i}


def centred(batch):
    return {"value": batch["value"] - batch["value"].mean()}


def fails_at_seven(element):
    if element["value"] == 7:
        raise KeyError("seven")
    return {"value": element["value"]}


def pipelines(records):
    examples = Dataset.tfrecord(records / "plain-*.tfrecord").parse_example({"id": "int64", "tokens": {"dtype": "int64", "variable": True}})
    numbers = Dataset.range(500).shuffle()
    return {
        "counted": numbers.batch(16),
        "filter": numbers.filter("value % 3 != 0").batch(16),
        "buckets": examples.shuffle().bucket_by_length("length(tokens)", [3, 6], [4, 8, 8]),
        "concat": Dataset.concat([Dataset.range(100), Dataset.range(90, start=1000).repeat(2)]).shuffle().batch(9),
        "elements": Dataset.range(60).shuffle().assign(half="value / 2"),
        "bytes": Dataset.tfrecord(records / "plain-*.tfrecord").shuffle().batch(7),
        "skip": Dataset.range(100).assign(x="10 // (value - 7)").on_error("skip").batch(8),
        "replace": Dataset.range(100).assign(x="10 // (value - 7)").on_error("replace").batch(8),
        "map": numbers.map(doubled).batch(16),
        "rng": numbers.map(drawn).batch(16),
        "filter_function": numbers.filter(odd).batch(16),
        "flat_map": numbers.flat_map(several).batch(16),
        "map_batches": numbers.batch(16).map_batches(centred),
        "lambda": Dataset.sequence([{"value": k} for k in range(0, 90, 3)]).map(lambda e: {"value": -e["value"]}).batch(4),
    }


NAMES = ["counted", "filter", "buckets", "concat", "elements", "bytes", "skip", "replace", "map", "rng", "filter_function", "flat_map", "map_batches", "lambda"]


# ---- the same batches ----

@pytest.mark.parametrize("name", NAMES)
def test_batches_are_those_of_this_process(records, service, name):
    ds = pipelines(records)[name]
    it, local = ds.distribute(service.address, seed=7, epochs=3), ds.iterator(seed=7, epochs=3)
    assert all_of(it) == all_of(local)
    assert it.quarantine() == local.quarantine()


@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_transports(records, service, transport):
    for name in ("counted", "buckets", "bytes"):
        ds = pipelines(records)[name]
        assert all_of(ds.distribute(service.address, seed=2, transport=transport)) == all_of(ds.iterator(seed=2))


def test_photos(examples, service):
    ds = Dataset.load(examples / "photos.json").take(1)
    assert all_of(ds.distribute(service.address, seed=1)) == all_of(ds.iterator(seed=1))


@pytest.mark.parametrize("name", ["counted", "filter", "buckets", "rng"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_in_threads(records, service, name, world_size):
    ds = pipelines(records)[name]
    with ThreadPoolExecutor(world_size) as pool:
        parts = list(pool.map(lambda r: all_of(ds.distribute(service.address, job=f"{name}-{world_size}", rank=r, world_size=world_size, seed=3, epochs=2)),
                              range(world_size)))
    assert parts == [all_of(ds.iterator(rank=r, world_size=world_size, seed=3, epochs=2)) for r in range(world_size)]
    comes_to(lambda: service.job(f"{name}-{world_size}")["state"] == "done")


def of_rank(ds, address, rank):
    return all_of(ds.distribute(address, job="processes", rank=rank, world_size=2, seed=3))


def test_ranks_in_processes(records, service):
    ds = pipelines(records)["filter"]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(of_rank, [ds] * 2, [service.address] * 2, range(2)))
    assert parts == [all_of(ds.iterator(rank=r, world_size=2, seed=3)) for r in range(2)]


# ---- order any ----

def elements(batches):
    return sorted(v for b in batches if not b.is_padding for v in b["value"].tolist())


@pytest.mark.parametrize("name", ["counted", "filter", "map"])
@pytest.mark.parametrize("guarantee", [None, "at-most-once"])
def test_ranks_in_any_order_share_the_elements(records, service, name, guarantee):
    ds = pipelines(records)[name]
    job = f"any {name} {guarantee}"
    ranks = [ds.distribute(service.address, job=job, rank=r, world_size=2, seed=7, epochs=2, order="any", guarantee=guarantee) for r in range(2)]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(list, ranks))
    assert elements([b for batches in got for b in batches]) == elements(ds.iterator(seed=7, epochs=2))
    for rank, batches in enumerate(got):
        for epoch in range(2):
            assert [b.g for b in batches if b.epoch == epoch] == [rank + 2 * i for i in range(sum(b.epoch == epoch for b in batches))]
    job = service.job(job)
    assert (job["order"], job["guarantee"]) == ("any", guarantee or "exactly-once")


def test_a_state_in_any_order_is_one_rank_s(service):
    ds = Dataset.range(2000).filter("value % 3 != 0").shuffle().batch(8)

    def of_rank(rank, order="any", **options):
        return ds.distribute(service.address, job=f"states {rank} {order}", rank=rank, world_size=2, seed=1, order=order, **options)

    with of_rank(0) as it:
        first = [next(it) for _ in range(20)]
        state = it.state_dict()
    assert len(json.dumps(state)) <= 1024
    with of_rank(0, state=state) as it, of_rank(1) as other:
        with ThreadPoolExecutor(2) as pool:
            rest = [b for batches in pool.map(list, [it, other]) for b in batches]
    assert elements([*first, *rest]) == elements(ds.iterator(seed=1))
    for options in ({"rank": 1}, {"rank": 0, "order": "exact"}):
        with pytest.raises(cachew.StateError, match=r"rank is 0 of 2.*1 of 2|order is any.*exact"):
            of_rank(state=state, **options)


def test_sharding(service):
    ds = Dataset.range(300).filter("value % 3 != 0").shuffle().batch(8)
    whole = [b.hash() for b in ds.iterator(seed=1)]
    for rank in range(2):
        assert [b.hash() for b in ds.distribute(service.address, job="off", rank=rank, world_size=2, seed=1, sharding="off")] == whole
    assert service.job("off/1")["world_size"] == 1
    for policy in ("dynamic", "DYNAMIC", "OFF"):
        assert [b.hash() for b in ds.distribute(service.address, seed=1, sharding=policy)] == whole
    for policy in ("static", "FILE", "DATA", "file_or_data", "HINT"):
        with pytest.raises(cachew.OptionError, match='"dynamic" or "off"; which worker computes') as e:
            ds.distribute(service.address, sharding=policy)
        assert e.value.attribute == "sharding"


@pytest.mark.parametrize(("options", "attribute"), [({"order": "some"}, "order"), ({"guarantee": "never"}, "guarantee"), ({"order": "exact", "guarantee": "at-most-once"}, "order"),
                                                    ({"sharding": "some"}, "sharding")])
def test_wrong_orders_and_guarantees(service, options, attribute):
    with pytest.raises(cachew.OptionError) as e:
        Dataset.range(10).batch(2).distribute(service.address, **options)
    assert e.value.attribute == attribute


def test_an_epoch_of_one_split_is_no_several_ranks_in_any_order(service):
    ds = Dataset.range(100).filter("value % 2 == 0").take(20).batch(4)
    with pytest.raises(cachew.OptionError, match="one split"):
        ds.distribute(service.address, job="one split", rank=0, world_size=2, order="any")
    assert [b.hash() for b in ds.distribute(service.address, order="any")] == [b.hash() for b in ds]


def test_a_loader_in_any_order(service):
    torch_loader = pytest.importorskip("cachew.torch").loader
    ds = Dataset.range(400).shuffle().batch(8)
    with pytest.raises(cachew.OptionError, match="a service too"):
        torch_loader(ds, order="any")
    train = torch_loader(ds, seed=1, service=service.address, job="loader", order="any")
    for _ in range(2):
        assert sorted(v for batch in train for v in batch["value"].tolist()) == list(range(400))
    state = train.state_dict()
    train.close()
    again = torch_loader(ds, seed=1, service=service.address, job="loader", order="any")
    again.load_state_dict(state)
    assert sorted(v for batch in again for v in batch["value"].tolist()) == list(range(400)) and again.epoch == 2
    again.close()


# ---- states ----

@pytest.mark.parametrize("name", ["counted", "filter", "buckets", "concat", "rng"])
def test_a_state_fits_here_and_there(records, service, name):
    ds = pipelines(records)[name]
    whole = [(place(b), b.hash()) for b in ds.iterator(seed=4, epochs=2)]
    rng = random.Random(name)
    for _ in range(10):
        stop = rng.randrange(len(whole) + 1)

        def opened(here, state=None):
            return ds.iterator(seed=4, epochs=2, state=state) if here else ds.distribute(service.address, seed=4, epochs=2, state=state)

        first = opened(rng.random() < 0.3)
        begin = [next(first) for _ in range(stop)]
        state = first.state_dict()
        assert len(json.dumps(state)) <= 1024
        rest = opened(rng.random() < 0.3, state)
        if rng.random() < 0.3:
            rest = opened(rng.random() < 0.3)
            rest.load_state_dict(state)
        assert [(place(b), b.hash()) for b in [*begin, *rest]] == whole


@pytest.mark.parametrize("name", ["counted", "filter"])
def test_a_state_with_another_number_of_ranks(records, service, name):
    ds = pipelines(records)[name]
    whole = [b.hash() for b in ds.iterator(seed=5)]
    one = ds.distribute(service.address, seed=5)
    begin = [next(one).hash() for _ in range(6)]
    state = one.state_dict()
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda r: all_of(ds.distribute(service.address, job=f"resumed-{name}", rank=r, world_size=3, seed=5, state=state)), range(3)))
    assert parts == [all_of(ds.iterator(seed=5, rank=r, world_size=3, state=state)) for r in range(3)]
    rest = sorted((p, h) for part in parts for p, h, *_ in part if not p[4])
    assert begin + [h for _, h in rest] == whole


def test_a_state_that_does_not_fit_changes_nothing(service):
    ds = Dataset.range(100).shuffle().batch(5)
    it = ds.distribute(service.address, job="steady", seed=1)
    begin = [next(it) for _ in range(3)]
    with pytest.raises(cachew.StateError, match="seed"):
        it.load_state_dict(ds.iterator(seed=2).state_dict())
    with pytest.raises(cachew.StateError):
        it.load_state_dict("{}")
    assert values([*begin, *it]) == values(ds.iterator(seed=1))


def test_going_back_and_forth_in_one_job(service):
    ds = Dataset.range(300).shuffle().filter("value % 5 != 2").batch(7)
    whole = values(ds.iterator(seed=6))
    it = ds.distribute(service.address, job="there and back", seed=6)
    states = [it.state_dict()]
    for _ in whole:
        next(it)
        states.append(it.state_dict())
    for at in (0, 20, 3, len(whole), 11):
        it.load_state_dict(states[at])
        assert values(it) == whole[at:]


@pytest.mark.parametrize("batches", [11, 30])
def test_going_back_while_workers_are_full_of_later_splits(service, batches):
    """The state stands at the end of a split of one batch, which is wanted and finished: what is waited for is the next one."""
    ds = Dataset.range(100).shuffle().batch(8)
    it = ds.distribute(service.address, job=f"back from {batches}", seed=3, epochs=10, timeout_s=30)
    next(it), next(it)
    state = it.state_dict()
    for _ in range(batches):
        next(it)
    it.load_state_dict(state)
    assert values(it) == values(ds.iterator(seed=3, epochs=10))[2:]


# ---- what may happen to a service ----

def test_a_worker_is_killed(own_service):
    ds = Dataset.range(2000).shuffle().delay(us=500).batch(8)
    whole = values(ds.iterator(seed=1))
    it = ds.distribute(own_service.address, seed=1, timeout_s=60)
    got = values(next(it) for _ in range(20))
    os.kill(own_service.ready["workers"][0]["pid"], signal.SIGKILL)
    got += values(next(it) for _ in range(100))
    os.kill(own_service.ready["workers"][1]["pid"], signal.SIGKILL)
    assert got + values(it) == whole


def test_the_service_ends_while_batches_are_waited_for(own_service):
    batches = Dataset.range(100).fail("value >= 50", kind="hang").batch(5).distribute(own_service.address)
    first = next(batches)
    own_service.end()
    with pytest.raises(cachew.DeadlineError, match="the dispatcher at .* is not there"):
        for _ in range(20):
            assert batches.next(timeout_s=2) is not None
    assert list(first["value"]) == [0, 1, 2, 3, 4]


# ---- batches in hand ----

def test_many_batches_are_held_and_written_to(own_service):
    ds = Dataset.synthetic(300, shape=(100, 100), dtype="float32").batch(2)
    it = ds.distribute(own_service.address, transport="shm", timeout_s=60)
    held = []
    for b in it:
        b["data"][...] = len(held)
        held.append(b["data"])
    assert len(held) == 150
    del b
    it.close()
    kept = held[::3]
    del held
    gc.collect()
    again = [b.hash() for b in ds.distribute(own_service.address)]  # from memory that others have given back
    assert again == [b.hash() for b in ds.iterator()]
    own_service.end()
    for k, data in enumerate(kept):
        assert (data == 3 * k).all()
        data += 1
    assert all((data == 3 * k + 1).all() for k, data in enumerate(kept))


def test_batches_outlive_a_worker_that_leaves(own_service):
    """It goes in good order, and a job goes on elsewhere meanwhile: nobody may use again what is held."""
    ds = Dataset.synthetic(400, shape=(100, 100), dtype="float32").batch(2)
    it = ds.distribute(own_service.address, transport="shm", timeout_s=60)
    held = [next(it)["data"] for _ in range(60)]
    for k, data in enumerate(held):
        data[...] = k
    pid = own_service.ready["workers"][0]["pid"]
    os.kill(pid, signal.SIGTERM)
    comes_to(lambda: not runs(pid))
    assert len(list(it)) == 140
    assert all((data == k).all() for k, data in enumerate(held))


def test_batches_outlive_a_worker_that_stood_still(own_service):
    """It is taken for dead, its splits are run elsewhere; then it goes on."""
    ds = Dataset.synthetic(400, shape=(100, 100), dtype="float32").delay(us=500).batch(2)
    it = ds.distribute(own_service.address, transport="shm", timeout_s=60)
    held = [next(it)["data"] for _ in range(60)]
    for k, data in enumerate(held):
        data[...] = k
    worker = own_service.ready["workers"][0]
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        comes_to(lambda: not any(w["id"] == worker["id"] and w["state"] == "ready" for w in own_service.ask("workers")))
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    assert len(list(it)) == 140
    again = ds.distribute(own_service.address, seed=1)
    assert len(list(again)) == 200 and all((data == k).all() for k, data in enumerate(held))


def test_closing_ends_the_job_though_batches_are_held(service):
    ds = Dataset.range(1000).batch(5)
    it = ds.distribute(service.address, job="closed early")
    held = [next(it) for _ in range(3)]
    assert service.job("closed early")["ranks"][0]["attached"]
    it.close()
    comes_to(lambda: not service.job("closed early")["ranks"][0]["attached"])
    it = ds.distribute(service.address, job="closed at the end")
    held += list(it)
    it.close()
    comes_to(lambda: service.job("closed at the end")["state"] == "done")
    assert values(held) == values(ds.take(3)) + values(ds)


# ---- waits that end ----

def stuck():
    return Dataset.range(8).fail("true", kind="hang").batch(4)


def test_deadlines_say_what_was_waited_for(service):
    it = stuck().distribute(service.address, timeout_s=0.2)
    with pytest.raises(cachew.DeadlineError, match="within 0.2 s: a batch of split 0 in epoch 0 .*worker") as caught:
        next(it)
    assert caught.value.kind == "deadline"
    with pytest.raises(cachew.DeadlineError, match="within 0.1 s"):
        it.next(timeout_s=0.1)


def test_a_paused_job_is_not_late_and_the_log_says_what_is_waited_for(service, caplog):
    it = Dataset.range(100000).batch(8).distribute(service.address, job="paused", seed=1, timeout_s=1)
    values = list(next(it)["value"])
    subprocess.run([COMMAND, "jobs", "--service", service.address, "--pause", "paused"], check=True, timeout=30, stdout=subprocess.DEVNULL)

    def resume():  # once there was a warning, which is long after a second
        comes_to(lambda: any("the job is paused" in r.getMessage() for r in caplog.records))
        subprocess.run([COMMAND, "jobs", "--service", service.address, "--resume", "paused"], check=True, timeout=30, stdout=subprocess.DEVNULL)

    with ThreadPoolExecutor(1) as pool:
        resumed = pool.submit(resume)
        for b in it:
            values += list(b["value"])
        resumed.result()
    assert values == list(range(100000))
    assert {(r.name, r.levelname) for r in caplog.records} == {("cachew", "WARNING")}


def test_profile_says_who_waits_for_whom(service):
    it = Dataset.range(20).batch(2).distribute(service.address)
    next(it)
    profile = it.profile()
    assert profile["bottleneck"] in ("the service", "the consumer") and profile["lost_splits"] == 0
    assert [o["op"] for o in profile["operators"] if "op" in o] == ["range", "batch"]


def test_close_ends_a_wait(service):
    it = stuck().distribute(service.address)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, it)
        while True:
            try:
                it.state_dict()  # until the other thread is inside
            except cachew.UsageError:
                break
        it.close()
        with pytest.raises(cachew.UsageError, match="closed by another thread"):
            waiting.result(10)


INTERRUPTED = """
import sys
import cachew
ds = cachew.Dataset.range(8).fail("true", kind="hang").batch(4)
try:
    it = ds.distribute(sys.argv[1]) if sys.argv[2] == "next" else None
    print("waits", flush=True)
    next(it) if it else ds.distribute(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("where", ["next", "open"])
def test_interrupts_end_a_wait(service, tmp_path, where):
    address, dispatcher = service.address, None
    if where == "open":  # nobody is there who could look at the data
        dispatcher = subprocess.Popen([COMMAND, "dispatcher", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
        address = json.loads(dispatcher.stdout.readline())["ready"]["address"]
    file = tmp_path / "interrupted.py"
    file.write_text(INTERRUPTED)
    ran = subprocess.Popen([sys.executable, file, address, where], stdout=subprocess.PIPE, text=True)
    try:
        assert ran.stdout.readline() == "waits\n"
        begin = time.monotonic()
        comes_to(lambda: "S (sleeping)" in open(f"/proc/{ran.pid}/status").read())
        ran.send_signal(signal.SIGINT)
        assert ran.communicate(timeout=30)[0] == "interrupted\n" and time.monotonic() - begin < 20
    finally:
        ran.kill()
        ran.wait()
        if dispatcher:
            dispatcher.kill()
            dispatcher.wait()
            dispatcher.stdout.close()


# ---- errors ----

def error_of(call):
    with pytest.raises(cachew.Error) as caught:
        call()
    return caught.value


def facts(error):
    return type(error), str(error), error.kind, error.operator, error.attribute, error.value, error.expected, error.file, error.record


def test_a_function_that_raises_is_named_as_here(service):
    ds = Dataset.range(20).map(fails_at_seven, outputs={"value": "int64"}).batch(4)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert facts(here) == facts(there)
    assert isinstance(there, cachew.RecordError) and there.operator == "map" and there.record.endswith(":7") and "fails_at_seven: KeyError: 'seven'" in str(there)


class Deadly:
    """A function that ends the process that loads it."""

    def __reduce__(self):
        return os._exit, (3,)

    def __call__(self, element):
        return element


def test_a_stream_that_can_not_go_on_costs_no_worker(service):
    ds = Dataset.range(20).map(Deadly(), outputs={"value": "int64"}, version="1").batch(4)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert type(here) is type(there) and "exited with status 3" in str(there)
    assert values(Dataset.range(100).batch(5).distribute(service.address)) == values(Dataset.range(100).batch(5))
    assert [(w["id"], w["state"]) for w in service.ask("workers")] == [(w["id"], "ready") for w in service.ready["workers"]]


def test_a_record_that_fails_is_named_as_here(service):
    ds = Dataset.range(20).assign(x="10 // (value - 7)").batch(5)
    here, there = error_of(lambda: list(ds)), error_of(lambda: list(ds.distribute(service.address)))
    assert facts(here) == facts(there) and there.operator == "assign"


def test_batches_before_one_that_fails(service):
    it = Dataset.range(2000).assign(x="10 // (value - 1700)").batch(10).distribute(service.address)
    got = 0
    with pytest.raises(cachew.RecordError):
        for _ in it:
            got += 1
    assert got == 170


def test_files_that_a_worker_does_not_have(service, tmp_path):
    error = error_of(lambda: Dataset.text(tmp_path / "none-*.txt").batch(4).distribute(service.address))
    assert "none-*.txt" in str(error) and "on a worker of the service" in str(error) and error.file == str(tmp_path / "none-*.txt")


def test_files_outside_the_roots_of_workers(records, tmp_path):
    up = Up("--data-root", str(tmp_path))
    try:
        error = error_of(lambda: Dataset.tfrecord(records / "plain-*.tfrecord").batch(4).distribute(up.address))
        assert str(records) in str(error) and f"below {tmp_path}" in str(error)
    finally:
        up.end()


def test_functions_where_they_are_not_allowed():
    up = Up("--no-python")
    try:
        error = error_of(lambda: list(Dataset.range(9).map(doubled, outputs={"value": "int64", "text": "bytes"}).batch(4).distribute(up.address)))
        assert "--allow-python" in str(error) and error.operator == "map"
    finally:
        up.end()


def test_arrays_in_memory_can_not_travel(service):
    error = error_of(lambda: Dataset.arrays({"x": np.arange(9)}).batch(4).distribute("127.0.0.1:1"))  # before anybody is asked
    assert error.kind == "pipeline" and error.operator == "arrays" and "in the memory of this process" in str(error)
    joined = Dataset.concat([Dataset.range(9).rename({"value": "x"}), Dataset.arrays({"x": np.arange(9)})]).batch(4)
    assert error_of(lambda: joined.distribute(service.address)).operator == "arrays"


def test_nobody_at_the_address():
    error = error_of(lambda: Dataset.range(9).distribute("127.0.0.1:1", open_timeout_s=0.5))
    assert isinstance(error, cachew.ServiceError) and isinstance(error, ConnectionError) and error.kind == "service" and "127.0.0.1:1" in str(error)


def break_connections_to_workers():
    """Those of this process over Unix sockets. How many there were."""
    broken = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(fd)) as s:
                if s.family == socket.AF_UNIX and s.getpeername().endswith("/socket"):
                    s.shutdown(socket.SHUT_RDWR)
                    broken += 1
        except OSError:  # it is closed by now, or has no peer
            continue
    return broken


def test_batches_that_are_held_stay_as_they_are_when_their_connection_breaks():
    """The workers have memory for little more, and would use it again: they must know that it is in use, and learn later what no longer is."""
    ds = Dataset.synthetic(count=1600, shape=(64, 1024), dtype="uint8").shuffle().batch(2)
    here = [b.hash() for b in ds.iterator(seed=3)]
    up = Up("--memory", "96M")
    it = ds.distribute(up.address, seed=3, transport="shm")
    held, there, broken = [], [], []
    for i, b in enumerate(it):
        there.append(b.hash())
        if i < 100:
            held.append((b, b["data"].copy()))
        if i in (50, 99, 400, 401):
            broken.append(break_connections_to_workers())
    assert sum(broken) >= 4
    assert there == here
    assert all(np.array_equal(b["data"], was) for b, was in held)
    assert {link["transport"] for link in it.profile()["links"]} == {"shm"}
    del b
    held.clear()
    it.close()
    assert up.end() == 0


def test_no_worker_in_time():
    dispatcher = subprocess.Popen([COMMAND, "dispatcher", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
    try:
        address = json.loads(dispatcher.stdout.readline())["ready"]["address"]
        error = error_of(lambda: Dataset.range(9).distribute(address, job="early", open_timeout_s=0.2))
        assert error.kind == "deadline" and "early" in str(error) and address in str(error) and "workers" in str(error)
    finally:
        dispatcher.terminate()
        dispatcher.wait(30)
        dispatcher.stdout.close()


@pytest.mark.parametrize(("options", "attribute"), [({"world_size": 2}, "job"), ({"transport": "pigeon"}, "transport"), ({"job": ""}, "job"),
                                                    ({"workers": 2}, "workers"), ({"rank": 2, "world_size": 2, "job": "x"}, "rank")])
def test_options_that_are_wrong(service, options, attribute):
    error = error_of(lambda: Dataset.range(9).distribute(service.address, **options))
    assert isinstance(error, cachew.OptionError) and error.attribute == attribute


@pytest.mark.parametrize("address", ["nonsense", "localhost:port", "localhost:99999999", ""])
def test_addresses_that_are_none(address):
    error = error_of(lambda: Dataset.range(9).distribute(address))
    assert isinstance(error, cachew.OptionError) and error.attribute == "service"


def test_the_library_starts_no_service(service):
    """"local" is the package's; whoever comes by the C interface is told so."""
    from cachew._options import make_options, with_service

    error = error_of(lambda: cachew._core.open(Dataset.range(9)._pipeline, with_service(make_options(), "local", job=None)))
    assert "HOST:PORT" in str(error) and error.attribute == "service"


def test_ranks_that_are_not_of_one_mind(service):
    ds = Dataset.range(100).batch(4)
    it = ds.distribute(service.address, job="mind", rank=0, world_size=2)
    assert "mind" in str(error_of(lambda: ds.distribute(service.address, job="mind", rank=1, world_size=3)))
    assert "mind" in str(error_of(lambda: ds.take(3).distribute(service.address, job="mind", rank=1, world_size=2)))
    assert "mind" in str(error_of(lambda: ds.distribute(service.address, job="mind", rank=1, world_size=2, seed=9)))
    it.close()


# ---- loaders ----

@pytest.mark.parametrize("ds", [Dataset.range(100).shuffle().batch(8), Dataset.range(100).shuffle().filter("value % 3 != 1").batch(8)], ids=["counted", "filter"])
def test_a_torch_loader(service, ds):
    pytest.importorskip("torch")
    from cachew.torch import loader

    def loop(batches):
        return [b["value"].tolist() for b in batches]

    here, there = loader(ds, seed=3), loader(ds, seed=3, service=service.address, job=f"loader {len(repr(ds))}")
    assert there.state_dict() == here.state_dict()
    assert [loop(there) for _ in range(3)] == [loop(here) for _ in range(3)] and there.epoch == here.epoch == 2
    for batches in (iter(here), iter(there)):
        for _ in range(5):
            next(batches)
    state = there.state_dict()
    assert state == here.state_dict()
    want = [loop(here), loop(here)]  # of epochs 4 and 5: the one that was left is over
    assert [loop(there), loop(there)] == want
    for fresh in (loader(ds, seed=3, service=service.address), loader(ds, seed=3), there):
        fresh.load_state_dict(state)
        rest = [loop(fresh), loop(fresh)]
        assert rest[0] == values(ds.iterator(seed=3, first_epoch=3, epochs=4))[5:] and rest[1] == want[0]
        fresh.close()


def test_the_length_of_a_loader_is_its_ranks(service, tmp_path):
    pytest.importorskip("torch")
    from cachew.torch import loader

    ds = Dataset.range(100).batch(8)
    assert len(loader(ds, rank=0, world_size=2, service=service.address, job="length")) == len(loader(ds, rank=0, world_size=2)) == 7
    (tmp_path / "a.txt").write_text("1\n2\n")
    away = loader(Dataset.text(tmp_path / "a.txt").batch(1), service=service.address)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(TypeError, match="where the workers are"):
        len(away)


# ---- ends ----

def test_nothing_is_left_of_jobs(service):
    def counts():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def job(k):
        it = Dataset.range(200).shuffle().batch(5).distribute(service.address, job=f"short {k}")
        held = [next(it) for _ in range(5 + k)]
        if k % 3 == 0:
            it.close()
        elif k % 3 == 1:
            list(it)
        return len(held)

    job(0)
    before = counts()
    for k in range(20):
        assert job(k) == 5 + k
    comes_to(lambda: counts() <= before)


def test_iterators_end_with_the_process(service, script):
    ran = script("""
import sys, cachew
it = cachew.Dataset.range(1000).batch(5).distribute(sys.argv[1], job="forgotten")
keep = [next(it), next(it)["value"]]
""", service.address)
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    comes_to(lambda: not service.job("forgotten")["ranks"][0]["attached"])


def test_a_forked_child(service, script):
    ran = script("""
import os, sys, cachew
ds = cachew.Dataset.range(100).batch(10)
it = ds.distribute(sys.argv[1])
first = next(it)
pid = os.fork()
if pid == 0:
    try:
        next(it)
    except cachew.UsageError as error:
        code = 0 if "forked child" in str(error) and list(first["value"]) == list(range(10)) else 2
    it.close()
    del it, first
    if sum(b["value"].sum() for b in ds.distribute(sys.argv[1])) != 4950:
        code = 4
    sys.exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [b.g for b in it])
""", service.address)
    assert ran.stdout.strip() == f"0 {list(range(1, 10))}", (ran.stdout, ran.stderr)


# ---- "local" ----

def test_a_local_service(script):
    ran = script("""
import os, cachew
from cachew import _service
ds = cachew.Dataset.range(100).shuffle().map(lambda e: {"value": e["value"] * 3}).batch(8)
want = [b.hash() for b in ds.iterator(seed=1)]
assert [b.hash() for b in ds.distribute("local", workers=2, seed=1)] == want
pid = _service._service._process.pid
assert [b.hash() for b in ds.take(2).distribute("local", seed=1)] == [b.hash() for b in ds.take(2).iterator(seed=1)]
it = ds.distribute("local", seed=1)
next(it)
it.load_state_dict(it.state_dict())
assert [b.hash() for b in it] == want[1:] and _service._service._process.pid == pid
try:
    ds.distribute("local", workers=3)
except cachew.OptionError as error:
    print(error.attribute, error.value)
print(pid)
""")
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    said, pid = ran.stdout.splitlines()
    assert said == "workers 3" and not runs(pid)


def descendants(pid):
    found = [pid]
    for p in found:
        with open(f"/proc/{p}/task/{p}/children") as file:
            found += map(int, file.read().split())
    return found[1:]


def test_a_local_service_ends_with_a_process_that_is_killed(tmp_path):
    """Though it has a forked child that lives on."""
    file = tmp_path / "killed.py"
    file.write_text("""
import os, sys, cachew
it = cachew.Dataset.range(100).batch(5).distribute("local", workers=2)
next(it)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
from cachew import _service
print(_service._service._process.pid, flush=True)
sys.stdin.read()
""")
    ran = subprocess.Popen([sys.executable, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    up = int(ran.stdout.readline())
    pids = [up, *descendants(up)]
    assert len(pids) == 4 and all(map(runs, pids))
    ran.kill()
    ran.wait()
    comes_to(lambda: not any(map(runs, pids)))
    ran.stdin.close()
    ran.stdout.close()


def test_a_forked_child_has_a_local_service_of_its_own(script):
    ran = script("""
import os, sys, cachew
from cachew import _service
ds = cachew.Dataset.range(100).batch(10)
it = ds.distribute("local")
next(it)
mine = _service._service._process.pid
pid = os.fork()
if pid == 0:
    good = sum(b["value"].sum() for b in ds.distribute("local")) == 4950 and _service._service._process.pid != mine
    _service._end()
    os._exit(0 if good else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [b.g for b in it], _service._service.runs())
""")
    assert ran.stdout.strip() == f"0 {list(range(1, 10))} True", (ran.stdout, ran.stderr)


def test_a_local_service_that_ended_is_replaced(script):
    ran = script("""
import os, signal, cachew
from cachew import _service
ds = cachew.Dataset.range(100).batch(10)
list(ds.distribute("local"))
process = _service._service._process
process.send_signal(signal.SIGTERM)
process.wait()
print(len(list(ds.distribute("local"))), _service._service._process.pid != process.pid)
""")
    assert ran.stdout.strip() == "10 True", (ran.stdout, ran.stderr)


def test_a_local_service_that_does_not_start(tmp_path, monkeypatch):
    from cachew import _service

    def starts(text):
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\n{text}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(_service, "find_command", lambda: str(fake))
        return error_of(lambda: Dataset.range(9).distribute("local"))

    monkeypatch.setattr(_service, "READY_S", 0.2)
    assert "no place here" in str(starts("echo no place here >&2; exit 1")) and isinstance(starts("exit 1"), cachew.ServiceError)
    assert isinstance(starts("cat >/dev/null"), cachew.DeadlineError)
    assert "says this" in str(starts("echo says this; cat >/dev/null"))
    assert _service._service is None


def test_the_command_is_missing(tmp_path, monkeypatch):
    from cachew import _service

    monkeypatch.setattr(_service, "__file__", str(tmp_path / "_service.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(tmp_path) in str(error_of(lambda: Dataset.range(9).distribute("local")))
    (tmp_path / "cachew").symlink_to(COMMAND)
    assert _service.find_command() == str(tmp_path / "cachew")
