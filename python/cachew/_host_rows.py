"""Rows in memory that a host shares with the engine: reading those of a request, writing an answer.
docs/hosts.md has the words and tables.
"""

import json
import mmap
import os

import numpy as np
from _host_values import Wrong, array_of, describe, in_order, refuse_mask

HEAD, COLUMN, ALIGN, TABLE_ROW = 16, 4, 64, 8
DENSE, RAGGED, BYTES, WHOLE = 0, 1, 2, 3


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
    # what batches have in the user's process; only this needs the rest of the package
    from cachew import Bytes

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
        array = in_order(array_of(c.name, value), c.dtype)
        if (
            array.dtype != c.dtype
            or array.ndim < 1
            or array.shape[0] != n
            or (c.shape is not None and not c.fits(array.shape[1:]))
            or array.ndim > 7
        ):
            raise Wrong(
                f'returned {describe(array)} as "{c.name}", expected {c.declared()} for each of {n} rows'
            )
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
        return at, self.memory.array(component.dtype, n * item // component.dtype.itemsize, at).reshape(
            [n, *component.shape]
        )

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
        self.placed = [
            answer.place(c, n) if n is not None and c.fixed and c.shape else None for c in function.outputs
        ]

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
