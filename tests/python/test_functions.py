"""Python functions in host processes: what they compute, what happens when they misbehave, and what they are known by."""

import collections
import collections.abc
import dataclasses
import functools
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import cachew
from cachew import Dataset
from cachew._identity import identity_of

MASK = (1 << 128) - 1


def digest(ds, **options):
    total = 0
    with ds.iterator(**options) as batches:
        for batch in batches:
            total += batch.hash()
    return total & MASK


def values(ds, name="value", **options):
    with ds.iterator(**options) as batches:
        return [v for batch in batches for v in np.atleast_1d(batch[name]).tolist()]


def hosts(parent=None):
    """Process ids of the hosts that a process started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if int(stat[1]) == (parent or os.getpid()) and b"_host" in command and stat[0] != "Z":
                found.append(int(entry))
    return found


def run_python(code, *args, **options):
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=100, **options)


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def plus(element):
    return {"value": element["value"] + 3}


# ---- what they compute ----


def test_map_is_the_function_of_each_element():
    ds = Dataset.range(1000).map(plus).batch(64)
    assert values(ds) == [i + 3 for i in range(1000)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads_or_memory(threads):
    ds = Dataset.range(3000).shuffle().map(plus).filter(lambda e: e["value"] % 3 != 0).batch(32)
    assert digest(ds, threads=threads) == digest(ds, threads=3, memory="8M")


DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_every_dtype_goes_there_and_back(dtype):
    source = Dataset.synthetic(count=50, shape=[2, 3], dtype=dtype)
    ds = source.map(lambda e: {"data": e["data"], "one": e["data"][1, 2]})
    assert (ds.schema["data"].dtype, ds.schema["data"].shape, ds.schema["one"].shape) == (dtype, (2, 3), ())
    for before, after in zip(source.batch(7), ds.batch(7)):
        assert before["data"].tobytes() == after["data"].tobytes()
        assert after["one"].tobytes() == before["data"][:, 1, 2].tobytes()


def test_shapes_and_strings_that_vary():
    def make(e):
        n = int(e["value"])
        return {"s": b"x" * (n % 5), "t": "é" * (n % 3), "a": np.full((n % 4, 2), n, np.int16), "deep": np.zeros((1, 1, 1, 1, n % 2, 1), np.uint8)}

    outputs = {"s": "bytes", "t": bytes, "a": (np.int16, (None, 2)), "deep": ("uint8", None)}
    for i, element in enumerate(Dataset.range(200).map(make, outputs=outputs)):
        expected = make({"value": i})
        assert bytes(element["s"]) == expected["s"]
        assert bytes(element["t"]).decode() == expected["t"]
        assert element["a"].tolist() == expected["a"].tolist()
        assert element["deep"].shape == expected["deep"].shape


def test_the_function_receives_what_the_element_is():
    def look(e):
        return {"what": f"{type(e['path']).__name__} {type(e['value']).__name__} {type(e['rows']).__name__} {e['rows'].shape} {e['path'].decode()}"}

    ds = Dataset.range(3).map(lambda e: {"path": f"p{int(e['value'])}", "value": np.float32(1), "rows": np.zeros((2, int(e["value"]) % 1 + 1))}).map(look)
    assert [bytes(e["what"]).decode() for e in ds] == [f"bytes float32 ndarray (2, 1) p{i}" for i in range(3)]


def test_inputs_may_be_written_to():
    def scribble(e):
        before = e["data"].copy()
        e["data"][:] = 0
        return {"data": before}

    source = Dataset.synthetic(count=3000, shape=[5])
    assert digest(source.map(scribble).batch(10)) == digest(source.batch(10))


def test_flat_map_gives_each_record_its_elements():
    def parts(e):
        for i in range(int(e["value"]) % 4):
            yield {"value": e["value"] * 10 + i, "s": b"y" * i}

    ds = Dataset.range(500).flat_map(parts, outputs={"value": "int64", "s": "bytes"}).batch(16)
    batches = list(ds)
    assert [v for b in batches for v in b["value"].tolist()] == [v * 10 + i for v in range(500) for i in range(v % 4)]
    assert [bytes(s) for b in batches for s in b["s"]] == [b"y" * i for v in range(500) for i in range(v % 4)]
    records = [r.partition(":")[2] for b in batches for r in b.records]
    assert records == [f"{v}.{i}" for v in range(500) for i in range(v % 4)]


def test_flat_maps_in_a_row_number_what_is_given_and_nothing_else():
    """Elements that were dropped, or give nothing, or failed, take no number; an error names the element that failed."""
    def three(e):
        return [{"value": e["value"] * 10 + i} for i in range(3)]

    def some(e):
        if e["value"] == 11:
            raise ValueError("eleven")
        return [e] * (e["value"] % 4)

    ds = Dataset.range(3).flat_map(three).filter("value != 1").flat_map(some)
    with pytest.raises(cachew.RecordError) as caught:
        list(ds)
    assert caught.value.record.partition(":")[2] == "1.1"
    it = ds.on_error("skip").iterator()
    found = [(int(e["value"]), e.records[0].partition(":")[2]) for e in it]
    expected = {2: "0.0 0.1", 10: "1.0 1.1", 21: "2.0", 22: "2.1 2.2"}
    assert found == [(value, record) for value, records in expected.items() for record in records.split()]
    assert [q["record"].partition(":")[2] for q in it.quarantine()] == ["1.1"]


def test_flat_map_in_a_row_with_draws_and_shuffle_is_the_same_everywhere():
    def twice(e, rng):
        return [{"value": e["value"], "x": rng.random()} for _ in range(2)]

    ds = (Dataset.range(2000).shuffle().flat_map(twice).filter("value % 5 != 1").flat_map(lambda e: [e] * 3).batch(50))
    assert digest(ds, threads=1) == digest(ds, threads=4, memory="6M") == digest(ds, threads=2, optimize=False)
    xs = values(ds, "x", threads=2)
    assert len(xs) == 1600 * 6
    assert len(set(xs)) == 1600 * 2


def test_map_batches_sees_the_batches_as_they_are_delivered():
    def look(b):
        assert isinstance(b["s"], cachew.Bytes)
        return {"sum": np.full(len(b["value"]), b["value"].sum()), "value": b["value"], "s": [bytes(s) * 2 for s in b["s"]]}

    base = Dataset.range(1000).map(lambda e: {"value": e["value"], "s": str(e["value"])})
    for ds in (base.shuffle().batch(33), base.shuffle().filter("value % 7 != 2").batch(33), base.batch(33, drop_remainder=True)):
        for before, after in zip(ds.iterator(threads=2), ds.map_batches(look).iterator(threads=3)):
            assert after["value"].tolist() == before["value"].tolist()
            assert set(after["sum"].tolist()) == {before["value"].sum()}
            assert after["s"].tolist() == [s * 2 for s in before["s"].tolist()]
            assert after.records == before.records


@pytest.mark.parametrize("bad", [3, 127])  # in a batch of one split, and in one that is joined from two
@pytest.mark.parametrize("left_out", [{"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2}, None])
def test_map_batches_that_fails_ends_the_run_whoever_gets_the_batch(bad, left_out):
    def picky(b):
        assert bad not in b["value"], "bad"
        return b

    ds = Dataset.range(200).filter("value % 7 != 6").batch(8).map_batches(picky, outputs={"value": "int64"})
    with pytest.raises(cachew.RecordError, match="bad"):
        list(ds.iterator(**left_out) if left_out else ds.skip(16))


def test_map_batches_may_change_shapes_and_stand_in_a_row():
    ds = (Dataset.synthetic(count=100, shape=[4, 4], dtype="uint8").batch(8)
          .map_batches(lambda b: {"half": b["data"].astype(np.float16).reshape(len(b["data"]), 16)})
          .map_batches(lambda b, rng: {"mixed": b["half"][rng.permutation(len(b["half"]))]}).take(5))
    assert ds.schema == {"mixed": ("float16", (16,))}
    assert [b["mixed"].shape for b in ds] == [(8, 16)] * 5
    assert digest(ds, threads=1) == digest(ds, threads=4)


def test_rng_is_keyed_by_seed_epoch_and_record():
    ds = Dataset.range(300).map(lambda e, rng: {"value": e["value"], "x": rng.integers(0, 1 << 60)}).shuffle().batch(20)

    def draws(**options):
        with ds.iterator(**options) as batches:
            return {(b.epoch, v): x for b in batches for v, x in zip(b["value"].tolist(), b["x"].tolist())}

    first = draws(seed=1, epochs=2, threads=1)
    assert first == draws(seed=1, epochs=2, threads=4)
    assert len(set(first.values())) == 600
    assert not set(first.values()) & set(draws(seed=2).values())


def test_rng_is_numpys_philox_with_the_documented_key():
    import xxhash

    ds = Dataset.range(5).map(lambda e, rng: {"x": rng.random(4)})
    for i, element in enumerate(ds.iterator(seed=7)):
        key, row = element.records[0].split(":")
        operator = xxhash.xxh3_64_intdigest(np.array([7, 0], "<u8").tobytes() + b"map/0")  # seed, epoch, salt
        element_id = xxhash.xxh3_64_intdigest(np.array([int(key, 16), int(row)], "<u8").tobytes())
        expected = np.random.Generator(np.random.Philox(key=np.array([operator, element_id], np.uint64))).random(4)
        assert element["x"].tolist() == expected.tolist(), i


def test_callable_objects_methods_and_partials():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, e):
            return {"value": e["value"] * self.by}

        def method(self, e):
            return self(e)

    def scaled(by, e):
        return {"value": e["value"] * by}

    for function in (Scale(3), Scale(3).method, functools.partial(scaled, 3)):
        assert values(Dataset.range(10).map(function).batch(4)) == [3 * i for i in range(10)]


def test_albumentations_drops_in():
    albumentations = pytest.importorskip("albumentations")
    transform = albumentations.Compose([albumentations.HorizontalFlip(p=1), albumentations.CenterCrop(4, 4)])
    source = Dataset.synthetic(count=20, shape=[6, 8, 3], dtype="uint8")
    ds = source.map(lambda e: {"data": transform(image=e["data"])["image"]})
    for before, after in zip(source, ds):
        assert after["data"].tolist() == before["data"][1:5, ::-1][:, 2:6].tolist()


# ---- iterables and sequences ----


def numbers():
    for i in range(1000):
        yield {"value": i, "s": b"z" * (i % 3)}


def test_iterable_gives_its_elements_in_order():
    ds = Dataset.iterable(numbers).batch(64)
    assert values(ds, epochs=2) == [*range(1000), *range(1000)]
    assert digest(ds, threads=1) == digest(ds, threads=4, memory="4M")


def test_iterable_can_be_shuffled_filtered_and_limited():
    shuffled = values(Dataset.iterable(numbers).shuffle().batch(10))
    assert sorted(shuffled) == list(range(1000))
    assert shuffled != sorted(shuffled)
    assert values(Dataset.iterable(numbers).filter("value % 2 == 0").skip(5).take(7).batch(3)) == [10, 12, 14, 16, 18, 20, 22]


def test_endless_iterables_end_with_take():
    def endless():
        i = 0
        while True:
            yield {"value": i}
            i += 1

    assert values(Dataset.iterable(endless).shuffle().take(500).batch(50), seed=3) == values(Dataset.iterable(endless).shuffle().batch(50).take(10), seed=3)


def test_iterable_of_an_object_that_can_be_iterated_again():
    assert values(Dataset.iterable([{"value": i} for i in range(10)]).batch(4), epochs=2) == [*range(10)] * 2
    with pytest.raises(TypeError, match="once"):
        Dataset.iterable(iter([{"value": 1}]))


def test_iterable_that_raises_says_after_how_many():
    def broken():
        yield from numbers()
        raise ValueError("the stream broke")

    got = []
    with pytest.raises(cachew.DataError, match=r"broken: ValueError: the stream broke .*after 1000 elements"):
        for batch in Dataset.iterable(broken).batch(10):
            got += batch["value"].tolist()
    assert got == list(range(1000))


def test_iterable_whose_host_is_killed_goes_on_where_it_was():
    def slow():
        for i in range(300):
            time.sleep(0.002)
            yield {"value": i}

    ds = Dataset.iterable(slow).batch(10)
    got = []
    for batch in ds:
        got += batch["value"].tolist()
        if len(got) in (50, 150):
            for pid in hosts():
                os.kill(pid, signal.SIGKILL)
    assert got == list(range(300))


def test_streams_refuse_what_needs_their_end():
    with pytest.raises(cachew.PipelineError, match="repeat.*stream"):
        values(Dataset.iterable(numbers).repeat(2).batch(4))
    with pytest.raises(cachew.PipelineError, match="concat.*stream"):
        values(Dataset.concat([Dataset.iterable(numbers), Dataset.iterable(numbers)]).batch(4))


def test_sequence_is_random_access():
    items = [{"value": i * i, "t": "abc"[: i % 4]} for i in range(100)]
    ds = Dataset.sequence(items).shuffle().batch(10)
    assert len(ds) == 10
    assert sorted(values(ds)) == [i * i for i in range(100)]


# ---- misbehaviour ----


def killing(kind):
    def kill(e):
        if e["value"] == 123:
            os.kill(os.getpid(), signal.SIGSEGV) if kind == "signal" else os._exit(7)
        return {"value": e["value"]}

    return kill


@pytest.mark.parametrize("kind,said", [("signal", "signal 11"), ("exit", "exited with status 7")])
def test_a_record_that_kills_its_host_each_time(kind, said):
    ds = Dataset.range(500).map(killing(kind)).batch(10)
    with pytest.raises(cachew.RecordError, match=f"map: killing.<locals>.kill: its host process .*{said}.*attempts") as caught:
        values(ds)
    assert caught.value.record.endswith(":123")
    assert caught.value.operator == "map"
    assert values(ds.on_error("skip")) == [i for i in range(500) if i != 123]
    with ds.on_error("replace").iterator() as batches:
        got = [v for b in batches for v in b["value"].tolist()]
        assert len(got) == 500 and 123 not in got
        (listed,) = batches.quarantine()
        assert listed["action"] == "replaced" and said in listed["reason"]


def test_hosts_killed_at_random_change_nothing():
    ds = Dataset.range(6000).shuffle().map(lambda e, rng: {"value": e["value"], "x": rng.random(10)}).flat_map(lambda e: [e] * 2).batch(40)
    expected = digest(ds)
    stop = threading.Event()
    killed = 0

    def killer():
        nonlocal killed
        dice = random.Random(5)
        while killed < 12 and not stop.wait(dice.uniform(0.1, 0.5)):  # fewer than make a host give up
            for pid in hosts()[:1]:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        for run in range(60):
            if run < 3 or killed <= 3:
                assert digest(ds, threads=(1, 2, 4)[run % 3]) == expected
    finally:
        stop.set()
        thread.join()
    assert killed > 3


def test_a_function_that_sleeps_for_ever():
    def sleep(e):
        if e["value"] == 40:
            time.sleep(10000)
        return {"value": e["value"]}

    ds = Dataset.range(100).map(sleep, timeout_s=0.3).batch(10)
    with pytest.raises(cachew.RecordError, match="took longer than timeout_s, 0.3 s"):
        values(ds)
    assert values(ds.on_error("skip")) == [i for i in range(100) if i != 40]


def test_a_function_that_allocates_without_end():
    def hog(e):
        kept = []
        while e["value"] == 5:
            kept.append(np.ones(1 << 20))
        return {"value": e["value"]}

    ds = Dataset.range(10).map(hog, host_memory="300M").batch(5)
    with pytest.raises(cachew.RecordError, match="more than host_memory, 314572800"):
        values(ds)


@pytest.mark.parametrize("function,message", [
    (lambda e: 1 // (e["value"] - 50 and 1 or 0) and {"value": e["value"]}, "ZeroDivisionError"),
    (lambda e: {"value": e["value"] if e["value"] != 50 else np.zeros(2, np.int64)}, r'returned int64\[2\] as "value", expected int64\[\]'),
    (lambda e: {"value": e["value"] if e["value"] != 50 else np.float32(1)}, 'returned float32.* as "value", expected int64'),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else 7, "returned int, expected a dict of value"),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else None, "returned NoneType, expected a dict"),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else {"value": None}, 'returned NoneType as "value"'),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else {"other": 1}, 'returned "other"; its outputs are value'),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else {}, 'did not return "value"'),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else sys.exit(3), "SystemExit: 3"),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else {"value": 1 << 70}, "which is no int64"),
    (lambda e: {"value": e["value"]} if e["value"] != 50 else {"value": "text"}, 'returned .* as "value", expected int64'),
])
def test_what_fails_by_itself_is_one_records(function, message):
    ds = Dataset.range(100).map(function, outputs={"value": "int64"}).batch(10)
    with pytest.raises(cachew.RecordError, match=message) as caught:
        values(ds)
    assert caught.value.record.endswith(":50")
    assert values(ds.on_error("skip")) == [i for i in range(100) if i != 50]
    with ds.on_error("skip").iterator() as batches:
        collections.deque(batches, 0)
        assert [q["record"].partition(":")[2] for q in batches.quarantine()] == ["50"]


def test_flat_map_whose_element_is_wrong_fails_its_record():
    ds = Dataset.range(20).flat_map(lambda e: [{"value": 1}, {"value": 2 if e["value"] != 7 else "x"}], outputs={"value": "int64"}).batch(8)
    with pytest.raises(cachew.RecordError, match='as "value", expected int64') as caught:
        values(ds)
    assert caught.value.record.partition(":")[2].startswith("7")
    assert len(values(ds.on_error("skip"))) == 38
    with pytest.raises(cachew.PipelineError, match="replace"):
        ds.on_error("replace")


@pytest.mark.parametrize("function,message", [
    (lambda b: {"value": b["value"][:-1]}, r"returned int64\[9\] as \"value\", expected int64\[\] for each of 10 rows"),
    (lambda b: {"value": b["value"].astype(np.int8)}, "returned int8"),
    (lambda b: {}["value"], "KeyError"),
    (lambda b: os._exit(9), "exited with status 9"),
])
def test_map_batches_that_fails_raises(function, message):
    ds = Dataset.range(100).batch(10).map_batches(function, outputs={"value": "int64"})
    for one in (ds, ds.on_error("skip")):
        with pytest.raises(cachew.RecordError, match=message):
            values(one)


def test_a_function_that_breaks_the_hosts_descriptors():
    def scribble(e):
        os.write(3, b"nonsense that is no frame of the protocol")
        return {"value": e["value"]}

    with pytest.raises(cachew.RecordError, match="something else than an answer"):
        values(Dataset.range(3).map(scribble, outputs={"value": "int64"}).batch(1))


def test_functions_that_can_not_be_loaded_or_pickled():
    class Unloadable:
        def __call__(self, e):
            return e

        def __reduce__(self):
            return (exec, ("import a_module_that_is_not_there",))

    with pytest.raises(cachew.PipelineError, match="can't be loaded in a host process: ModuleNotFoundError.*a_module_that_is_not_there"):
        Dataset.range(3).map(Unloadable())
    lock = threading.Lock()
    with pytest.raises(cachew.PipelineError, match="pickle|hash"):
        Dataset.range(3).map(lambda e: {"value": lock.locked()})
    with pytest.raises(TypeError, match="takes a function"):
        Dataset.range(3).map("value + 1")


def test_mistakes_are_raised_where_they_were_written():
    with pytest.raises(cachew.RecordError, match="ZeroDivisionError"):
        Dataset.range(3).map(lambda e: 1 // 0)
    with pytest.raises(cachew.RecordError, match="no dtype of a component"):
        Dataset.range(3).map(lambda e: {"value": object()})
    with pytest.raises(cachew.PipelineError, match='outputs .*int65.*expected for "value" a dtype .*int64'):
        Dataset.range(3).map(plus, outputs={"value": "int65"})
    with pytest.raises(cachew.PipelineError, match="timeout_s"):
        Dataset.range(3).map(plus, timeout_s=-1)
    with pytest.raises(cachew.PipelineError, match="map_batches"):
        Dataset.range(3).batch(2).map(plus, outputs={"value": "int64"})
    with pytest.raises(cachew.PipelineError, match="before a batcher"):
        Dataset.range(3).map_batches(plus, outputs={"value": "int64"})
    with pytest.raises(cachew.PipelineError, match="no element to infer"):
        Dataset.range(3).flat_map(lambda e: [])


@pytest.mark.parametrize("option", [{"timeout_s": float("nan")}, {"timeout_s": float("inf")}, {"version": 5}, {"version": ""}, {"deterministic": "no"}])
def test_options_of_functions_are_checked(option):
    with pytest.raises(cachew.PipelineError, match=f"^map: {next(iter(option))} is .*: expected"):
        Dataset.range(3).map(plus, **option)


@pytest.mark.parametrize("source", [Dataset.iterable, Dataset.sequence])
def test_a_source_of_python_says_what_it_takes(source):
    with pytest.raises(TypeError, match=f"{source.__name__}\\(\\) takes .* not a int"):
        source(5)


def test_functions_that_are_not_deterministic_are_reported():
    code = """if 1:
        import cachew, random
        def dice(e): return {"value": e["value"] + random.randrange(1 << 40)}
        ds = cachew.Dataset.range(20000).map(dice, outputs={"value": "int64"}, deterministic=bool(int(__import__("sys").argv[1]))).batch(100)
        with ds.iterator() as it:
            for b in it: pass
            for q in it.quarantine(): print(q["action"], q["reason"])
    """
    done = run_python(code, "1")
    said = done.stdout.splitlines()
    assert done.stderr.count("RuntimeWarning: map: dice: gave two different results for one record; if that is meant, say deterministic=False") == 1
    assert said and all(line.startswith("differs dice: gave two different results") for line in said)
    assert run_python(code, "0").stdout == ""


def test_prints_reach_the_user_with_their_origin():
    code = """if 1:
        import cachew, sys
        def talk(e):
            if e["value"] == 3: print("hello from", int(e["value"])); print("and errors", file=sys.stderr)
            return e
        for b in cachew.Dataset.range(5).map(talk, outputs={"value": "int64"}).batch(5): pass
    """
    done = run_python(code)
    assert done.stdout == ""
    assert [line.partition("] ") [2] for line in done.stderr.splitlines()] == ["hello from 3", "and errors"]
    assert all(line.startswith("[host ") and ", talk] " in line for line in done.stderr.splitlines())


# ---- life of processes ----


def test_interrupt_ends_a_wait_for_a_function_at_once():
    code = """if 1:
        import cachew, time, sys
        def sleep(e): time.sleep(1000); return e
        ds = cachew.Dataset.range(5).map(sleep, outputs={"value": "int64"}).batch(1)
        print("ready", flush=True)
        try:
            for b in ds: pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    until(lambda: hosts(process.pid))
    pids = hosts(process.pid)
    time.sleep(0.3)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (out, err) == ("interrupted\n", "")
    assert time.monotonic() - start < 5
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_hosts_do_not_outlive_a_process_that_is_killed():
    code = """if 1:
        import cachew
        def busy(e):
            sum(range(10**11))
            return e
        for b in cachew.Dataset.range(5).map(busy, outputs={"value": "int64"}).batch(1): pass
    """
    process = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: hosts(process.pid))
    pids = hosts(process.pid)
    time.sleep(0.2)
    process.kill()
    process.wait()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_a_forked_child_has_hosts_of_its_own():
    ds = Dataset.range(100).map(plus).batch(10)
    expected = digest(ds)
    before = set(hosts())
    pid = os.fork()
    if pid == 0:
        ok = digest(ds) == expected and set(hosts(os.getppid())) == before and hosts()
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert digest(ds) == expected


