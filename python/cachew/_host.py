"""A host process: runs Python functions on rows that lie in shared memory. docs/hosts.md describes what is said to it and what it answers.

Started as `python -m cachew._host` by the engine, with its socket, the shared memory of requests and of answers, and a pipe whose end is its end.
"""

import base64
import fcntl
import json
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import traceback

import numpy as np

SOCKET, IN, OUT, LIFE = 3, 4, 5, 6
VERSION = 1
READY, DEFINE, CALL, DONE, ERROR = 1, 2, 3, 4, 5
FRAME = struct.Struct("=IIQQQ")
HEAD, COLUMN, ALIGN, TABLE_ROW = 16, 4, 64, 8
DENSE, RAGGED, BYTES, WHOLE = 0, 1, 2, 3
OK, DROPPED, FAILED, DIFFERS = 0, 1, 2, 3
PROGRESS = 15
SECOND = 1 << 63  # of the progress word: the row is computed again, to compare
END = object()
HERE = os.path.dirname(os.path.abspath(__file__))
PARENT = os.path.dirname(HERE)


def numpy_dtype(name):
    if name == "bfloat16":
        try:
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        except ImportError:
            return np.dtype(np.uint16)
    return np.dtype(name)


class Wrong(Exception):
    """A function returned something else than it declares."""


class Memory:
    """Shared memory that grows; views of what it was before stay valid."""

    def __init__(self, fd):
        self.fd, self.size, self.map, self.used = fd, 0, None, 0

    def cover(self, size):
        if size > self.size:
            end = os.fstat(self.fd).st_size
            if end < size:
                end = max(size, 2 * end)
                end += -end % 65536
                os.ftruncate(self.fd, end)
            self.map, self.size = mmap.mmap(self.fd, end), end
        return self.map

    def reserve(self, size):
        at = self.used + -self.used % ALIGN
        self.used = at + size
        self.cover(self.used)
        return at

    def array(self, dtype, count, at):
        return np.frombuffer(self.map, dtype, count, at)


is_copy = False
"""Of a host, made by a function that forks. It ends where the function comes back in it, before it writes to the memory that it shares with the host."""


def become_copy():
    global is_copy
    is_copy = True


def refuse_mask(name, value):
    """What is masked would come out as if it were not."""
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise Wrong(f'returned a masked array as "{name}", and components have no masks: fill it, or return the mask as a component of its own')


def describe(value):
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.generic):
        return str(value.dtype)
    return type(value).__name__


def text_of(error):
    """One line: what was raised, and where in the user's code."""
    if isinstance(error, Wrong):
        return printable(str(error))
    said = "".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(HERE)]
    if frames:
        said += f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})"
    return printable(said)


