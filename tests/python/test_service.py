"""Batches from a service: those of this process, whatever happens to workers; states, orders, loaders."""

import contextlib
import gc
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cachew
import pytest
from cachew import Dataset
from deadlines import HANG_S, wait_for
from service_runs import all_of, doubled, place, runs, values


def drawn(element, rng):
    return {"value": element["value"] + rng.integers(1000), "noise": rng.normal(size=3)}


def odd(element):
    return int(element["value"]) % 2 == 1


def several(element):
    for i in range(int(element["value"]) % 4):
        yield {"value": element["value"] * 10 + i}


def centred(batch):
    return {"value": batch["value"] - batch["value"].mean()}


def pipelines(records):
    examples = Dataset.tfrecord(records / "plain-*.tfrecord").parse_example(
        {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}
    )
    numbers = Dataset.range(500).shuffle()
    return {
        "counted": numbers.batch(16),
        "filter": numbers.filter("value % 3 != 0").batch(16),
        "buckets": examples.shuffle().bucket_by_length("length(tokens)", [3, 6], [4, 8, 8]),
        "concat": Dataset.concat([Dataset.range(100), Dataset.range(90, start=1000).repeat(2)])
        .shuffle()
        .batch(9),
        "elements": Dataset.range(60).shuffle().assign(half="value / 2"),
        "bytes": Dataset.tfrecord(records / "plain-*.tfrecord").shuffle().batch(7),
        "skip": Dataset.range(100).assign(x="10 // (value - 7)").on_error("skip").batch(8),
        "replace": Dataset.range(100).assign(x="10 // (value - 7)").on_error("replace").batch(8),
        "map": numbers.map(doubled).batch(16),
        "rng": numbers.map(drawn).batch(16),
        "filter_function": numbers.filter(odd).batch(16),
        "flat_map": numbers.flat_map(several).batch(16),
        "map_batches": numbers.batch(16).map_batches(centred),
        "lambda": Dataset.sequence([{"value": k} for k in range(0, 90, 3)])
        .map(lambda e: {"value": -e["value"]})
        .batch(4),
    }


NAMES = [
    "counted",
    "filter",
    "buckets",
    "concat",
    "elements",
    "bytes",
    "skip",
    "replace",
    "map",
    "rng",
    "filter_function",
    "flat_map",
    "map_batches",
    "lambda",
]


# ---- the same batches ----


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
def test_batches_are_those_of_this_process(records, service, name):
    ds = pipelines(records)[name]
    it, local = ds.distribute(service.address, seed=7, epochs=3), ds.iterator(seed=7, epochs=3)
    assert all_of(it) == all_of(local)
    assert it.quarantine() == local.quarantine()


@pytest.mark.parametrize("name", ["counted", "skip", "replace", "map_batches", "bytes"])
def test_batches_whose_parts_lie_on_several_workers(records, divided, name):
    """Those that map_batches is called with are joined by the client."""
    ds = pipelines(records)[name]
    it, local = ds.distribute(divided.address, seed=7, epochs=3), ds.iterator(seed=7, epochs=3)
    assert all_of(it) == all_of(local)
    assert it.quarantine() == local.quarantine()


@pytest.mark.large
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_transports(records, service, transport):
    for name in ("counted", "buckets", "bytes"):
        ds = pipelines(records)[name]
        assert all_of(ds.distribute(service.address, seed=2, transport=transport)) == all_of(
            ds.iterator(seed=2)
        )


def test_photos(examples, service):
    ds = Dataset.load(examples / "photos.json").take(1)
    assert all_of(ds.distribute(service.address, seed=1)) == all_of(ds.iterator(seed=1))


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("world_size, name", [(2, "filter"), (2, "rng"), (3, "counted"), (3, "buckets")])
def test_ranks_in_threads(records, service, name, world_size):
    ds = pipelines(records)[name]
    with ThreadPoolExecutor(world_size) as pool:
        parts = list(
            pool.map(
                lambda r: all_of(
                    ds.distribute(
                        service.address,
                        job=f"{name}-{world_size}",
                        rank=r,
                        world_size=world_size,
                        seed=3,
                        epochs=2,
                    )
                ),
                range(world_size),
            )
        )
    assert parts == [
        all_of(ds.iterator(rank=r, world_size=world_size, seed=3, epochs=2)) for r in range(world_size)
    ]
    wait_for(lambda: service.job(f"{name}-{world_size}")["state"] == "done")


def of_rank(ds, address, rank):
    return all_of(
        ds.distribute(address, job="processes", rank=rank, world_size=2, seed=3, open_timeout_s=None)
    )


@pytest.mark.large
def test_ranks_in_processes(records, service):
    ds = pipelines(records)["filter"]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(of_rank, [ds] * 2, [service.address] * 2, range(2)))
    assert parts == [all_of(ds.iterator(rank=r, world_size=2, seed=3)) for r in range(2)]