def test_the_garbage_collector_ends_what_break_leaves():
    ds = Dataset.range(100000).map(plus).batch(10)
    for _ in range(20):
        for _batch in ds:
            break
    assert len(hosts()) <= 40


# ---- state and identity ----


def test_state_goes_on_with_functions():
    ds = (Dataset.range(900).shuffle().map(lambda e, rng: {"value": e["value"], "x": rng.random()}).flat_map(lambda e: [e] * (int(e["value"]) % 3), outputs={
        "value": "int64", "x": "float64"}).batch(16))
    batches = [b.hash() for b in ds.iterator(epochs=2)]
    dice = random.Random(1)
    for _ in range(10):
        k = dice.randrange(len(batches) + 1)
        with ds.iterator(epochs=2, threads=dice.choice([1, 2, 4])) as it:
            head = [next(it).hash() for _ in range(k)]
            state = it.state_dict()
        assert len(json.dumps(state)) <= 1024
        with ds.iterator(epochs=2, threads=dice.choice([1, 3]), state=state) as it:
            assert head + [b.hash() for b in it] == batches


@pytest.mark.parametrize("after", [71, 130, 1000])
def test_what_an_iterable_raises_behind_a_full_take_is_not_seen(after):
    def breaks():
        yield from ({"value": i} for i in range(after))
        raise OSError("dry")

    ds = Dataset.iterable(breaks).take(70)
    for threads in (1, 3):
        assert values(ds.batch(10), threads=threads) == values(ds, threads=threads) == list(range(70))
    with pytest.raises(cachew.DataError, match="dry"):
        list(Dataset.iterable(breaks).take(after + 1).batch(10))


