"""Iteration: the command's digests, saved positions, several at once, interruptions, forks, ends."""

import gc
import gzip
import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import cachew
import make_data
import mixing
import numpy as np
import pytest
from cachew import Dataset
from deadlines import HANG_S, wait_for
from example_data import EXAMPLES, FEWER
from waiting import held, in_use, sleeps

MASK128 = (1 << 128) - 1


def digest(batches):
    return sum(b.hash() for b in batches if not b.is_padding) & MASK128


def threads():
    return len(os.listdir("/proc/self/task"))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def endless(size=16):
    return Dataset.synthetic(64, shape=(size,)).repeat(-1).batch(4)


# ---- the same as the command ----


@pytest.mark.large
@pytest.mark.parametrize("name", EXAMPLES)
def test_digest_of_example_is_the_commands(examples, command, name):
    pipeline = json.loads((examples / f"{name}.json").read_text())
    settings = FEWER.get(name, [])
    for path, value in (s.split("=") for s in settings):
        *steps, last = [int(k) if k.isdigit() else k for k in path.split(".")]
        at = pipeline["pipeline"]
        for step in steps:
            at = at[step]
        at[last] = json.loads(value)
    words = [w for s in settings for w in ("--set", s)]
    words += ["--seed", "5", "--epochs", "2", "--digest", "--json", "--wait", str(HANG_S)]
    ran = subprocess.run(
        [command, "run", examples / f"{name}.json", *words], check=True, capture_output=True, text=True
    )
    want = json.loads(ran.stdout.splitlines()[-1])
    ds = Dataset.from_json(json.dumps(pipeline), examples)
    batches = set_sum = total = 0
    for b in ds.iterator(seed=5, epochs=2, threads=2):
        batches, total, set_sum = batches + 1, total + b.hash(), set_sum + b.set_hash()
    assert (batches, f"{total & MASK128:032x}", f"{set_sum & MASK128:032x}") == (
        want["batches"],
        want["digest"],
        want["set_digest"],
    )


def test_threads_memory_and_optimising_change_nothing(examples):
    ds = Dataset.load(examples / "photos.json").take(1)
    want = digest(ds.iterator(seed=1))
    for options in (
        {"threads": 1},
        {"threads": 3, "memory": "256M"},
        {"memory": 300 << 20, "optimize": False},
    ):
        assert digest(ds.iterator(seed=1, **options)) == want


def test_epochs_differ_and_repeat():
    ds = Dataset.range(100).shuffle().batch(10)
    epochs = [
        np.concatenate([b["value"] for b in ds.iterator(seed=2, first_epoch=e, epochs=e + 1)])
        for e in range(3)
    ]
    whole = [b for b in ds.iterator(seed=2, epochs=3)]
    assert [b.epoch for b in whole] == [0] * 10 + [1] * 10 + [2] * 10 and [b.g for b in whole] == [
        *range(10)
    ] * 3
    np.testing.assert_array_equal(np.concatenate(epochs), np.concatenate([b["value"] for b in whole]))
    assert not np.array_equal(epochs[0], epochs[1]) and sorted(epochs[1]) == list(range(100))
    forever = ds.iterator(epochs=float("inf"))
    assert [next(forever).epoch for _ in range(25)][-1] == 2


def test_ranks_divide_the_epoch():
    ds = Dataset.range(100).shuffle().batch(7)
    want = digest(ds.iterator(seed=3))
    parts = [list(ds.iterator(seed=3, rank=r, world_size=4)) for r in range(4)]
    assert sum(map(digest, parts)) & MASK128 == want
    assert [[b.g for b in part] for part in parts] == [[r, r + 4, r + 8, r + 12] for r in range(4)]
    assert [b.is_padding for part in parts for b in part].count(True) == 1


# ---- positions ----


def pipelines(records):
    examples = Dataset.tfrecord(records / "plain-*.tfrecord").parse_example(
        {"id": "int64", "tokens": {"dtype": "int64", "variable": True}}
    )
    return {
        "shuffle": Dataset.range(500).shuffle().batch(16),
        "filter": Dataset.range(500).shuffle().filter("value % 3 != 0").batch(16),
        "buckets": examples.shuffle().bucket_by_length("length(tokens)", [3, 6], [4, 8, 8]),
        "concat": Dataset.concat([Dataset.range(100), Dataset.range(90, start=1000).repeat(2)])
        .shuffle()
        .batch(9),
        "elements": Dataset.range(60).shuffle().assign(half="value / 2"),
    }


