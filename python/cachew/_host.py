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
from collections.abc import Sequence

import numpy as np

SOCKET, IN, OUT, LIFE = 3, 4, 5, 6
VERSION = 1
READY, DEFINE, CALL, DONE, ERROR = 1, 2, 3, 4, 5
FRAME = struct.Struct("=IIQQ")
HEAD, COLUMN, ALIGN, TABLE_ROW = 16, 4, 64, 8
DENSE, RAGGED, BYTES, WHOLE = 0, 1, 2, 3
OK, DROPPED, FAILED, DIFFERS = 0, 1, 2, 3
PROGRESS = 15
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


def describe(value):
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.generic):
        return str(value.dtype)
    return type(value).__name__


def text_of(error):
    """One line: what was raised, and where in the user's code."""
    if isinstance(error, Wrong):
        return str(error)[:390]
    said = "".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(HERE)]
    if frames:
        said += f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})"
    return said[:390]


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
        if array.dtype != self.dtype or (self.shape is not None and not self.fits(array.shape)):
            raise self.wrong(array)
        if array.ndim > 6:
            raise Wrong(f'returned "{self.name}" with {array.ndim} dimensions, expected at most 6')
        return array

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
            return self.column(c, strings, strings, None)
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

    def column(self, component, values, elements, bad):
        """Writes the values of a component; those that do not fit it are told to bad(row, error). elements[i] is None where there is no value."""
        c = component
        if c.scalar_types and set(map(type, values)) <= c.scalar_types:
            at = self.memory.reserve(len(values) * c.dtype.itemsize)
            self.memory.array(c.dtype, len(values), at)[:] = values
            self.columns.append((DENSE, at, 0, c.dtype.itemsize))
            return
        if c.fixed:
            item = int(np.prod(c.shape, dtype=np.int64)) * c.dtype.itemsize
            at = self.memory.reserve(len(values) * item)
            out = self.memory.array(c.dtype, len(values) * item // c.dtype.itemsize, at).reshape([len(values), *c.shape])
            for i, value in enumerate(values):
                if elements[i] is not None:
                    try:
                        out[i] = c.convert(value)
                    except Exception as error:
                        bad(i, error)
            self.columns.append((DENSE, at, 0, item))
            return
        converted = []
        for i, value in enumerate(values):
            try:
                converted.append(None if elements[i] is None else c.convert(value))
            except Exception as error:
                bad(i, error)
                converted.append(None)
        if c.bytes:
            table = np.zeros(len(values) + 1, np.uint64)
            np.cumsum([0 if v is None else len(v) if isinstance(v, (bytes, bytearray)) else v.nbytes for v in converted], out=table[1:], dtype=np.uint64)
            where = self.put(table.tobytes())
            self.columns.append((BYTES, self.put(b"".join(b"" if v is None else v for v in converted)), where, 0))
            return
        table = np.zeros((len(values), TABLE_ROW), np.uint64)
        for i, v in enumerate(converted):
            if v is None:
                table[i, 1] = 0 if c.shape is None else len(c.shape)
                continue
            at = self.memory.reserve(v.nbytes)
            self.memory.array(v.dtype, v.size, at)[:] = v.reshape(-1)
            table[i, :2] = at, v.ndim
            table[i, 2 : 2 + v.ndim] = v.shape
        self.columns.append((RAGGED, 0, self.put(table.tobytes()), 0))


def copied(element):
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in element.items()}