def test_iterable_state_goes_on():
    ds = Dataset.iterable(numbers).shuffle().batch(30)
    batches = [b.hash() for b in ds]
    for k in (0, 1, 17, 33):
        with ds.iterator() as it:
            head = [next(it).hash() for _ in range(k)]
            state = it.state_dict()
        assert head + [b.hash() for b in ds.iterator(state=state)] == batches


def test_a_dataset_with_functions_pickles():
    ds = Dataset.range(50).map(lambda e: {"value": e["value"] * 2}).batch(8)
    assert values(pickle.loads(pickle.dumps(ds))) == values(ds)
    assert repr(pickle.loads(pickle.dumps(ds))) == repr(ds)


SPAWNED = """
import json, multiprocessing, sys
import numpy as np
from cachew import Dataset

K = 7

class Plus:
    def __init__(self, n): self.n = n
    def __call__(self, e): return {"value": e["value"] + self.n + K}

def double(e): return {"value": e["value"] * 2 + K}

def dataset(): return Dataset.range(10).map(double).map(Plus(1)).batch(5)

def child(state):
    print(next(dataset().iterator())["value"].tolist(), next(dataset().iterator(state=state))["value"].tolist(), flush=True)

if __name__ == "__main__":
    with dataset().iterator() as it:
        next(it)
        state = it.state_dict()
    process = multiprocessing.get_context(sys.argv[1]).Process(target=child, args=(state,))
    process.start()
    process.join(60)
    print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_functions_of_the_script_work_in_processes_that_it_spawned(script, method):
    ran = script(SPAWNED, method)
    assert ran.stdout.split("\n") == ["[15, 17, 19, 21, 23] [25, 27, 29, 31, 33]", "0", ""], ran.stderr


IDENTITY = """
import numpy as np
from cachew._identity import identity_of
TABLE = {"b": 2, "a": 1}
WORDS = {"some", "words", "in", "a", "set", "of", "texts"}
def helper(x): return x in {"alpha", "beta", "gamma", "delta"} and TABLE["a"]
class Thing:
    def __init__(self, n): self.n = n; self.rng = np.random.default_rng()
    def __call__(self, e): return helper(e) + self.n