# ---- order any ----


def elements(batches):
    return sorted(v for b in batches if not b.is_padding for v in b["value"].tolist())


@pytest.mark.large(keep=0)
@pytest.mark.parametrize(
    ("name", "guarantee"), [("counted", None), ("filter", None), ("map", None), ("counted", "at-most-once")]
)
def test_ranks_in_any_order_get_the_batches_of_exact_order(records, service, name, guarantee):
    ds = pipelines(records)[name]
    job = f"any {name} {guarantee}"
    ranks = [
        ds.distribute(
            service.address, job=job, rank=r, world_size=2, seed=7, epochs=2, order="any", guarantee=guarantee
        )
        for r in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(list, ranks))
    assert {(b.epoch, b.g): b.hash() for batches in got for b in batches if not b.is_padding} == {
        (b.epoch, b.g): b.hash() for b in ds.iterator(seed=7, epochs=2)
    }
    assert all(b.g % 2 == rank for rank, batches in enumerate(got) for b in batches)
    job = service.job(job)
    assert (job["order"], job["guarantee"]) == ("any", guarantee or "exactly-once")


def test_a_take_behind_a_filter_at_most_once_is_for_one_rank(service):
    ds = Dataset.range(100).filter("value % 2 == 0").take(20).batch(4)
    with pytest.raises(cachew.OptionError, match="and a `take` after a filter") as e:
        ds.distribute(service.address, job="lossy", rank=0, world_size=2, guarantee="at-most-once")
    assert e.value.attribute == "guarantee"


def test_a_state_with_batches_handed_out_early_is_one_rank_s(service):
    """The first batch comes late: the state says which others were handed out."""
    ds = Dataset.range(2000)._for_tests("delay", us=3_000_000, where="value == 3").batch(8)

    def of_rank(rank, order="any", **options):
        return ds.distribute(
            service.address,
            job=f"states {rank} {order}",
            rank=rank,
            world_size=2,
            seed=1,
            order=order,
            **options,
        )

    with of_rank(0) as it:
        first = [next(it) for _ in range(20)]
        state = it.state_dict()
    assert len(json.dumps(state)) <= 1024
    for options in ({"rank": 1}, {"rank": 0, "order": "exact"}):
        with pytest.raises(cachew.StateError, match=r"rank 0 of 2.*rank 1 of 2|order.*any.*exact"):
            of_rank(state=state, **options)
    with of_rank(0, state=state) as it:
        rest = list(it)
    assert sorted(b.g for b in [*first, *rest]) == list(range(0, 250, 2))


def test_sharding(service):
    ds = Dataset.range(300).filter("value % 3 != 0").shuffle().batch(8)
    whole = [b.hash() for b in ds.iterator(seed=1)]
    for rank in range(2):
        assert [
            b.hash()
            for b in ds.distribute(
                service.address, job="off", rank=rank, world_size=2, seed=1, sharding="off"
            )
        ] == whole
    assert service.job("off/1")["world_size"] == 1
    for policy in ("dynamic", "DYNAMIC", "OFF"):
        assert [b.hash() for b in ds.distribute(service.address, seed=1, sharding=policy)] == whole
    for policy in ("static", "FILE", "DATA", "file_or_data", "HINT"):
        with pytest.raises(cachew.OptionError, match='"dynamic" or "off"; which worker reads') as e:
            ds.distribute(service.address, sharding=policy)
        assert e.value.attribute == "sharding"


@pytest.mark.parametrize(
    ("options", "attribute"),
    [
        ({"order": "some"}, "order"),
        ({"guarantee": "never"}, "guarantee"),
        ({"order": "exact", "guarantee": "at-most-once"}, "order"),
        ({"sharding": "some"}, "sharding"),
    ],
)
def test_wrong_orders_and_guarantees(service, options, attribute):
    with pytest.raises(cachew.OptionError) as e:
        Dataset.range(10).batch(2).distribute(service.address, **options)
    assert e.value.attribute == attribute


def test_an_epoch_of_one_range_has_one_order(service):
    ds = Dataset.range(100).filter("value % 2 == 0").take(20).batch(4)
    assert [b.hash() for b in ds.distribute(service.address, order="any")] == [b.hash() for b in ds]
    assert [
        b.g for b in ds.distribute(service.address, job="one range", rank=1, world_size=2, order="any")
    ] == [1, 3, 5]


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
    assert (
        sorted(v for batch in again for v in batch["value"].tolist()) == list(range(400)) and again.epoch == 2
    )
    again.close()


# ---- states ----