def same(a, b):
    """Whether two results are equal, bit by bit where they are numbers."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (bytes, bytearray, memoryview, str)):
        return type(a) is type(b) and a == b
    if isinstance(a, Sequence):
        return isinstance(b, Sequence) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Function:
    def __init__(self, spec):
        for place in reversed(spec["path"] or []):
            if place not in sys.path:
                sys.path.insert(0, place)
        self.function = pickle.loads(base64.b64decode(spec["payload"]))
        self.name, self.kind, self.rng = spec["name"], spec["kind"], spec["rng"]
        self.inputs = [Component(c) for c in spec["inputs"]]
        self.outputs = [Component(c) for c in spec["outputs"]]
        self.names = tuple(c.name for c in self.inputs)
        self.iterator, self.position = None, 0  # of an iterable

    def apply(self, element, key):
        if self.rng:
            return self.function(element, rng=np.random.Generator(np.random.Philox(key=key)))
        return self.function(element)

    def result(self, value):
        """Lists and generators of flat_map are run to their end here, so that what they raise is the record's."""
        return list(value) if self.kind == "flat_map" else value

    def once(self, element, key, check):
        """What a record gives, and, if it was asked to be compared, what is to be said about that."""
        if not check:
            return self.result(self.apply(element, key)), None
        again = copied(element)
        value = self.result(self.apply(element, key))
        second = self.result(self.apply(again, key))
        if same(value, second):
            return value, None
        return value, "gave two different results for one record; if that is meant, say deterministic=False"

    def run(self, memory, size, answer_memory):
        words = np.frombuffer(memory.cover(size), np.uint64, HEAD + COLUMN * len(self.inputs)).tolist()
        if self.kind == "iterate":
            return self.pull(memory, words, answer_memory)
        return self.run_batch(memory, words, answer_memory) if self.kind == "map_batches" else self.run_rows(memory, words, answer_memory)

    def pull(self, memory, words, answer_memory):
        """Up to n elements of the iterable from a place on; going back starts it anew."""
        n, start, progress = words[0], words[4], memoryview(memory.map).cast("B")[: HEAD * 8].cast("Q")
        values, errors, status = [], [], bytearray(n)

        def bad(i, error):
            status[i] = FAILED
            errors.append([i, text_of(error)])

        try:
            if self.iterator is None or start < self.position:
                self.iterator, self.position = iter(self.function()), 0
            while self.position < start + n:
                progress[PROGRESS] = self.position + 1
                value = next(self.iterator)
                if self.position >= start:
                    values.append(value)
                self.position += 1
        except StopIteration:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors.append([n, f"{text_of(error)}, after {self.position} elements"])
        self.check_dicts(values, bad)
        answer = Answer(answer_memory, len(self.outputs))
        for c in self.outputs:
            answer.column(c, [None if v is None else v[c.name] for v in values], values, bad)
        return answer.finish(len(values), status, errors, [1] * n)

    def run_batch(self, memory, words, answer_memory):
        n, status, errors = words[0], bytearray(words[0]), []
        batch, key = read_batch(memory, self.inputs, words, n), memory.array(np.uint64, 2, words[2])
        answer = Answer(answer_memory, len(self.outputs))
        try:
            value, note = self.once(batch, key, n and memory.map[words[3]])
            if note:
                status[0] = DIFFERS
                errors.append([0, note])
            value = self.checked(value, {c.name for c in self.outputs})
            for c in self.outputs:
                answer.whole(c, value[c.name], n)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors = [[0, text_of(error)]]
            status = bytearray(n)
            answer.columns = [(DENSE, 0, 0, 0)] * len(self.outputs)
        return answer.finish(n, status, errors)

    def run_rows(self, memory, words, answer_memory):
        n, progress = words[0], memoryview(memory.map).cast("B")[: HEAD * 8].cast("Q")
        keys = memory.array(np.uint64, 2 * n, words[2]).reshape(n, 2) if words[2] else None
        check = memory.map[words[3] : words[3] + n] if words[3] else bytes(n)
        checked = any(check)
        columns = read_columns(memory, self.inputs, words, n)
        status, errors, values = bytearray(n), [], []
        function, names, rng, flat = self.function, self.names, self.rng, self.kind == "flat_map"
        one = names[0] if len(names) == 1 else None

        def bad(i, error):
            if status[i] != FAILED:
                status[i] = FAILED
                errors.append([i, text_of(error)])

        for i, row in enumerate(columns[0] if one is not None else zip(*columns) if columns else [()] * n):
            progress[PROGRESS] = i + 1
            element = {one: row} if one is not None else dict(zip(names, row))
            try:
                if rng or flat or checked:
                    value, note = self.once(element, None if keys is None else keys[i], check[i])
                    if note:
                        status[i] = DIFFERS
                        errors.append([i, note])
                    values.append(value)
                else:
                    values.append(function(element))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too: it is the record's
                bad(i, error)
                values.append(None)
        return self.write(answer_memory, n, values, status, errors, bad)

    def write(self, memory, n, values, status, errors, bad):
        answer = Answer(memory, len(self.outputs))
        if self.kind == "filter":
            for i, value in enumerate(values):
                if status[i] != FAILED:
                    try:
                        if not value:
                            status[i] = DROPPED
                    except Exception as error:
                        bad(i, error)
            return answer.finish(n, status, errors)
        counts = None
        if self.kind == "flat_map":
            counts = [0 if v is None else len(v) for v in values]
            owners = [i for i, k in enumerate(counts) for _ in range(k)]
            values = [e for v in values if v is not None for e in v]

            def bad_element(j, error):
                bad(owners[j], error)

        else:
            bad_element = bad
        self.check_dicts(values, bad_element)
        for c in self.outputs:
            name = c.name
            try:
                column = [v[name] for v in values]
            except (TypeError, KeyError):  # some failed
                column = [v[name] if v is not None else None for v in values]
            answer.column(c, column, values, bad_element)
        return answer.finish(len(values), status, errors, counts)

    def check_dicts(self, values, bad):
        """Each element is a dict of exactly the declared components; others become None."""
        declared = {c.name for c in self.outputs}
        for i, value in enumerate(values):
            if value is None or type(value) is not dict or value.keys() != declared:
                try:
                    values[i] = self.checked(value, declared)
                except Wrong as error:
                    values[i] = None
                    bad(i, error)

    def checked(self, value, declared):
        if not hasattr(value, "keys"):
            raise Wrong(f"returned {describe(value)}, expected a dict of {', '.join(sorted(declared))}")
        have = set(value.keys())
        if have != declared:
            odd = sorted(map(str, have - declared)) or sorted(declared - have)
            raise Wrong(f'{"returned" if have - declared else "did not return"} "{odd[0]}"; its outputs are {", ".join(sorted(declared))}')
        return value


def live_no_longer_than_the_parent():
    """The kernel kills this process when the other end of LIFE is closed: by the engine, or because its process is gone."""
    fcntl.fcntl(LIFE, fcntl.F_SETOWN, os.getpid())
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
    requests, answers, functions = Memory(IN), Memory(OUT), {}
    connection.sendall(FRAME.pack(READY, VERSION, 0, 0))
    while True:
        kind, version, key, size = FRAME.unpack(receive(connection, FRAME.size))
        if version != VERSION:
            raise SystemExit(f"the engine speaks version {version} of the protocol of hosts, this package {VERSION}: they are of different releases")
        try:
            if kind == DEFINE:
                functions[key] = Function(json.loads(receive(connection, size)))
                reply = FRAME.pack(DONE, VERSION, key, 0)
            else:
                reply = FRAME.pack(DONE, VERSION, key, functions[key].run(requests, size, answers))
        except Exception as error:
            text = text_of(error).encode()
            reply = FRAME.pack(ERROR, VERSION, key, len(text)) + text
        connection.sendall(reply)


if __name__ == "__main__":
    main()