def outer(k):
    a = np.arange(k)
    return lambda e, w=("x", 1.5): (helper(e), a, WORDS, [y for y in {"p", "q", "r"}], w)
print(identity_of(outer(4)), identity_of(Thing(3)), identity_of(np.sqrt), identity_of(str.upper))
"""


def test_identity_is_the_same_in_every_process():
    seen = {run_python(IDENTITY, env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2", "3", "random")}
    assert len(seen) == 1
    assert len(set(seen.pop().split())) == 4


LIMIT = 5


def uses_global(e):
    return e["value"] < LIMIT


def test_identity_sees_constants_defaults_closures_globals_and_callees(monkeypatch):
    def make(k, default=1):
        def inner(e, d=default):
            return e["value"] + k + d

        return inner

    assert identity_of(make(1)) == identity_of(make(1)) != identity_of(make(2))
    assert identity_of(make(1)) != identity_of(make(1, 2))
    assert identity_of(lambda e: e["value"] + 1) != identity_of(lambda e: e["value"] + 2)
    assert identity_of(lambda e: e["value"] in {1, 2}) != identity_of(lambda e: e["value"] in {1, 3})
    before = identity_of(uses_global)
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert identity_of(uses_global) != before
    recursive: list = []
    recursive.append(recursive)
    assert identity_of(lambda e: recursive) == identity_of(lambda e: recursive)


DIGITS = re.compile(r"\d+")


class Kept(collections.abc.Sequence):
    """What sequence() takes, of the user's own."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"value": i * 2}


