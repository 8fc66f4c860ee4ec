"""Ctrl-C, and other signals with a handler, at any moment: no batch is lost, none comes twice, and a state
has what the user had.
"""

import pytest

ANY_MOMENT = '''
import itertools, os, random, signal, sys, threading
from cachew import Dataset
from cachew._loader import Loader

how = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)
ds = Dataset.range(24).shuffle()._for_tests("delay", us=300).batch(2)
random = random.Random(how)

def make(state=None):
    if how in ("loader", "ahead"):
        made = Loader(ds, lambda batch: batch, 2 if how == "ahead" else 0, lambda: (0, 1), None, seed=3)
        if state:
            made.load_state_dict(state)
        return made
    options = {"rank": 1, "world_size": 5} if how == "ranks" else {}
    if how == "any":
        from cachew._iterator import DatasetIterator
        from cachew._options import make_options
        return DatasetIterator(ds, make_options(seed=3, state=state)._replace(order="any"), None)
    return ds.iterator(seed=3, threads=1, state=state, **options)

def values(batches):
    return [batch["value"].tolist() for batch in batches]

def interrupted(it, got, limit):
    """Takes batches into got, with nothing in between that looks for signals; until the end, or the first
    signal that ends a wait of this thread."""
    done = threading.Event()
    def shoot():
        while not done.wait(random.random() * 0.004):
            os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=shoot)
    n, batches, over = 0, iter(it), False
    while not over and n < limit:
        try:
            thread.is_alive() or thread.start()
            for batch in batches:
                got += [batch]
            over = True
        except KeyboardInterrupt:
            n += 1
        except RuntimeError as error:  # of threading: interrupted as it starts
            assert "thread" in str(error), error
    while thread.is_alive():
        try:
            done.set()
            thread.join()
        except KeyboardInterrupt:
            pass
    return n, batches

want, interrupts = values(make()), 0
for run in itertools.count():
    if run >= 40 and interrupts > 20:
        break
    it, got = make(), []
    n, batches = interrupted(it, got, 1 if run % 2 else 1000)
    interrupts += n
    rest = make(it.state_dict()) if run % 3 == 0 and len(got) < len(want) else batches
    got += rest
    assert values(got) == want, (run, n, values(got), want)
    it.close()
'''


@pytest.mark.parametrize("how", ["iterator", "ranks", "any", "loader", "ahead"])
def test_a_ctrl_c_at_any_moment_loses_no_batch(script, how):
    ran = script(ANY_MOMENT, how)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""


HANDLER = """
import json, os, signal, sys, threading, time
import cachew

saved = sys.argv[1]
def hold(batch):
    while batch["value"][0] == 20 and not os.path.exists(saved):
        time.sleep(0.01)
    return batch
ds = cachew.Dataset.range(40).batch(2).map_batches(hold, outputs={"value": "int64"}, deterministic=False)
it = ds.iterator(threads=1)
got = [next(it)["value"].tolist() for _ in range(10)]
states = []
def save(number, frame):
    states.append(it.state_dict())
    it.profile(), it.quarantine()
    open(saved, "w").close()
signal.signal(signal.SIGTERM, save)
entered = threading.Event()
def shoot():
    entered.wait()
    while not os.path.exists(saved):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
thread = threading.Thread(target=shoot)
thread.start()
entered.set()
batch = next(it)
thread.join()
assert batch["value"].tolist() == [20, 21]
assert all(state["g"] == 10 for state in states), states
rest = [b["value"].tolist() for b in it]
assert [b["value"].tolist() for b in ds.iterator(state=states[0])] == [[20, 21], *rest]

def close(number, frame):
    it.close()
it = cachew.Dataset.range(10)._for_tests("fail", "true", kind="hang").batch(2).iterator()
signal.signal(signal.SIGALRM, close)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    next(it)
except cachew.UsageError as error:
    print(error)
"""


def test_a_handler_of_a_signal_may_save_the_state_of_an_iterator_that_is_waited_for(script, tmp_path):
    ran = script(HANDLER, tmp_path / "saved")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "this iterator is closed\n"


def test_two_threads_that_got_one_batch_do_not_both_have_it():
    """The second call comes before the first one's batch is accepted: one of them fails."""
    import cachew

    it = cachew.Dataset.range(4).batch(2).iterator()
    slab = it._core.next()
    assert next(it)["value"].tolist() == [0, 1]
    with pytest.raises(cachew.UsageError, match="another thread requested a batch"):
        it._core.accepted = slab
    assert next(it)["value"].tolist() == [2, 3] and next(it, None) is None