@pytest.mark.parametrize("name", ["shuffle", "filter", "buckets", "concat", "elements"])
def test_state_continues_exactly(records, name):
    ds = pipelines(records)[name]
    whole = [(b.epoch, b.g, b.hash()) for b in ds.iterator(seed=4, epochs=3)]
    rng = random.Random(name)
    for _ in range(40):
        stop = rng.randrange(len(whole) + 1)
        first = ds.iterator(seed=4, epochs=3, threads=rng.randint(1, 3))
        begin = [next(first) for _ in range(stop)]
        state = first.state_dict()
        assert len(json.dumps(state)) <= 1024
        rest = ds.iterator(seed=4, epochs=3, threads=rng.randint(1, 3), state=state)
        if rng.random() < 0.5:  # the other way to say it
            rest = ds.iterator(seed=4, epochs=3)
            rest.load_state_dict(json.dumps(state))
        assert [(b.epoch, b.g, b.hash()) for b in begin] + [(b.epoch, b.g, b.hash()) for b in rest] == whole


def test_state_goes_on_in_a_fresh_process(tmp_path, script):
    ds = Dataset.range(1000).shuffle().filter("value % 7 != 2").batch(32)
    whole = digest(ds.iterator(seed=6, epochs=2))
    it = ds.iterator(seed=6, epochs=2)
    begin = [next(it) for _ in range(17)]
    (tmp_path / "state").write_text(json.dumps(it.state_dict()))
    (tmp_path / "p.json").write_text(ds.to_json())
    ran = script(
        """
import cachew, json, sys
ds = cachew.Dataset.load(sys.argv[1])
print(sum(b.hash() for b in ds.iterator(seed=6, epochs=2, threads=1, state=json.load(open(sys.argv[2])))))
""",
        tmp_path / "p.json",
        tmp_path / "state",
    )
    assert ran.returncode == 0, ran.stderr
    assert (digest(begin) + int(ran.stdout)) & MASK128 == whole


def test_state_may_go_on_with_other_ranks():
    ds = Dataset.range(200).shuffle().batch(5)
    whole = digest(ds)
    two = [ds.iterator(rank=r, world_size=2) for r in range(2)]
    begin = [next(it) for it in two for _ in range(6)]
    assert two[0].state_dict() == two[1].state_dict()
    rest = [b for r in range(4) for b in ds.iterator(rank=r, world_size=4, state=two[0].state_dict())]
    assert (digest(begin) + digest(rest)) & MASK128 == whole


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s, ds: ds.iterator(state=json.dumps(s)[:-20]),
        lambda s, ds: ds.iterator(state=""),
        lambda s, ds: ds.iterator(state={}),
        lambda s, ds: ds.iterator(state={**s, "cachew_state": 99}),
        lambda s, ds: ds.iterator(state={**s, "plan": 99}),
        lambda s, ds: ds.iterator(state=3),
        lambda s, ds: ds.iterator(state={**s, "g": -1}),
        lambda s, ds: ds.iterator(state={**s, "position": 10**9}),
        lambda s, ds: ds.iterator(state={"a": object()}),
        lambda s, ds: ds.batch(3) if False else ds.iterator(seed=8, state=s),
        lambda s, ds: Dataset.range(99).shuffle().batch(4).iterator(state=s),
        lambda s, ds: Dataset.range(100).shuffle().batch(5).iterator(state=s),
    ],
)
def test_a_state_that_does_not_fit_is_refused(spoil):
    ds = Dataset.range(100).shuffle().batch(4)
    it = ds.iterator()
    next(it)
    with pytest.raises(cachew.StateError) as caught:
        spoil(it.state_dict(), ds)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(cachew.StateError):
        it.load_state_dict({**it.state_dict(), "pipeline": "0" * 32})
    assert next(it).g == 1  # it goes on as if nothing had been


def test_a_state_with_a_nul_is_refused():
    with pytest.raises(cachew.StateError, match="expected what state_dict"):
        Dataset.range(3).iterator(state="{}\0")