def test_patterns_have_an_identity_and_work():
    assert identity_of(re.compile("a")) == identity_of(re.compile("a")) != identity_of(re.compile("b"))
    assert identity_of(re.compile("a")) != identity_of(re.compile("a", re.IGNORECASE))
    assert values(Dataset.range(3).map(lambda e: {"value": len(DIGITS.findall("a1" * e["value"]))})) == [0, 1, 2]


def test_abstract_classes_have_an_identity_and_work():
    assert identity_of(Kept(3)) == identity_of(Kept(3)) != identity_of(Kept(4))
    assert values(Dataset.sequence(Kept(4))) == [0, 2, 4, 6]


def test_views_have_the_identity_of_what_they_show():
    assert identity_of(memoryview(b"ab")) == identity_of(memoryview(b"ab")) != identity_of(memoryview(b"ac"))
    one, two = {"a": 1, "b": 2}, {"a": 1, "b": 3}
    assert identity_of(one.keys()) == identity_of(two.keys()) != identity_of({"b": 1, "a": 2}.keys())
    assert identity_of(one.values()) != identity_of(two.values()) and identity_of(one.items()) != identity_of(two.items())
    shown = one.values()
    assert values(Dataset.range(2).map(lambda e: {"value": e["value"] + sum(shown)})) == [3, 4]