def printable(text):
    """What JSON can hold, in one line."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) if ord(c) < 256 else "?" for c in clean)[:390]


class Component:
    """What the spec says about a component, and how to check and write values of it."""

    def __init__(self, spec):
        self.name, self.dtype_name, self.shape = spec["name"], spec["dtype"], spec["shape"]
        self.bytes = self.dtype_name == "bytes"
        self.dtype = None if self.bytes else numpy_dtype(self.dtype_name)
        self.fixed = not self.bytes and self.shape is not None and None not in self.shape
        self.kind = BYTES if self.bytes else DENSE if self.fixed else RAGGED
        self.scalar_types = None
        if self.fixed and not self.shape:
            self.scalar_types = {self.dtype.type} | ({bool} if self.dtype == bool else set())
        self.nothing = self.dtype.type(0) if self.scalar_types else None  # in place of a value that is not there
        self.python_types = (bool,) if self.dtype == bool else (int,) if self.dtype is not None and self.dtype.kind in "iu" else (int, float)

    def declared(self):
        if self.bytes:
            return "bytes"
        return f"{self.dtype_name}[{'...' if self.shape is None else ', '.join('?' if d is None else str(d) for d in self.shape)}]"

    def wrong(self, value):
        return Wrong(f'returned {describe(value)} as "{self.name}", expected {self.declared()}')

    def convert(self, value):
        """The value as an array of the declared type, or bytes."""
        if self.bytes:
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, (bytes, bytearray, memoryview)):
                return value
            raise self.wrong(value)
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            if type(value) not in self.python_types:
                raise self.wrong(value)
            try:
                array = np.array(value, self.dtype)
            except OverflowError:
                raise Wrong(f'returned {value} as "{self.name}", which is no {self.dtype_name}') from None
            if self.dtype.kind in "iu" and int(array) != value:
                raise Wrong(f'returned {value} as "{self.name}", which is no {self.dtype_name}')
        else:
            array = value if isinstance(value, np.ndarray) else np.asarray(value)
            if array.dtype == object:
                raise self.wrong(value)
            refuse_mask(self.name, array)
        if array.dtype != self.dtype or (self.shape is not None and not self.fits(array.shape)):
            raise self.wrong(array)
        if array.ndim > 6:
            raise Wrong(f'returned "{self.name}" with {array.ndim} dimensions, expected at most 6')
        return array

    def keep(self, value):
        """The value, converted, where nobody else can change it: functions may use their arrays again for the next record."""
        if self.scalar_types is not None:
            return value if type(value) in self.scalar_types else self.convert(value)[()]
        value = self.convert(value)
        if self.bytes:
            return value if type(value) is bytes else bytes(value)
        return value.copy()

    def fits(self, shape):
        return len(shape) == len(self.shape) and all(d is None or d == n for d, n in zip(self.shape, shape))


def read_columns(memory, components, words, n):
    """Per component the values of n rows: an array to iterate, or a list."""
    columns = []
    for k, c in enumerate(components):
        kind, data, table, _ = words[HEAD + COLUMN * k : HEAD + COLUMN * (k + 1)]
        if kind == DENSE:
            count = n * int(np.prod(c.shape, dtype=np.int64))
            columns.append(memory.array(c.dtype, count, data).reshape([n, *c.shape]))
        elif kind == BYTES:
            at = memory.array(np.uint64, n + 1, table).tolist()
            columns.append([memory.map[data + at[i] : data + at[i + 1]] for i in range(n)])
        else:
            rows = memory.array(np.uint64, n * TABLE_ROW, table).reshape(n, TABLE_ROW).tolist()
            values = []
            for at, ndim, *dims in rows:
                shape = dims[:ndim]
                values.append(memory.array(c.dtype, int(np.prod(shape, dtype=np.int64)), at).reshape(shape))
            columns.append(values)
    return columns


def read_batch(memory, components, words, n):
    """A batch as a dict of arrays over the shared memory."""
    from cachew import Bytes  # what batches have in the user's process; only this needs the rest of the package

    batch = {}
    for k, c in enumerate(components):
        kind, data, table, _ = words[HEAD + COLUMN * k : HEAD + COLUMN * (k + 1)]
        if kind == BYTES:
            offsets = memory.array(np.int64, n + 1, table)
            batch[c.name] = Bytes(memory.array(np.uint8, int(offsets[-1]), data), offsets)
        else:
            ndim, *dims = memory.array(np.uint64, TABLE_ROW, table).tolist()
            shape = dims[:ndim]
            batch[c.name] = memory.array(c.dtype, int(np.prod(shape, dtype=np.int64)), data).reshape(shape)
    return batch


class Answer:
    """Written from its end: parts first, then the head that says where they are."""

    def __init__(self, memory, n_columns):
        self.memory = memory
        memory.used = 0
        memory.reserve((HEAD + COLUMN * n_columns) * 8)
        self.head = [0] * HEAD
        self.columns = []
        self.n_columns = n_columns

    def put(self, data):
        at = self.memory.reserve(len(data))
        self.memory.map[at : at + len(data)] = data
        return at

    def finish(self, n, status, errors, counts=None):
        self.head[0], self.head[1] = n, self.put(status)
        if counts is not None:
            self.head[2] = self.put(np.asarray(counts, np.uint32).tobytes())
        text = json.dumps(errors).encode() if errors else b""
        self.head[3], self.head[4], self.head[5] = self.put(text), len(text), self.n_columns
        words = [*self.head, *(w for c in self.columns for w in c)]
        self.memory.array(np.uint64, len(words), 0)[:] = words
        return self.memory.used

    def whole(self, component, value, n):
        """Writes the value of a component for a batch of n rows."""
        c = component
        if c.bytes:
            strings = [c.convert(v) for v in value]
            if len(strings) != n:
                raise Wrong(f'returned {len(strings)} strings as "{c.name}", expected {n}, one a row')
            return self.column(c, [bytes(v) for v in strings])
        refuse_mask(c.name, value)
        array = np.asarray(value)
        if array.dtype != c.dtype or array.ndim < 1 or array.shape[0] != n or (c.shape is not None and not c.fits(array.shape[1:])) or array.ndim > 7:
            raise Wrong(f'returned {describe(array)} as "{c.name}", expected {c.declared()} for each of {n} rows')
        table = np.zeros(TABLE_ROW, np.uint64)
        table[0], table[1 : 1 + array.ndim] = array.ndim, array.shape
        where = self.put(table.tobytes())
        at = self.memory.reserve(array.nbytes)
        self.memory.array(c.dtype, array.size, at).reshape(array.shape)[...] = array
        self.columns.append((WHOLE, at, where, 0))
        return None

    def place(self, component, n):
        """Room for n values of a fixed shape, as an array to write them to."""
        item = int(np.prod(component.shape, dtype=np.int64)) * component.dtype.itemsize
        at = self.memory.reserve(n * item)
        return at, self.memory.array(component.dtype, n * item // component.dtype.itemsize, at).reshape([n, *component.shape])

    def column(self, component, values):
        """Writes values that were kept; None where there is none."""
        c, n = component, len(values)
        if c.fixed:
            at, out = self.place(c, n)
            if c.scalar_types is not None:
                out[:] = values
            else:
                for i, value in enumerate(values):
                    if value is not None:
                        out[i] = value
            self.columns.append((DENSE, at, 0, 0))
        elif c.bytes:
            table = np.zeros(n + 1, np.uint64)
            np.cumsum([0 if v is None else len(v) for v in values], out=table[1:], dtype=np.uint64)
            where = self.put(table.tobytes())
            self.columns.append((BYTES, self.put(b"".join(v for v in values if v is not None)), where, 0))
        else:
            table = np.zeros((n, TABLE_ROW), np.uint64)
            for i, v in enumerate(values):
                if v is not None:
                    at = self.memory.reserve(v.nbytes)
                    self.memory.array(v.dtype, v.size, at)[:] = v.reshape(-1)
                    table[i, :2] = at, v.ndim
                    table[i, 2 : 2 + v.ndim] = v.shape
            self.columns.append((RAGGED, 0, self.put(table.tobytes()), 0))


class Rows:
    """What rows give, taken at once."""

    def __init__(self, function, answer, n=None):
        """n: that many rows are to come, so values of fixed shape are written where they belong."""
        self.function, self.answer = function, answer
        self.lists = [[] for _ in function.outputs]
        self.placed = [answer.place(c, n) if n is not None and c.fixed and c.shape else None for c in function.outputs]

    def add(self, i, result):
        """Row i, as a function returned it."""
        kept = []
        for c, placed, value in zip(self.function.outputs, self.placed, self.function.values_of(result)):
            if placed is None:
                kept.append(c.keep(value))
            else:
                placed[1][i] = c.convert(value)
                kept.append(None)
        self.add_kept(i, kept)

    def add_kept(self, i, kept):
        for values, placed, value in zip(self.lists, self.placed, kept):
            if placed is not None and value is not None:
                placed[1][i] = value
            values.append(value)

    def miss(self):
        for c, values in zip(self.function.outputs, self.lists):
            values.append(c.nothing)

    def finish(self, status, errors, counts=None):
        n = len(self.lists[0]) if self.lists else len(status)
        for c, placed, values in zip(self.function.outputs, self.placed, self.lists):
            if placed is None:
                self.answer.column(c, values)
            else:
                self.answer.columns.append((DENSE, placed[0], 0, 0))
        return self.answer.finish(n, status, errors, counts)


def copied(element):
    def copy(value):
        if isinstance(value, np.ndarray):
            return value.copy()
        return type(value)(value.data.copy(), value.offsets.copy()) if hasattr(value, "offsets") else value

    return {name: copy(value) for name, value in element.items()}


def same(a, b):
    """Whether two results that were kept are equal, bit by bit where they are numbers."""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, bytes):
        return a == b
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


DIFFERENT = "gave two different results for one record; if that is meant, say deterministic=False"


class Function:
    def __init__(self, spec):
        for place in reversed(spec["path"] or []):
            if place not in sys.path:
                sys.path.insert(0, place)
        self.function = pickle.loads(base64.b64decode(spec["payload"]))
        self.kind, self.rng = spec["kind"], spec["rng"]
        self.inputs = [Component(c) for c in spec["inputs"]]
        self.outputs = [Component(c) for c in spec["outputs"]]
        self.names = tuple(c.name for c in self.inputs)
        self.declared = tuple(c.name for c in self.outputs)
        self.iterator, self.position, self.given = None, 0, None  # of an iterable: given is what was pulled last, and from where

    def apply(self, element, key):
        try:
            if self.rng:
                return self.function(element, rng=np.random.Generator(np.random.Philox(key=key)))
            return self.function(element)
        finally:
            if is_copy:
                os._exit(0)

    def values_of(self, result):
        """The values of a dict of exactly the declared components, in their order."""
        if type(result) is not dict:
            if not hasattr(result, "keys"):
                raise Wrong(f"returned {describe(result)}, expected a dict of {', '.join(sorted(self.declared))}")
            result = dict(result)
        if len(result) != len(self.declared) or any(name not in result for name in self.declared):
            have, declared = set(result), set(self.declared)
            odd = sorted(map(str, have - declared)) or sorted(declared - have)
            raise Wrong(f'{"returned" if have - declared else "did not return"} "{odd[0]}"; its outputs are {", ".join(sorted(declared))}')
        return [result[name] for name in self.declared]

    def kept(self, result):
        """What a call gave, as nobody else can change it."""
        if self.kind == "filter":
            return bool(result)
        if self.kind == "flat_map":
            elements = [[c.keep(v) for c, v in zip(self.outputs, self.values_of(e))] for e in result]
            if is_copy:  # made by a generator, which runs here
                os._exit(0)
            return elements
        return [c.keep(v) for c, v in zip(self.outputs, self.values_of(result))]

    def twice(self, element, key, progress):
        """What a call gave, and whether a second one gives the same."""
        again = copied(element)
        first = self.kept(self.apply(element, key))
        progress[PROGRESS] |= SECOND
        return first, same(first, self.kept(self.apply(again, key)))

    def run(self, memory, size, answer_memory):
        words = np.frombuffer(memory.cover(size), np.uint64, HEAD + COLUMN * len(self.inputs)).tolist()
        progress = memoryview(memory.map).cast("B")[: HEAD * 8].cast("Q")
        answer = Answer(answer_memory, len(self.outputs))
        run = {"iterate": self.pull, "map_batches": self.run_batch, "filter": self.run_filter}.get(self.kind, self.run_rows)
        return run(memory, words, progress, answer)

    def pull(self, memory, words, progress, answer):
        """Up to n elements of the iterable from a place on; going back starts it anew."""
        n, start = words[0], words[4]
        if self.given is None or self.given[:2] != (start, n):
            self.given = (start, n, *self.elements(start, n, progress))
        rows = Rows(self, answer)
        if is_copy:
            os._exit(0)
        _, _, elements, errors = self.given
        status, said = bytearray(n), [] if errors is None else [[n, errors]]
        for i, element in enumerate(elements):
            if isinstance(element, str):  # why it is none
                status[i] = FAILED
                said.append([i, element])
                rows.miss()
            else:
                rows.add_kept(i, element)
        return rows.finish(status, said, [1] * n)

    def elements(self, start, n, progress):
        """(elements as they are kept, or why one is none; what the iterable raised, or None)."""
        elements = []
        try:
            if self.iterator is None or start < self.position:
                self.position = 0
                try:
                    self.iterator = iter(self.function())
                except StopIteration as error:
                    raise RuntimeError("the function raised StopIteration") from error
            while self.position < start + n:
                if is_copy:  # made by the iterable, or by its last step
                    os._exit(0)
                progress[PROGRESS] = self.position + 1
                value = next(self.iterator, END)
                if value is END:
                    break
                if self.position >= start:
                    try:
                        elements.append(self.kept(value))
                    except BaseException as error:
                        elements.append(text_of(error))
                self.position += 1
        except BaseException as error:
            self.iterator = None
            return elements, printable(f"{text_of(error)}, after {self.position} elements")
        return elements, None

    def run_batch(self, memory, words, progress, answer):
        n, status, errors = words[0], bytearray(words[0]), []
        batch, key = read_batch(memory, self.inputs, words, n), memory.array(np.uint64, 2, words[2])
        try:
            again = copied(batch) if n and memory.map[words[3]] else None
            self.write_batch(answer, self.apply(batch, key), n)
            if again is not None and not self.same_batch(answer, self.apply(again, key)):
                status[0] = DIFFERS
                errors.append([0, DIFFERENT])
        except BaseException as error:
            errors, status = [[0, text_of(error)]], bytearray(n)
            answer.columns = [(DENSE, 0, 0, 0)] * len(self.outputs)
        return answer.finish(n, status, errors)

    def write_batch(self, answer, result, n):
        for c, value in zip(self.outputs, self.values_of(result)):
            answer.whole(c, value, n)

    def same_batch(self, answer, result):
        """Whether a second result is what the first one left in the answer."""
        for c, value, (_, at, _, _) in zip(self.outputs, self.values_of(result), answer.columns):
            data = b"".join(map(bytes, value)) if c.bytes else np.ascontiguousarray(value).tobytes()
            if answer.memory.map[at : at + len(data)] != data:
                return False
        return True

    def elements_of(self, memory, words):
        """Per row its element, the key of its generator, and whether it is to be computed twice."""
        n, names = words[0], self.names
        keys = memory.array(np.uint64, 2 * n, words[2]).reshape(n, 2) if words[2] else [None] * n
        check = memory.map[words[3] : words[3] + n] if words[3] else bytes(n)
        columns = read_columns(memory, self.inputs, words, n)
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
                keep, equal = self.twice(element, key, progress) if check else (bool(self.apply(element, key)), True)
                status[i] = OK if keep else DROPPED
                if keep and not equal:
                    status[i] = DIFFERS
                    errors.append([i, DIFFERENT])
            except BaseException as error:  # SystemExit too: it is the record's
                if is_copy:
                    os._exit(0)
                status[i] = FAILED
                errors.append([i, text_of(error)])
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
                    if scalar is not None and type(result) is dict and len(result) == 1 and type(value := result.get(scalar.name)) in scalar.scalar_types:
                        rows.lists[0].append(value)  # the cheapest functions, without detours
                    else:
                        rows.add(i, result)
                    continue
                for one in kept if flat else (kept,):
                    rows.add_kept(i, one)
                if flat:
                    counts.append(len(kept))
            except BaseException as error:  # SystemExit too: it is the record's
                if is_copy:
                    os._exit(0)
                status[i] = FAILED
                errors.append([i, text_of(error)])
                if flat:
                    counts.append(0)
                else:
                    rows.miss()
        return rows.finish(status, errors, counts)


def live_no_longer_than_the_parent():
    """The kernel kills this process when the other end of LIFE is closed: by the engine, or because its process is gone."""
    fcntl.fcntl(LIFE, fcntl.F_SETOWN, -os.getpgrp() if os.getpgrp() == os.getpid() else os.getpid())  # with what it started
    fcntl.fcntl(LIFE, 10, signal.SIGKILL)  # F_SETSIG, which the module has no name for in all versions
    fcntl.fcntl(LIFE, fcntl.F_SETFL, fcntl.fcntl(LIFE, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(LIFE, 1) == b"":
            sys.exit(0)
    except BlockingIOError:
        pass


def receive(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return bytes(data)


def main():
    if PARENT not in sys.path:
        sys.path.append(PARENT)  # where the package is
    for fd in (SOCKET, IN, OUT, LIFE):
        os.set_inheritable(fd, False)
    live_no_longer_than_the_parent()
    connection = socket.socket(fileno=SOCKET)
    os.register_at_fork(after_in_child=become_copy)
    requests, answers, functions, pid = Memory(IN), Memory(OUT), {}, os.getpid()
    connection.sendall(FRAME.pack(READY, VERSION, 0, 0, 0))
    while True:
        kind, version, key, size, call = FRAME.unpack(receive(connection, FRAME.size))
        if version != VERSION:
            raise SystemExit(f"the engine speaks version {version} of the protocol of hosts, this package {VERSION}: they are of different releases")
        try:
            if kind == DEFINE:
                functions[key] = Function(json.loads(receive(connection, size)))
                reply = FRAME.pack(DONE, VERSION, key, 0, call)
            else:
                reply = FRAME.pack(DONE, VERSION, key, functions[key].run(requests, size, answers), call)
        except Exception as error:
            text = text_of(error).encode()
            reply = FRAME.pack(ERROR, VERSION, key, len(text), call) + text
        if os.getpid() != pid:
            os._exit(0)  # a fork of the function's that came back here: one answer is enough
        connection.sendall(reply)


if __name__ == "__main__":
    main()
