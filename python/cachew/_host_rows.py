"""Rows in the memory that a host process shares with the engine: reads the rows of a request, writes those of
an answer. docs/hosts.md describes the layout. A *word* is an unsigned integer of 64 bits: the first HEAD
words are the head, followed by COLUMN words per component. Offsets are in bytes from the begin of the memory.
"""

import json
import mmap
import os

import numpy as np
from _host_values import Wrong, array_of, describe, in_order, refuse_mask

HEAD, COLUMN = 16, 4  # words: of the head, of a column
TABLE_ROW = 8  # words per row in the table of a column of varying shape
ALIGN = 64  # bytes
DENSE, RAGGED, BYTES, WHOLE = 0, 1, 2, 3  # kinds of columns


class Memory:
    """Shared memory that can grow. Arrays over it stay valid when it grows.

    size: bytes that are mapped. used: bytes of the answer that is being written.
    """

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
    """The values of n rows, one array or list per component. words: the head and the columns of a request."""
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
    # only here, because it loads the whole package; map_batches gets byte strings in the same type as users
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
    """Writes an answer: first the columns and tables, then, in `finish`, the head that has their offsets."""

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
                raise Wrong(f'returned {len(strings)} strings as "{c.name}", expected {n}, one per row')
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
        """Reserves memory for n values of a fixed shape; returns its offset, and an array over it to write
        to.
        """
        item = int(np.prod(component.shape, dtype=np.int64)) * component.dtype.itemsize
        at = self.memory.reserve(n * item)
        return at, self.memory.array(component.dtype, n * item // component.dtype.itemsize, at).reshape(
            [n, *component.shape]
        )

    def column(self, component, values):
        """Writes a column of values that Component.keep returned; None for a row that failed."""
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
    """Collects the results of rows, and writes them to an answer.

    lists: per component, the values so far. placed: per component, (offset, array) if its values are written
    to the answer at once; None if `finish` writes them.
    """

    def __init__(self, function, answer, n=None):
        """n: the number of rows, if it is known: then values of fixed shape are written to the answer at
        once.
        """
        self.function, self.answer = function, answer
        self.lists = [[] for _ in function.outputs]
        self.placed = [
            answer.place(c, n) if n is not None and c.fixed and c.shape else None for c in function.outputs
        ]

    def add(self, i, result):
        """Adds row i: the dict that the function returned."""
        kept = []
        for c, placed, value in zip(self.function.outputs, self.placed, self.function.values_of(result)):
            if placed is None:
                kept.append(c.keep(value))
            else:
                placed[1][i] = c.convert(value)
                kept.append(None)
        self.add_kept(i, kept)

    def add_kept(self, i, kept):
        """Adds row i: a list of values that Component.keep returned."""
        for values, placed, value in zip(self.lists, self.placed, kept):
            if placed is not None and value is not None:
                placed[1][i] = value
            values.append(value)

    def miss(self):
        """Adds a row that failed."""
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