def test_identity_does_not_change_when_an_object_is_pickled():
    class Fresh:
        def __init__(self):
            self.n = 1

    before = identity_of(Fresh())
    cloudpickle.dumps(Fresh())
    assert "__slotnames__" in vars(Fresh) and identity_of(Fresh()) == before


@dataclasses.dataclass
class Annotated:
    """Classes carry their annotations with them."""

    size: tuple[int | None, ...] | None
    names: dict[str, list[int]] | None = None

    def __call__(self, e):
        return {"value": e["value"] + len(self.size or ())}


def test_annotations_have_an_identity():
    assert identity_of(Annotated((1,))) == identity_of(Annotated((1,))) != identity_of(Annotated(None))
    assert identity_of(list[int]) != identity_of(list[str]) != identity_of(tuple[str])
    assert identity_of(int | None) != identity_of(int | str)
    assert values(Dataset.range(3).map(Annotated((1,)))) == [1, 2, 3]


def test_a_state_of_another_function_is_refused():
    def state_of(function, **options):
        with Dataset.range(100).map(function, **options).batch(10).iterator() as it:
            next(it)
            return it.state_dict()

    state = state_of(lambda e: {"value": e["value"] + 1})
    with pytest.raises(cachew.StateError, match="another pipeline"):
        Dataset.range(100).map(lambda e: {"value": e["value"] + 2}).batch(10).iterator(state=state)
    Dataset.range(100).map(lambda e: {"value": e["value"] + 1}, timeout_s=5).batch(10).iterator(state=state).close()
    named = state_of(lambda e: {"value": e["value"] + 1}, version="1")
    Dataset.range(100).map(lambda e: {"value": e["value"] + 3}, version="1").batch(10).iterator(state=named).close()


