"""cachew.debug(): functions run in this process, on the thread that takes the batches."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from deadlines import HANG_S
from function_runs import digest, hosts, values

import cachew
from cachew import Dataset

seen = []


@pytest.fixture()
def debugging():
    seen.clear()
    with cachew.debug():
        yield
    assert hosts() == []


def notes(element):
    seen.append((int(element["value"]), os.getpid(), threading.get_ident()))
    return {"value": element["value"] * 2}


OUTPUTS = {"value": "int64"}


def test_functions_run_on_this_thread_in_order(debugging):
    ds = Dataset.range(3000).map(notes, outputs=OUTPUTS).batch(16)
    assert values(ds) == list(range(0, 6000, 2))
    assert seen == [(i, os.getpid(), threading.get_ident()) for i in range(3000)]


def test_every_kind_of_function(debugging):
    def twice(element):
        return [element, element]

    def larger(batch):
        return {"value": batch["value"] + len(seen)}

    def numbers():
        seen.append("begins")
        yield from ({"value": i} for i in range(5))

    ds = Dataset.iterable(numbers, outputs=OUTPUTS).map(notes, outputs=OUTPUTS)
    ds = ds.filter(lambda element: element["value"] != 4).flat_map(twice, outputs=OUTPUTS).batch(8)
    assert values(ds.map_batches(larger, outputs=OUTPUTS)) == [6, 6, 8, 8, 12, 12, 14, 14]
    assert values(Dataset.sequence([{"value": 3}, {"value": 1}]).map(notes)) == [6, 2]


def test_async_functions(debugging):
    async def waits(element):
        await asyncio.sleep(0)
        seen.append(threading.get_ident())
        return {"value": element["value"] + 1}

    assert values(Dataset.range(9).map(waits, outputs=OUTPUTS).batch(3)) == list(range(1, 10))
    assert set(seen) == {threading.get_ident()}


def test_async_functions_where_an_event_loop_runs(debugging):
    """As in a notebook."""

    async def waits(element):
        await asyncio.sleep(0)
        return {"value": element["value"] + 1}

    async def cell():
        return values(Dataset.range(9).map(waits, outputs=OUTPUTS).batch(3))

    assert asyncio.run(cell()) == list(range(1, 10))


def test_the_batches_and_states_are_the_same():
    def jitter(element, rng):
        return {"value": element["value"] + rng.integers(1000)}

    ds = Dataset.range(500).shuffle().map(jitter, outputs=OUTPUTS).batch(7)
    expected = digest(ds, seed=5)
    with cachew.debug():
        assert digest(ds, seed=5) == expected
        it = ds.iterator(seed=5)
        next(it)
        state = it.state_dict()
        rest = [b.hash() for b in it]
    assert [b.hash() for b in ds.iterator(seed=5, state=state)] == rest
    assert digest(ds, seed=5) == expected


def test_a_lambda_and_captured_variables_are_the_programs_own(debugging):
    found = []
    ds = Dataset.range(3).map(lambda element: found.append(1) or element, outputs=OUTPUTS)
    values(ds)
    assert len(found) == 3


def test_exceptions_are_the_originals(debugging):
    raised = []

    def fails(element):
        raised.append(ValueError(element["value"]))
        raise raised[-1]

    with pytest.raises(cachew.RecordError, match="fails: ValueError") as caught:
        values(Dataset.range(3).map(fails, outputs=OUTPUTS))
    assert caught.value.__cause__ is raised[0] and raised[0].__traceback__.tb_next is not None
    ds = Dataset.range(3).map(fails, outputs=OUTPUTS).on_error("skip")
    assert values(ds) == [] and len(raised) >= 4


def test_exceptions_are_kept_only_for_errors_that_will_tell_of_them():
    from cachew import _debugger, _failures

    _failures.alive.clear()
    _debugger.keep(ValueError(), detailed=False)  # the element is skipped
    assert not _failures.alive
    for _ in range(2 * _debugger.ALIVE):
        _debugger.keep(ValueError(), detailed=True)
    assert len(_failures.alive) == _debugger.ALIVE
    with cachew.debug():
        pass
    assert not _failures.alive


def test_ctrl_c_in_a_function_ends_the_wait(debugging):
    stops = [1]

    def stopped(element):
        if stops:
            stops.pop()
            raise KeyboardInterrupt
        return element

    with Dataset.range(3).map(stopped, outputs=OUTPUTS).batch(3).iterator() as it:
        with pytest.raises(KeyboardInterrupt):
            next(it)
        assert next(it)["value"].tolist() == [0, 1, 2]  # the iterator goes on


def test_a_function_that_runs_another_dataset(debugging):
    def total(element):
        inner = Dataset.range(3).map(notes, outputs=OUTPUTS)
        return {"value": element["value"] + sum(values(inner))}

    assert values(Dataset.range(2).map(total, outputs=OUTPUTS)) == [6, 7]


def test_explain_peek_services_and_deadlines(debugging):
    ds = Dataset.range(50).map(notes, outputs=OUTPUTS).batch(5)
    assert "map" in ds.explain(run_s=0.01) and ds.peek()["value"].tolist() == [0, 2, 4, 6, 8]
    away = ds.distribute("127.0.0.1:1", job="no service is asked", order="any")
    assert values_of(away) == list(range(0, 100, 2))

    with ds.iterator() as it:
        assert it.next(timeout_s=HANG_S)["value"].tolist() == [0, 2, 4, 6, 8]
    with Dataset.range(10**12).filter(lambda element: False).iterator() as it:  # no batch ever comes
        with pytest.raises(cachew.DeadlineError, match="within 0.01 s"):
            it.next(timeout_s=0.01)


def values_of(iterator):
    with iterator as batches:
        return [v for batch in batches for v in batch["value"].tolist()]


def test_loaders_call_functions_on_the_users_thread(debugging):
    pytest.importorskip("torch")
    from cachew.torch import loader

    ds = Dataset.range(8).map(notes, outputs=OUTPUTS).batch(4)
    assert [b["value"].tolist() for b in loader(ds)] == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert {thread for _, _, thread in seen} == {threading.get_ident()}


def test_the_debugger_stops_in_a_function(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import cachew\n"
        "cachew.debug()\n"
        "def looks(element):\n"
        "    breakpoint()\n"
        "    return element\n"
        "ds = cachew.Dataset.range(9).map(looks, outputs={'value': 'int64'}).batch(3)\n"
        "print(next(iter(ds))['value'])\n"
    )
    typed = "p 'element', element\nw\nq\n"
    done = subprocess.run(
        [sys.executable, program], input=typed, capture_output=True, text=True, timeout=HANG_S
    )
    assert "('element', {'value': 0})" in done.stdout.replace("np.int64(0)", "0")
    assert "program.py(4)looks()" in done.stdout or "program.py(5)looks()" in done.stdout
    assert "BdbQuit" in done.stderr


def test_iterators_that_outlive_a_switch():
    ds = Dataset.range(30_000).map(notes, outputs=OUTPUTS).batch(100)
    before = ds.iterator(threads=1)
    got = [next(before)["value"][0]]
    with cachew.debug():
        inside = ds.iterator()
        got.append(next(inside)["value"][0])
        got += [batch["value"][0] for _, batch in zip(range(100), before)]
    assert got == [0, 0, *range(200, 20_200, 200)]
    assert [b["value"][0] for b in inside] == list(range(200, 60_000, 200))
    assert [b["value"][0] for b in before] == list(range(20_200, 60_000, 200))


def test_switching_off():
    cachew.debug()
    cachew.debug(False)
    ds = Dataset.range(3).map(notes, outputs=OUTPUTS)
    seen.clear()
    assert values(ds) == [0, 2, 4] and seen == []
    with pytest.raises(cachew.OptionError, match="on is 'yes'"):
        cachew.debug("yes")