@pytest.mark.large
@pytest.mark.parametrize("name", ["counted", "filter", "buckets", "concat", "rng"])
def test_a_state_fits_here_and_there(records, service, name):
    ds = pipelines(records)[name]
    whole = [(place(b), b.hash()) for b in ds.iterator(seed=4, epochs=2)]
    rng = random.Random(name)
    for _ in range(10):
        stop = rng.randrange(len(whole) + 1)

        def opened(here, state=None):
            return (
                ds.iterator(seed=4, epochs=2, state=state)
                if here
                else ds.distribute(service.address, seed=4, epochs=2, state=state)
            )

        first = opened(rng.random() < 0.3)
        begin = [next(first) for _ in range(stop)]
        state = first.state_dict()
        assert len(json.dumps(state)) <= 1024
        rest = opened(rng.random() < 0.3, state)
        if rng.random() < 0.3:
            rest = opened(rng.random() < 0.3)
            rest.load_state_dict(state)
        assert [(place(b), b.hash()) for b in [*begin, *rest]] == whole


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("name", ["counted", "filter"])
def test_a_state_with_another_number_of_ranks(records, service, name):
    ds = pipelines(records)[name]
    whole = [b.hash() for b in ds.iterator(seed=5)]
    one = ds.distribute(service.address, seed=5)
    begin = [next(one).hash() for _ in range(6)]
    state = one.state_dict()
    with ThreadPoolExecutor(3) as pool:
        parts = list(
            pool.map(
                lambda r: all_of(
                    ds.distribute(
                        service.address, job=f"resumed-{name}", rank=r, world_size=3, seed=5, state=state
                    )
                ),
                range(3),
            )
        )
    assert parts == [all_of(ds.iterator(seed=5, rank=r, world_size=3, state=state)) for r in range(3)]
    rest = sorted((p, h) for part in parts for p, h, *_ in part if not p[2])
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
def test_going_back_while_workers_are_full_of_later_ranges(service, batches):
    """The state stands at the end of a range of one batch, which is wanted and finished: what is waited for
    is the next one.
    """
    ds = Dataset.range(100).shuffle().batch(8)
    it = ds.distribute(service.address, job=f"back from {batches}", seed=3, epochs=10, timeout_s=HANG_S)
    next(it), next(it)
    state = it.state_dict()
    for _ in range(batches):
        next(it)
    it.load_state_dict(state)
    assert values(it) == values(ds.iterator(seed=3, epochs=10))[2:]


# ---- what may happen to a service ----


def test_a_worker_is_killed(own_service):
    ds = Dataset.range(2000).shuffle()._for_tests("delay", us=500).batch(8)
    whole = values(ds.iterator(seed=1))
    it = ds.distribute(own_service.address, seed=1, timeout_s=HANG_S)
    got = values(next(it) for _ in range(20))
    os.kill(own_service.ready["workers"][0]["pid"], signal.SIGKILL)
    got += values(next(it) for _ in range(100))
    os.kill(own_service.ready["workers"][1]["pid"], signal.SIGKILL)
    assert got + values(it) == whole


def test_the_cpu_time_of_functions_is_their_workers(own_service, command):
    def computes(element):
        ends = time.process_time() + 0.02
        while time.process_time() < ends:
            pass
        return {"value": element["value"]}

    for _ in Dataset.range(100).map(computes).batch(10).distribute(own_service.address, timeout_s=HANG_S):
        pass

    def cpu_s():
        words = [command, "workers", "--service", own_service.address, "--json"]
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return sum(worker["cpu_s"] for worker in json.loads(out))

    wait_for(lambda: cpu_s() >= 2)  # it comes with the next heartbeat


@pytest.mark.large
def test_the_service_ends_while_batches_are_waited_for(own_service):
    batches = (
        Dataset.range(100)
        ._for_tests("fail", "value >= 50", kind="hang")
        .batch(5)
        .distribute(own_service.address)
    )
    first = next(batches)
    own_service.end()

    def says_why():
        """Whether the client has noticed by now. Before that it says that a worker computes the batch."""
        try:
            assert batches.next(timeout_s=0.5) is not None
        except cachew.DeadlineError as error:
            return re.search("the dispatcher at .* can't be reached", str(error))
        return False

    wait_for(says_why)
    assert list(first["value"]) == [0, 1, 2, 3, 4]


def end_unix_connections():
    """Ends this process's connections to the Unix sockets of workers, as a fault would."""
    for link in Path("/proc/self/fd").iterdir():
        if not link.is_socket():
            continue
        # OSError: not connected
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(link.name))) as s:
            if s.family == socket.AF_UNIX and "cachew-worker-" in str(s.getpeername()):
                s.shutdown(socket.SHUT_RDWR)