# ---- what was found by trying ----


def test_elements_of_no_bytes():
    empty = lambda e: {"x": np.zeros((0, 3))}  # noqa: E731
    for ds in (Dataset.range(20).map(empty), Dataset.range(20).flat_map(lambda e: [empty(e)]), Dataset.iterable(lambda: [empty(0)] * 20)):
        assert [b["x"].shape for b in ds.batch(10)] == [(10, 0, 3)] * 2
        assert [e["x"].shape for e in ds] == [(0, 3)] * 20


def test_functions_may_use_their_arrays_and_dicts_again():
    class Reuses:
        def __init__(self):
            self.out = {"x": np.zeros(3, np.int64), "y": np.zeros((), np.int64), "s": bytearray(2)}

        def fill(self, v):
            self.out["x"][:] = v
            self.out["y"][...] = v
            self.out["s"][:] = bytes([v % 7, v % 5])
            return self.out

        def __call__(self, e):
            return self.fill(int(e["value"]))

        def several(self, e):
            return (self.fill(int(e["value"]) + i) for i in range(2))

        def all(self):
            return (self.fill(i) for i in range(300))

    outputs = {"x": ("int64", (3,)), "y": "int64", "s": "bytes"}
    many = Dataset.range(3000).map(Reuses(), outputs=outputs).batch(100)
    assert values(many, "y") == list(range(3000))
    assert digest(many, threads=1) == digest(many, threads=4)
    assert [bytes(s) for b in many for s in b["s"]] == [bytes([v % 7, v % 5]) for v in range(3000)]
    assert values(Dataset.range(300).flat_map(Reuses().several, outputs=outputs).batch(7), "y") == [v + i for v in range(300) for i in range(2)]
    stream = Dataset.iterable(Reuses().all, outputs=outputs).batch(100)
    assert [b["x"].tolist() for b in stream] == [[[v] * 3 for v in range(k, k + 100)] for k in (0, 100, 200)]