# ---- options ----


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.5),
        ("epochs", -2),
        ("epochs", 0.5),
        ("threads", 0),
        ("threads", 5000),
        ("threads", "two"),
        ("memory", "lots"),
        ("memory", 0),
        ("memory", "12Q"),
        ("rank", 2),
        ("rank", -1),
        ("world_size", 0),
        ("timeout_s", -1),
        ("timeout_s", "soon"),
        ("first_epoch", -1),
    ],
)
def test_options_are_checked(option, value):
    more = {"world_size": 2} if option == "rank" else {}
    with pytest.raises(cachew.OptionError) as caught:
        Dataset.range(3).iterator(**{option: value}, **more)
    assert (
        caught.value.attribute == option
        and option in str(caught.value)
        and isinstance(caught.value, ValueError)
    )


def test_memory_as_text():
    ds = Dataset.synthetic(100, shape=(1000,)).batch(10)
    for memory in (64 << 20, "64M", "64MiB", "0.0625 G", "65536k"):
        assert ds.iterator(memory=memory).profile()["memory_peak_bytes"] <= 64 << 20
    with pytest.raises(cachew.MemoryBudgetError) as caught:
        list(ds.iterator(memory="4K"))
    assert isinstance(caught.value, MemoryError) and "expected at least" in str(caught.value)


# ---- waiting ----


def test_deadline(tmp_path):
    ds = Dataset.range(10)._for_tests("fail", "value == 5", kind="hang").batch(2)
    it = ds.iterator(timeout_s=0.2)
    assert [it.next(timeout_s=HANG_S)["value"][0] for _ in range(2)] == [0, 2]
    for _ in range(2):
        with pytest.raises(cachew.DeadlineError) as caught:
            next(it)
    assert isinstance(caught.value, TimeoutError)
    function = held(tmp_path / "go")
    ds = Dataset.range(3).batch(1).map_batches(function, outputs={"value": "int64"}, deterministic=False)
    slow = ds.iterator(threads=1)
    with pytest.raises(cachew.DeadlineError):
        slow.next(timeout_s=0)
    (tmp_path / "go").touch()
    assert [slow.next(timeout_s=limit)["value"][0] for limit in (None, HANG_S, None)] == [0, 1, 2]
    assert slow.next() is None and slow.next() is None and list(slow) == []


def test_close_from_another_thread_ends_a_wait():
    it = Dataset.range(10)._for_tests("fail", "true", kind="hang").iterator()
    closer = threading.Thread(target=lambda: wait_for(lambda: in_use(it)) and it.close())
    closer.start()
    with pytest.raises(cachew.UsageError, match="closed by another thread"):
        next(it)
    closer.join()
    with pytest.raises(cachew.UsageError, match="is closed"):
        next(it)
    it.close()


def test_two_threads_in_one_iterator():
    it = Dataset.range(10)._for_tests("fail", "true", kind="hang").iterator()
    inside = threading.Thread(target=lambda: pytest.raises(cachew.UsageError, next, it))
    inside.start()
    wait_for(lambda: in_use(it))
    with pytest.raises(cachew.UsageError, match="another thread"):
        it.state_dict()
    it.close()
    inside.join()


CTRL_C = """
import cachew, os, sys, time
go = sys.argv[1]
def hold(batch):
    while batch["value"][0] == 10 and not os.path.exists(go):
        time.sleep(0.01)
    return batch
ds = cachew.Dataset.range(1000).batch(5).map_batches(hold, outputs={"value": "int64"}, deterministic=False)
it = ds.iterator(threads=1)
g = []
while True:
    try:
        batch = next(it, None)
        if batch is None:
            break
        g.append(batch.g)
        if batch.g == 1:
            print("waiting", flush=True)
    except KeyboardInterrupt:
        print("interrupted after", len(g), flush=True)
        open(go, "w").close()
print(g == list(range(200)))
"""