def test_a_link_that_moves_to_tcp_says_so(own_service):
    """After a connection over the Unix socket has ended, the worker's TCP address is tried first."""
    ds = Dataset.range(4000)._for_tests("delay", us=500).batch(8)
    it = ds.distribute(own_service.address, seed=1, timeout_s=HANG_S)
    got = values(next(it) for _ in range(20))
    assert {link["transport"] for link in it.profile()["links"]} == {"shm"}
    end_unix_connections()
    got += values(it)
    assert "tcp" in {link["transport"] for link in it.profile()["links"]}
    assert got == values(ds.iterator(seed=1))


# ---- batches in hand ----


def test_many_batches_are_held_and_written_to(own_service):
    ds = Dataset.synthetic(300, shape=(100, 100), dtype="float32").batch(2)
    it = ds.distribute(own_service.address, transport="shm", timeout_s=HANG_S)
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


@pytest.mark.large
def test_batches_outlive_a_worker_that_leaves(own_service):
    """It goes in good order, and a job goes on elsewhere meanwhile: nobody may use again what is held."""
    ds = Dataset.synthetic(400, shape=(100, 100), dtype="float32").batch(2)
    it = ds.distribute(own_service.address, transport="shm", timeout_s=HANG_S)
    held = [next(it)["data"] for _ in range(60)]
    for k, data in enumerate(held):
        data[...] = k
    pid = own_service.ready["workers"][0]["pid"]
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not runs(pid))
    assert len(list(it)) == 140
    assert all((data == k).all() for k, data in enumerate(held))


def test_batches_outlive_a_worker_that_stood_still(impatient_service):
    """It is taken for dead, its ranges are run elsewhere; then it goes on."""
    ds = Dataset.synthetic(400, shape=(100, 100), dtype="float32")._for_tests("delay", us=500).batch(2)
    it = ds.distribute(impatient_service.address, transport="shm", timeout_s=HANG_S)
    held = [next(it)["data"] for _ in range(60)]
    for k, data in enumerate(held):
        data[...] = k
    worker = impatient_service.ready["workers"][0]
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        wait_for(
            lambda: (
                not any(
                    w["id"] == worker["id"] and w["state"] == "ready"
                    for w in impatient_service.ask("workers")
                )
            )
        )
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    assert len(list(it)) == 140
    again = ds.distribute(impatient_service.address, seed=1)
    assert len(list(again)) == 200 and all((data == k).all() for k, data in enumerate(held))


def test_closing_ends_the_job_though_batches_are_held(service):
    ds = Dataset.range(1000).batch(5)
    it = ds.distribute(service.address, job="closed early")
    held = [next(it) for _ in range(3)]
    wait_for(lambda: service.job("closed early")["ranks"][0]["attached"])
    it.close()
    wait_for(lambda: not service.job("closed early")["ranks"][0]["attached"])
    it = ds.distribute(service.address, job="closed at the end")
    held += list(it)
    it.close()
    wait_for(lambda: service.job("closed at the end")["state"] == "done")
    assert values(held) == values(ds.take(3)) + values(ds)


# ---- loaders ----


@pytest.mark.parametrize(
    "ds",
    [Dataset.range(100).shuffle().batch(8), Dataset.range(100).shuffle().filter("value % 3 != 1").batch(8)],
    ids=["counted", "filter"],
)
def test_a_torch_loader(service, ds):
    pytest.importorskip("torch")
    from cachew.torch import loader

    def loop(batches):
        return [b["value"].tolist() for b in batches]

    here, there = (
        loader(ds, seed=3),
        loader(ds, seed=3, service=service.address, job=f"loader {len(repr(ds))}"),
    )
    assert there.state_dict() == here.state_dict()
    assert [loop(there) for _ in range(3)] == [
        loop(here) for _ in range(3)
    ] and there.epoch == here.epoch == 2
    for batches in (iter(here), iter(there)):
        for _ in range(5):
            next(batches)
    states = there.state_dict(), here.state_dict()  # they may be places that differ and mean the same
    want = [loop(here), loop(here)]  # of epochs 4 and 5: the one that was left is over
    assert [loop(there), loop(there)] == want
    for fresh in (loader(ds, seed=3, service=service.address), loader(ds, seed=3), there):
        for state in states:
            fresh.load_state_dict(state)
            rest = [loop(fresh), loop(fresh)]
            assert rest[0] == values(ds.iterator(seed=3, first_epoch=3, epochs=4))[5:] and rest[1] == want[0]
        fresh.close()


def test_the_length_of_a_loader_is_its_ranks(service, tmp_path):
    pytest.importorskip("torch")
    from cachew.torch import loader

    ds = Dataset.range(100).batch(8)
    assert (
        len(loader(ds, rank=0, world_size=2, service=service.address, job="length"))
        == len(loader(ds, rank=0, world_size=2))
        == 7
    )
    (tmp_path / "a.txt").write_text("1\n2\n")
    away = loader(Dataset.text(tmp_path / "a.txt").batch(1), service=service.address)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(TypeError, match="only the workers can read the data"):
        len(away)