@pytest.mark.parametrize("text", ["a\0b", "lone \udcff surrogate", "two\nlines", "ü"])
def test_messages_that_json_does_not_hold(text):
    def broken():
        yield from numbers()
        raise ValueError(text)

    def fail(e):
        raise ValueError(text)

    with pytest.raises(cachew.DataError, match="ValueError.*after 1000 elements"):
        values(Dataset.iterable(broken, outputs={"value": "int64", "s": "bytes"}).batch(10))
    for ds in (Dataset.range(3).map(fail, outputs={"value": "int64"}), Dataset.range(3).batch(1).map_batches(fail, outputs={"value": "int64"})):
        with pytest.raises(cachew.RecordError, match="fail: ValueError: ."):
            values(ds)


def test_a_function_that_forks_and_returns_twice():
    def fork(e):
        if e["value"] == 50:
            os.fork()
        return {"value": e["value"]}

    assert values(Dataset.range(2000).map(fork, outputs={"value": "int64"}).batch(10), threads=1) == list(range(2000))


@pytest.mark.parametrize("what", ["prints", "half"])
def test_hanging_while_it_says_something(what):
    def talk(e):
        if e["value"] == 5:
            if what == "half":
                os.write(3, b"\1")
            while True:
                if what == "prints":
                    print("x" * 50)
                else:
                    time.sleep(1)
        return {"value": e["value"]}

    ds = Dataset.range(10).map(talk, outputs={"value": "int64"}, timeout_s=0.3).on_error("skip").batch(10)
    assert values(ds) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_payload_that_is_larger_than_a_socket_holds_while_the_host_starts():
    table = np.random.default_rng(1).integers(0, 1 << 30, 1 << 20)
    assert values(Dataset.range(5).map(lambda e: {"value": table[e["value"]]}).batch(5)) == table[:5].tolist()


def test_a_host_that_closes_its_connection_is_not_said_to_be_killed():
    def close(e):
        os.close(3)
        time.sleep(30)

    with pytest.raises(cachew.RecordError, match="3 attempts"):
        values(Dataset.range(1).map(close, outputs={"value": "int64"}, timeout_s=10))


def test_lazy_mappings_that_raise_when_read():
    class Lazy(dict):
        def keys(self):
            return ["value"]

        def __getitem__(self, name):
            raise OSError("the row is not there")

    ds = Dataset.range(5).map(lambda e: {"value": e["value"]} if e["value"] != 3 else Lazy(), outputs={"value": "int64"}).batch(5)
    assert values(ds.on_error("skip")) == [0, 1, 2, 4]


def test_an_element_of_a_stream_that_is_wrong_where_shapes_vary():
    ds = Dataset.iterable(lambda: ({"x": np.zeros((i, 3)) if i != 4 else np.zeros(2)} for i in range(8)), outputs={"x": ("float64", (None, 3))})
    assert [e["x"].shape[0] for e in ds.on_error("skip") if e.n_records] == [0, 1, 2, 3, 5, 6, 7]


def test_a_factory_that_raises_stopiteration_is_no_end():
    def factory():
        next(iter([]))
        return []

    with pytest.raises(cachew.DataError, match="StopIteration"):
        values(Dataset.iterable(factory, outputs={"value": "int64"}))


def test_the_time_limit_is_of_one_call_where_two_are_compared():
    import xxhash

    plain = Dataset.range(3000)
    key = int(plain.peek().records[0].partition(":")[0], 16)
    compared = [row for row in range(3000) if xxhash.xxh3_64_intdigest(np.array([key, row], "<u8").tobytes()) % 1000 == 0]
    assert compared

    def slow(e):
        if e["value"] == compared[0]:
            time.sleep(0.5)
        return {"value": e["value"]}

    assert values(plain.map(slow, outputs={"value": "int64"}, timeout_s=0.8).batch(100)) == list(range(3000))


def test_many_iterators_leave_one_copy_of_a_function():
    items = [{"value": i, "b": b"x" * 100000} for i in range(50)]
    ds = Dataset.sequence(items, outputs={"value": "int64", "b": "bytes"}).batch(10)
    assert digest(ds, threads=1) == digest(ds, threads=1)

    def resident():
        return max(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in hosts()) * 4096

    before = resident()
    for _ in range(8):
        digest(ds, threads=1)
    assert resident() < before + 8 * 5_000_000 // 2


def test_flat_map_that_changes_its_mind_under_little_memory():
    import itertools

    turn = itertools.count()

    def changes(e):
        return [{"x": np.zeros(20000, np.uint8)}] * (next(turn) % 5)

    ds = Dataset.range(300).flat_map(changes, outputs={"x": ("uint8", (None,))}, deterministic=False).batch(64)
    for memory in ("3M", "4M", "6M"):
        try:
            for _ in ds.iterator(threads=4, memory=memory):
                pass
        except (cachew.DataError, cachew.MemoryBudgetError):
            pass