def test_ctrl_c_ends_a_wait_and_it_can_go_on(tmp_path):
    """The batch that is waited for comes after the interruption only."""
    file = tmp_path / "script.py"
    file.write_text(CTRL_C)
    words = [sys.executable, file, tmp_path / "go"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    wait_for(lambda: sleeps(process.pid))
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted after 2\n"
    out, err = process.communicate(timeout=HANG_S)
    assert out == "True\n" and process.returncode == 0, err


def has_open(pid, path):
    """Whether a process has a file open."""
    folder = f"/proc/{pid}/fd"
    return any(os.path.realpath(f"{folder}/{fd}") == str(path) for fd in os.listdir(folder))


def test_ctrl_c_while_an_index_is_made(tmp_path):
    """Opening reads all of the data. Here that takes minutes: a small file that inflates to very much."""
    member = gzip.compress(make_data.record(bytes(1 << 20)) * 64, 1)
    (tmp_path / "big.tfrecord.gz").write_bytes(member * 1000)
    (tmp_path / "script.py").write_text("""
import cachew, sys
try:
    list(cachew.Dataset.tfrecord(sys.argv[1]).iterator(index_dir=sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(len(cachew.Dataset.range(3)))
""")
    words = [sys.executable, tmp_path / "script.py", tmp_path / "big.tfrecord.gz", tmp_path / "index"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: has_open(process.pid, tmp_path / "big.tfrecord.gz"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert out == "interrupted\n3\n" and process.returncode == 0, (out, err)
    index = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert not index  # the file was not read to its end


# ---- several, and their ends ----


def test_several_iterators_side_by_side():
    ds = Dataset.range(300).shuffle().batch(8)
    want = [b.hash() for b in ds.iterator(seed=1)]
    its = [ds.iterator(seed=1, threads=1 + i % 3) for i in range(5)]
    assert list(zip(*[[b.hash() for b in it] for it in its])) == [(h,) * 5 for h in want]
    for batches in zip(ds.iterator(seed=1), ds.iterator(seed=1)):
        assert batches[0].hash() == batches[1].hash()


def test_break_frees_everything_at_once():
    gc.disable()
    try:
        before = threads(), descriptors()
        for _ in range(20):
            for _batch in endless():
                break
            assert threads() > before[0]  # the batch keeps the engine
            del _batch
            wait_for(lambda: (threads(), descriptors()) <= before)
    finally:
        gc.enable()


def test_with_ends_its_threads():
    before = threads()
    with endless().iterator() as it:
        batch = next(it)
        values = batch["data"].copy()
    assert np.array_equal(batch["data"], values)
    del batch
    wait_for(lambda: threads() <= before)
    with pytest.raises(cachew.UsageError, match="closed"):
        next(it)


def test_a_batch_outlives_its_iterator():
    image = Dataset.range(10).batch(10).peek()["value"]
    gc.collect()
    assert list(image) == list(range(10))


def test_10_000_batches_held_and_dropped_at_random():
    """No slab is used again while an array lies in it, and descriptors are few."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    ds = Dataset.range(80000).assign(x="value * 3", flag="value % 2 == 0").batch(8)
    rng = random.Random(3)
    held, most = {}, 0
    gc.disable()
    try:
        it = ds.iterator(memory="64M")
        for batch in it:
            base = batch.g * 8
            kind = rng.randrange(3)  # the whole, one array, a view of one
            held[base] = batch if kind == 0 else batch["x"] if kind == 1 else batch["x"][2:4]
            del batch
            most = max(most, len(held))
            while held and rng.random() < (0.45 if len(held) < 3000 else 0.9):
                check(*held.popitem() if rng.random() < 0.3 else take(held, rng))
        assert most > 1000 and descriptors() < 100
        assert it._core.held() == len(held)
        for item in list(held.items()):
            check(*item)
        held.clear()
        del item
        assert it._core.held() == 0
    finally:
        gc.enable()


def take(held, rng):
    base = rng.choice(list(held)) if len(held) < 50 else next(iter(held))
    return base, held.pop(base)


def check(base, value):
    if isinstance(value, cachew.Batch):
        assert list(value["value"]) == list(range(base, base + 8))
        value = value["x"]
    start = base if len(value) == 8 else base + 2
    assert list(value) == [3 * v for v in range(start, start + len(value))]


def test_slabs_come_back():
    ds = Dataset.synthetic(4000, shape=(1000,)).batch(10)
    addresses = {b["data"].__array_interface__["data"][0] for b in ds.iterator(threads=1, memory="16M")}
    assert len(addresses) < 300


# ---- forks and the end of the process ----

FORK = """
import os, sys
import cachew
ds = cachew.Dataset.range(100).batch(10)
it = ds.iterator()
first = next(it)
pid = os.fork()
if pid == 0:
    code = 1
    try:
        next(it)
    except cachew.UsageError as error:
        code = 0 if "forked child" in str(error) and list(first["value"]) == list(range(10)) else 2
    try:
        it.state_dict()
        code = 3
    except cachew.UsageError:
        pass
    it.close()
    del it, first  # must not wait for threads that are not there
    if sum(b["value"].sum() for b in ds) != 4950:  # a new one works
        code = 4
    if len(ds) != 10:
        code = 5
    sys.exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [b.g for b in it])
"""


def test_a_forked_child(script):
    ran = script(FORK)
    assert ran.stdout.strip() == f"0 {list(range(1, 10))}", (ran.stdout, ran.stderr)


def test_batches_of_a_forked_child_stay_as_they_were(script):
    """The parent gives them back, and their memory is used again; the child has copies."""
    ran = script("""
import os
import pickle
import cachew
it = cachew.Dataset.range(1_000_000).batch(1000).iterator(threads=1, memory="64M")
held = [next(it), next(it)]
begin, go = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(begin, 1)
    held[1]["value"][0] += 1
    good = (
        held[0]["value"].tolist() == list(range(1000))
        and held[1]["value"].tolist() == [1001, *range(1001, 2000)]
    )
    second = os.fork()  # a child's child has them too
    if second == 0:
        os._exit(0 if good and held[0]["value"].tolist() == list(range(1000)) else 1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
kept = held.pop()
held.clear()
rest = sum(1 for batch in it)
os.write(go, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), rest, kept["value"][0])
""")
    assert ran.stdout == "0 998 1000\n", (ran.stdout, ran.stderr)


def test_multiprocessing(script):
    ran = script("""
import multiprocessing, cachew
def f(ds):
    return sum(int(b["value"].sum()) for b in ds)
if __name__ == "__main__":
    ds = cachew.Dataset.range(100).batch(10)
    keep = iter(ds); next(keep)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(f, [ds, ds.take(1)]))
""")
    assert ran.stdout == "[4950, 45]\n" * 3, ran.stderr


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "del it",
        "import gc; del cachew; gc.collect()",
        "keep = [keep]; keep.append(keep)",
        "import atexit; atexit.register(next, it)",
        "import threading; threading.Thread(target=list, args=(stuck,), daemon=True).start()",
    ],
)
def test_the_process_ends_with_live_iterators(script, end):
    ran = script(f"""
import cachew
it = cachew.Dataset.synthetic(64, shape=(100,)).repeat(-1).batch(4).iterator(epochs=float("inf"))
keep = [next(it), next(it)["data"]]
stuck = cachew.Dataset.range(3)._for_tests("fail", "true", kind="hang").iterator()
class Last:
    def __del__(self, n=next, it=it): n(it)
last = Last()
{end}
""")
    assert ran.returncode == 0 and ran.stderr == "", (ran.returncode, ran.stderr)


# ---- errors of records ----


def test_records_that_fail():
    ds = Dataset.range(20).assign(x="10 // (value - 7)").batch(5)
    with pytest.raises(cachew.RecordError) as caught:
        list(ds)
    error = caught.value
    assert (error.kind, error.operator) == ("record", "assign") and error.record.endswith(":7")
    it = ds.on_error("skip").iterator()
    assert [len(b["x"]) for b in it] == [5, 4, 5, 5]
    assert [(q["operator"], q["action"], q["record"] == error.record) for q in it.quarantine()] == [
        ("assign", "skipped", True)
    ]
    it = ds.on_error("replace").iterator()
    flags = [f for b in it for f in b.record_flags]
    assert flags == [1 if i == 7 else 0 for i in range(20)] and it.quarantine()[0]["action"] == "replaced"


def test_files_that_are_wrong(tmp_path):
    with pytest.raises(cachew.Error) as caught:
        Dataset.files(tmp_path / "none-*").peek()
    assert "none-*" in str(caught.value)
    (tmp_path / "bad.tfrecord").write_bytes(b"not a record" * 10)
    with pytest.raises(cachew.DataError) as caught:
        Dataset.tfrecord(tmp_path / "bad.tfrecord").peek()
    assert caught.value.file == str(tmp_path / "bad.tfrecord")
    (tmp_path / "secret").mkdir()
    with pytest.raises(cachew.Error) as caught:
        Dataset.image_folder(Path("/proc/self/mem")).peek()
    assert caught.value.kind in ("io", "data", "option", "pipeline")


def test_profile():
    it = Dataset.range(1000).assign(x="value * 2").batch(10).iterator()
    list(it)
    profile = it.profile()
    assert {o["op"] for o in profile["operators"] if "op" in o} == {"range", "assign", "batch"} and profile[
        "batches_held"
    ] == 0


@pytest.mark.parametrize(
    "options", [{"first_epoch": 1}, {"first_epoch": 3, "epochs": 3}, {"first_epoch": 5, "epochs": 3}]
)
def test_a_first_epoch_behind_the_last_one_is_an_error(options):
    """There were no batches, and no word."""
    with pytest.raises(
        cachew.OptionError,
        match=f"first_epoch is {options['first_epoch']}: expected less "
        f"than epochs, {options.get('epochs', 1)}",
    ):
        Dataset.range(10).iterator(**options)


def test_a_memory_that_is_too_small_is_named_as_python_has_it():
    """It was called --memory, as on the command line."""
    with pytest.raises(cachew.MemoryBudgetError, match="^option memory 1000 is too small: ") as raised:
        Dataset.range(10).batch(10).iterator(memory=1000)
    assert raised.value.attribute == "memory" and raised.value.value == "1000"


# ---- what is said of a shuffle by chunk ----


def test_a_shuffle_by_chunk_is_said_once(tmp_path, caplog):
    """To the logger, where the first epoch begins; not again in later ones, from a state, or where the
    shuffle is a permutation of all.
    """
    (tmp_path / "x.tfrecord.gz").write_bytes(gzip.compress(b"".join(mixing.wide_records(0, 1100)), 1))
    ds = (
        Dataset.tfrecord(str(tmp_path / "x.tfrecord.gz"), verify=False)
        .parse_example({"row": "float32"})
        .shuffle()
        .batch(10)
    )
    with ds.iterator(epochs=2) as it:
        next(it)
        state = it.state_dict()
    (said,) = caplog.records
    assert (said.name, said.levelname) == ("cachew", "WARNING")
    assert said.getMessage().startswith(
        "shuffle (operator 2) is by chunk, because x.tfrecord.gz is "
        "compressed: a batch of 10 comes from about "
    )
    assert said.getMessage() in ds.explain()
    for options in ({"state": state}, {"first_epoch": 1}):
        with ds.iterator(epochs=2, **options) as it:
            next(it)
    with Dataset.range(4000).shuffle().batch(10).iterator() as it:
        next(it)
    assert len(caplog.records) == 1


def test_each_loop_over_a_dataset_is_the_next_epoch():
    """Once each loop had the order of the first one."""
    ds = Dataset.range(100).shuffle().batch(10)
    assert ds.epoch == 0
    loops = [[b["value"].tolist() for b in ds] for _ in range(3)]
    assert ds.epoch == 3
    for epoch, loop in enumerate(loops):
        assert loop == [b["value"].tolist() for b in ds.iterator(epoch=epoch)]
        assert loop == [b["value"].tolist() for b in ds.iterator(first_epoch=epoch, epochs=epoch + 1)]
    assert len({str(loop) for loop in loops}) == 3 and ds.epoch == 3
    assert {b.epoch for b in ds} == {3}
    ds.set_epoch(1)
    assert [b["value"].tolist() for b in ds] == loops[1] and ds.epoch == 2
    ds.peek()
    assert ds.epoch == 2 and ds.take(50).epoch == 0 and pickle.loads(pickle.dumps(ds)).epoch == 0
    assert ds == Dataset.range(100).shuffle().batch(10)  # the epoch is no part of the value


def test_each_loop_has_the_epochs_of_the_defaults():
    ds = Dataset.range(20).shuffle().batch(10).defaults(epochs=2)
    assert [[b.epoch for b in ds] for _ in range(2)] == [[0, 0, 1, 1], [2, 2, 3, 3]] and ds.epoch == 4


def test_a_loop_that_is_left_early_counts():
    ds = Dataset.range(100).shuffle().batch(10)
    first = next(iter(ds))
    second = next(iter(ds))
    assert (first.epoch, second.epoch) == (0, 1)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", True, None, 2**63])
def test_a_wrong_epoch_is_refused(epoch):
    ds = Dataset.range(10)
    with pytest.raises(cachew.OptionError, match="option epoch is"):
        ds.set_epoch(epoch)
    with pytest.raises(AttributeError, match=r"call set_epoch\(\)"):
        ds.epoch = 1
    if epoch is not None:
        with pytest.raises(cachew.OptionError, match="option epoch is"):
            ds.iterator(epoch=epoch)
    with pytest.raises(cachew.OptionError, match="None with epochs, first_epoch or state"):
        ds.iterator(epoch=1, epochs=2)
