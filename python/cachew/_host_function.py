"""The user's function in a host process: calls it for the rows of a request, collects the results, and
computes some rows twice, to find functions whose results differ. docs/hosts.md describes requests and
answers.
"""

import contextlib
import os
import sys
import threading
import time
import types

import numpy as np
from _host_failure import Failure
from _host_payload import load
from _host_rows import COLUMN, DENSE, HEAD, Answer, Rows, read_batch, read_columns
from _host_tree import flat
from _host_values import Component, Wrong, array_of, describe, in_order, printable

OK, DROPPED, FAILED, DIFFERS = 0, 1, 2, 3  # status of a row in an answer
PROGRESS = 15  # index of the head's progress word: 1 + the row, or element, that is being computed
SECOND = 1 << 63  # bit of the progress word: the row is computed for the second time
END = object()  # marks the end of an iterable
LATER = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)  # results that have not run yet
DIFFERENT = "gave two different results for one record; if that is intended, use deterministic=False"

event_loop = None  # of async functions; made at the first call of one
is_copy = False
"""Whether this process is a fork of a host: the user's function forked. It must end when the function returns
in it, before it writes to the memory that it shares with the host.
"""


def become_copy():
    global is_copy
    is_copy = True


def copied(element):
    """A copy of an element or batch, for a second call: the first call may write to its arrays."""

    def copy(value):
        if isinstance(value, np.ndarray):
            return value.copy()
        return type(value)(value.data.copy(), value.offsets.copy()) if hasattr(value, "offsets") else value

    return {name: copy(value) for name, value in element.items()}


def same(a, b):
    """Whether two results, as `Function.kept` returns them, are equal; numbers are compared bit by bit."""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, bytes):
        return a == b
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


PULL_BYTES = 4 << 20  # bytes from which no more elements of an iterable are added to an answer
loading = False  # the user's modules are being imported to load a function; cachew._calls reads it


class Slow:
    """Sends the answer early if an iterable is slow: a thread answers with the elements so far, while the
    iterable's `next` goes on. So elements that exist are delivered, though the iterable waits.

    lock guards the attributes, except `begun`, an event: a call of the iterable has begun.
    """

    # Seconds without a new element before the early answer: too short to notice, and far longer than an
    # answer takes.
    PATIENCE_S = 0.02

    def __init__(self):
        self.reply = self.there = self.write = self.thread = None
        self.answered, self.calls, self.least = False, 0, 0
        self.lock, self.begun = threading.Lock(), threading.Event()

    @contextlib.contextmanager
    def call(self, there, least, write):
        """A context in which the caller takes elements. there() returns the number of elements so far; the
        early answer needs at least `least`. write(n) writes an answer with n elements and returns its size in
        bytes. At the end, `answered` tells whether the early answer was sent.
        """
        with self.lock:
            self.answered, self.there, self.least, self.write = False, there, least, write
            self.calls += 1
            self.begun.set()
        if self.thread is None:
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        yield
        with self.lock:
            self.there = None

    def watch(self):
        while self.begun.wait():
            there = self.there
            seen = self.calls, there and there()
            time.sleep(self.PATIENCE_S)
            with self.lock:
                if self.there is None:  # no call is running; the next one sets `begun`
                    self.begun.clear()
                elif seen == (self.calls, self.there()) and seen[1] >= self.least and not self.answered:
                    used = self.write(seen[1])
                    self.answered = True
                    self.reply(used)


def truth(value):
    """The truth value of a filter's result. A coroutine or generator is an error: it would always be true."""
    if isinstance(value, LATER):
        raise Wrong(f"returned {describe(value)}, expected a value that is true or false")
    return bool(value)


def load_of(spec):
    """Loads the function of a spec, after the values in the user's modules that the function uses."""
    for place in reversed(spec["path"] or []):
        if place not in sys.path:
            sys.path.insert(0, place)
    global loading
    loading = True
    try:
        if spec["modules"]:
            from cachew._places import Differs, adopt  # only here: it loads the whole package

            try:
                adopt(spec["modules"])
            except Differs as error:
                raise Wrong(str(error)) from None
        return load(spec["payload"])
    finally:
        loading = False


class Function:
    """A function with its declared inputs and outputs, from the spec that the engine sends."""

    def __init__(self, spec, function=None):
        """function: the user's function; None: the one in the spec."""
        self.function = load_of(spec) if function is None else function
        self.checks = True  # rows are computed twice, if a request says so
        self.kind, self.rng, self.asynchronous = spec["kind"], spec["rng"], spec["async"]
        self.concurrency = spec["concurrency"]
        self.details = spec["details"]  # whether an error can tell of an element that fails
        self.inputs = [Component(c) for c in spec["inputs"]]
        self.outputs = [Component(c) for c in spec["outputs"]]
        self.names = tuple(c.name for c in self.inputs)
        self.declared = tuple(c.name for c in self.outputs)
        self.defaults = any(c.default is not None for c in self.outputs)
        # For an iterable: elements that were taken and may be requested again, the index of the first of them
        # in the iterable, and the Failure that ended the iterable.
        self.iterator, self.kept_elements, self.first, self.failed = None, [], 0, None
        self.sized = [(k, c.bytes) for k, c in enumerate(self.outputs) if c.scalar_types is None]
        self.slow = Slow()
        self.columns = []  # of the request that is being answered, see elements_of

    def failure(self, error, i):
        """The Failure of row i of the request."""
        element = {name: column[i] for name, column in zip(self.names, self.columns)} if self.details else {}
        return Failure(error, element, self.details)

    def apply(self, element, key):
        """Calls the function. key: of the random generator, two words."""
        try:
            if self.rng:
                return self.function(element, rng=np.random.Generator(np.random.Philox(key=key)))
            return self.function(element)
        finally:
            if is_copy:
                os._exit(0)

    def values_of(self, result):
        """The values of a result, in the order of the declared components. Raises Wrong if it does not
        consist of exactly these components.
        """
        if (
            type(result) is not dict
            or len(result) != len(self.declared)
            or any(name not in result for name in self.declared)
        ):
            result = self.flat(result)
        if self.defaults:
            return [self.or_default(c, result.get(c.name)) for c in self.outputs]
        return [result[name] for name in self.declared]

    def flat(self, result):
        """The components of a result that may have dicts and tuples in it."""
        if not hasattr(result, "keys") and not isinstance(result, tuple):
            raise Wrong(f"returned {describe(result)}, expected a dict of {', '.join(sorted(self.declared))}")
        declared = set(self.declared)
        try:
            found = flat(
                result,
                lambda path, value: (
                    path not in declared
                    and (
                        hasattr(value, "keys")
                        or (
                            isinstance(value, (list, tuple))
                            and any(n.startswith(f"{path}.") for n in declared)
                        )
                    )
                ),
            )
        except ValueError as error:
            raise Wrong(f"returned a dict in which {error}") from None
        odd = sorted(map(str, found.keys() - declared))
        missing = sorted(c.name for c in self.outputs if c.name not in found and c.default is None)
        if odd or missing:
            raise Wrong(
                f'{"returned" if odd else "did not return"} "{(odd or missing)[0]}"; its outputs '
                f"are {', '.join(sorted(declared))}"
            )
        return found

    def or_default(self, c, value):
        """The value of component c, or a column of values (of map_batches), with the default for None."""
        if c.default is None:
            return value
        if value is None and self.kind != "map_batches":
            return c.default
        if isinstance(value, (list, tuple)) and self.kind == "map_batches":
            return [c.default if v is None else v for v in value]
        return value

    def kept(self, result):
        """The result of a call, checked and copied: the function may change its arrays afterwards."""
        if self.kind == "filter":
            return truth(result)
        if self.kind == "flat_map":
            if result is None or hasattr(result, "keys"):
                raise Wrong(f"returned {describe(result)}, expected a list of dicts, or a generator of them")
            elements = [[c.keep(v) for c, v in zip(self.outputs, self.values_of(e))] for e in result]
            if is_copy:  # made by a generator, which runs here
                os._exit(0)
            return elements
        return [c.keep(v) for c, v in zip(self.outputs, self.values_of(result))]

    def wait_for(self, coroutine):
        """Runs a coroutine in the event loop of this process, which goes on between calls, so that the
        function's connections and locks stay usable.
        """
        import asyncio  # only here: most functions don't need it
        from concurrent.futures import ThreadPoolExecutor

        global event_loop
        event_loop = event_loop or asyncio.new_event_loop()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return event_loop.run_until_complete(coroutine)
        # cachew.debug() in a notebook, whose own loop runs in this thread
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(event_loop.run_until_complete, coroutine).result()

    async def later(self, result):
        """The result of an async function, or the list of what an async generator gives."""
        try:
            return [e async for e in result] if hasattr(result, "__aiter__") else await result
        finally:
            if is_copy:
                os._exit(0)

    async def computed(self, element, key, check, progress):
        """As `twice`, for an async function; without `check`, the function is called once."""
        again = copied(element) if check else None
        first = self.kept(await self.later(self.apply(element, key)))
        if not check:
            return first, True
        progress[PROGRESS] |= SECOND
        return first, same(first, self.kept(await self.later(self.apply(again, key))))

    async def together(self, rows, progress):
        """Computes rows at the same time, at most `concurrency` of them. Returns, for each of them, the
        result and whether a second call gave the same; or a Failure.
        """
        import asyncio

        results, first = [None] * len(rows), 0
        turns = asyncio.Semaphore(self.concurrency) if self.concurrency else contextlib.nullcontext()

        async def run(i, row):
            nonlocal first
            async with turns:
                try:
                    results[i] = await self.computed(*row, progress)
                except BaseException as error:  # SystemExit too fails only the record
                    if is_copy:
                        os._exit(0)
                    results[i] = self.failure(error, i)
            while first < len(rows) and results[first] is not None:
                first += 1
            progress[PROGRESS] = first + 1

        progress[PROGRESS] = 1
        await asyncio.gather(*(run(i, row) for i, row in enumerate(rows)))
        return results

    def run_together(self, memory, words, progress, answer):
        """Runs the rows of a request at the same time: of a map, flat_map or filter."""
        n, flat, is_filter = words[0], self.kind == "flat_map", self.kind == "filter"
        status, errors = bytearray(n), []
        rows = None if is_filter else Rows(self, answer, None if flat else n)
        counts = [] if flat else None
        for i, result in enumerate(
            self.wait_for(self.together(list(self.elements_of(memory, words)), progress))
        ):
            kept, equal = (None, True) if isinstance(result, Failure) else result
            if isinstance(result, Failure):
                status[i] = FAILED
                errors.append(result.entry(i))
            elif is_filter and not kept:
                status[i] = DROPPED
            elif not equal:
                status[i] = DIFFERS
                errors.append([i, DIFFERENT])
            if flat:
                counts.append(len(kept or ()))
            if flat or (rows and kept is not None):
                for one in (kept or ()) if flat else (kept,):
                    rows.add_kept(i, one)
            elif rows:
                rows.miss()
        return answer.finish(n, status, errors) if is_filter else rows.finish(status, errors, counts)

    def twice(self, element, key, progress):
        """Calls the function twice: the first result, and whether the second one is equal."""
        again = copied(element)
        first = self.kept(self.apply(element, key))
        progress[PROGRESS] |= SECOND
        return first, same(first, self.kept(self.apply(again, key)))

    def run(self, memory, size, answer_memory, reply):
        """Runs a request of `size` bytes. Returns the size of the answer in bytes; None: reply(size) was
        called during the run.
        """
        self.slow.reply = reply
        words = np.frombuffer(memory.cover(size), np.uint64, HEAD + COLUMN * len(self.inputs)).tolist()
        words[3] = words[3] if self.checks else 0
        progress = memoryview(memory.map).cast("B")[: HEAD * 8].cast("Q")
        answer = Answer(answer_memory, len(self.outputs))
        run = {"iterate": self.pull, "map_batches": self.run_batch, "filter": self.run_filter}.get(
            self.kind, self.run_rows
        )
        if self.asynchronous and self.kind in ("map", "flat_map", "filter"):
            run = self.run_together
        try:
            return run(memory, words, progress, answer)
        finally:
            self.columns = []  # their memory is not needed any more

    def pull(self, memory, words, progress, answer):
        """Answers with at most n elements of the iterable, from index `start` on. If earlier elements than
        those that are kept are requested, the iterable is started again. Elements before index `keep` are
        dropped. Returns None if the iterable was slow, and an early answer was sent.
        """
        n, start, least, keep = words[0], words[4], words[5], min(words[4], words[6])
        if (self.iterator is None and self.failed is None) or start < self.first:
            self.iterator, self.failed, self.first, self.kept_elements = None, None, 0, []
        passed = max(0, min(keep - self.first, len(self.kept_elements)))
        del self.kept_elements[:passed]
        self.first += passed

        def there():
            return min(n, max(0, self.first + len(self.kept_elements) - start))

        with self.slow.call(
            there,
            least,
            lambda count: self.answer_pull(answer, start, n, self.fitting(start, count, least), None),
        ):
            self.advance(keep, start, n, least, progress)
        if self.slow.answered:
            return None
        count = self.fitting(start, there(), least)
        return self.answer_pull(answer, start, n, count, self.failed if count == there() else None)

    def bytes_of(self, element):
        """The bytes of an element's arrays and byte strings, without scalars; 0 for an element that failed (a
        Failure).
        """
        return (
            0
            if isinstance(element, Failure)
            else sum(len(element[k]) if is_bytes else element[k].nbytes for k, is_bytes in self.sized)
        )

    def given(self, start, count):
        """`count` of the kept elements, from index `start` on."""
        return self.kept_elements[start - self.first :][:count] if count else []

    def fitting(self, start, count, least):
        """How many of `count` kept elements from index `start` on go into one answer: `least`, and more until
        their size reaches PULL_BYTES.
        """
        size = 0
        for i, element in enumerate(self.given(start, count) if self.sized else []):
            if i >= least and size >= PULL_BYTES:
                return i
            size += self.bytes_of(element)
        return count

    def answer_pull(self, answer, start, n, count, failed):
        rows = Rows(self, answer)
        status, said = bytearray(n), [] if failed is None else [failed.entry(n)]
        for i, element in enumerate(self.given(start, count)):
            if isinstance(element, Failure):
                status[i] = FAILED
                said.append(element.entry(i))
                rows.miss()
            else:
                rows.add_kept(i, element)
        return rows.finish(status, said, [1] * n)

    def advance(self, keep, start, n, least, progress):
        """Takes elements from the iterable, and keeps those from index `keep` on; of an element that fails it
        keeps a Failure. It ends with n elements from index `start` on; with `least` of them and
        PULL_BYTES bytes; when the iterable ends or raises; or when an early answer was sent.
        """
        elements, position, slow = self.kept_elements, self.first + len(self.kept_elements), self.slow
        size = sum(map(self.bytes_of, elements[max(0, start - self.first) :])) if self.sized else 0
        try:
            if self.iterator is None and self.failed is None:
                try:
                    self.iterator = iter(self.function())
                except StopIteration as error:
                    raise RuntimeError("the function raised StopIteration") from error
            while (
                position < start + n
                and self.failed is None
                and not slow.answered
                and (size < PULL_BYTES or position < start + least)
            ):
                if is_copy:  # the iterable forked in its last step
                    os._exit(0)
                progress[PROGRESS] = position + 1
                value = next(self.iterator, END)
                if value is END:
                    break
                position += 1
                if position <= keep:
                    self.first = position
                    continue
                try:
                    elements.append(self.kept(value))
                except BaseException as error:
                    elements.append(Failure(error, detailed=self.details))
                if self.sized and position > start:
                    size += self.bytes_of(elements[-1])
        except BaseException as error:
            self.iterator, self.failed = None, Failure(error)
            self.failed.text = printable(f"{self.failed.text}, after {position} elements")
        if is_copy:
            os._exit(0)

    def run_batch(self, memory, words, progress, answer):
        n, status, errors = words[0], bytearray(words[0]), []
        batch, key = read_batch(memory, self.inputs, words, n), memory.array(np.uint64, 2, words[2])
        given = dict(batch)  # the function may change the dict
        try:
            again = copied(batch) if n and words[3] and memory.map[words[3]] else None
            progress[PROGRESS] = 1
            self.write_batch(answer, self.apply_batch(batch, key), n)
            if again is not None:
                progress[PROGRESS] |= SECOND
                if not self.same_batch(answer, self.apply_batch(again, key)):
                    status[0] = DIFFERS
                    errors.append([0, DIFFERENT])
        except BaseException as error:
            errors, status = [Failure(error, given).entry(0)], bytearray(n)
            answer.columns = [(DENSE, 0, 0, 0)] * len(self.outputs)
        return answer.finish(n, status, errors)

    def apply_batch(self, batch, key):
        result = self.apply(batch, key)
        return self.wait_for(self.later(result)) if self.asynchronous else result

    def write_batch(self, answer, result, n):
        for c, value in zip(self.outputs, self.values_of(result)):
            answer.whole(c, value, n)

    def same_batch(self, answer, result):
        """Whether the result of a second call equals the first one, which is in the answer."""
        for c, value, (_, at, _, _) in zip(self.outputs, self.values_of(result), answer.columns):
            data = (
                b"".join(map(bytes, value))
                if c.bytes
                else np.ascontiguousarray(in_order(array_of(c.name, value), c.dtype)).tobytes()
            )
            if answer.memory.map[at : at + len(data)] != data:
                return False
        return True

    def elements_of(self, memory, words):
        """For each row: its element, the key of its random generator or None, whether to compute it twice."""
        n, names = words[0], self.names
        keys = memory.array(np.uint64, 2 * n, words[2]).reshape(n, 2) if words[2] else [None] * n
        check = memory.map[words[3] : words[3] + n] if words[3] else bytes(n)
        self.columns = columns = read_columns(memory, self.inputs, words, n)
        if len(names) == 1:
            one = names[0]
            elements = ({one: value} for value in columns[0])
        else:
            elements = (dict(zip(names, row)) for row in (zip(*columns) if columns else [()] * n))
        return zip(elements, keys, check)

    def run_filter(self, memory, words, progress, answer):
        status, errors = bytearray(words[0]), []
        for i, (element, key, check) in enumerate(self.elements_of(memory, words)):
            progress[PROGRESS] = i + 1
            try:
                keep, equal = (
                    self.twice(element, key, progress) if check else (truth(self.apply(element, key)), True)
                )
                status[i] = OK if keep else DROPPED
                if keep and not equal:
                    status[i] = DIFFERS
                    errors.append([i, DIFFERENT])
            except BaseException as error:  # SystemExit too fails only the record
                if is_copy:
                    os._exit(0)
                status[i] = FAILED
                errors.append(self.failure(error, i).entry(i))
        return answer.finish(words[0], status, errors)

    def run_rows(self, memory, words, progress, answer):
        n, status, errors, flat = words[0], bytearray(words[0]), [], self.kind == "flat_map"
        rows, counts = Rows(self, answer, None if flat else n), [] if flat else None
        plain = None if self.rng or flat else self.function
        scalar = self.outputs[0] if len(self.outputs) == 1 and self.outputs[0].scalar_types else None
        for i, (element, key, check) in enumerate(self.elements_of(memory, words)):
            progress[PROGRESS] = i + 1
            try:
                if check:
                    kept, equal = self.twice(element, key, progress)
                    if not equal:
                        status[i] = DIFFERS
                        errors.append([i, DIFFERENT])
                elif flat:
                    kept = self.kept(self.apply(element, key))
                else:
                    result = plain(element) if plain is not None else self.apply(element, key)
                    if is_copy:
                        os._exit(0)
                    if (
                        scalar is not None
                        and type(result) is dict
                        and len(result) == 1
                        and type(value := result.get(scalar.name)) in scalar.scalar_types
                    ):
                        rows.lists[0].append(value)  # a shortcut, for the cheapest functions
                    else:
                        rows.add(i, result)
                    continue
                for one in kept if flat else (kept,):
                    rows.add_kept(i, one)
                if flat:
                    counts.append(len(kept))
            except BaseException as error:  # SystemExit too fails only the record
                if is_copy:
                    os._exit(0)
                status[i] = FAILED
                errors.append(self.failure(error, i).entry(i))
                if flat:
                    counts.append(0)
                else:
                    rows.miss()
        return rows.finish(status, errors, counts)
