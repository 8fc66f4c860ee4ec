"""The tokenizer of a `tokenize` operator in a host process: computes the token ids of the texts of a request.
docs/hosts.md describes requests and answers.
"""

import sys
from itertools import chain

import numpy as np
from _host_rows import COLUMN, HEAD, RAGGED, TABLE_ROW, Answer, read_columns
from _host_values import Component, Wrong, text_of

PROGRESS = 15  # index of the head's progress word
FAILED = 2  # status of a row in an answer
AT_ONCE = 512  # texts that are tokenized in one call of the package; bounds the memory of its results


class Tokenizer:
    """A tokenizer, from the spec that the engine sends."""

    def __init__(self, spec):
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError as error:
            raise Wrong(
                f"it needs the package tokenizers, which {sys.executable} can't import ({error}): install it "
                f"there (pip install tokenizers), or name another Python in CACHEW_PYTHON"
            ) from None
        try:
            self.tokenizer = Loaded.from_str(spec["tokenizer"])
        except Exception as error:
            raise Wrong(f"expected a file tokenizer.json, but the package tokenizers says: {error}") from None
        self.inputs = [Component(c) for c in spec["inputs"]]
        self.special = spec["add_special_tokens"]
        # the file's settings would make results depend on the other texts of a call
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        if spec["truncation"] is not None:
            try:
                self.tokenizer.enable_truncation(spec["truncation"])
            except Exception as error:
                raise Wrong(f"truncation is {spec['truncation']}: {error}") from None
        # without the offsets of tokens, which nothing reads; older packages have only encode_batch
        self.encode_batch = getattr(self.tokenizer, "encode_batch_fast", self.tokenizer.encode_batch)

    def encoded(self, texts):
        return [e.ids for e in self.encode_batch(texts, add_special_tokens=self.special)]

    def results(self, strings, progress):
        """For each text its ids, or the exception that its tokenizing raised."""
        texts = [self.decoded(s) for s in strings]
        ids = [None if type(t) is str else t for t in texts]
        good = [i for i, t in enumerate(texts) if type(t) is str]
        for at in range(0, len(good), AT_ONCE):
            some = good[at : at + AT_ONCE]
            progress[PROGRESS] = some[0] + 1
            try:
                found = self.encoded([texts[i] for i in some])
            except BaseException:  # find out which text it is; the package's panics are no Exceptions
                found = [self.alone(texts[i]) for i in some]
            for i, one in zip(some, found):
                ids[i] = one
        return ids

    def alone(self, text):
        try:
            return self.encoded([text])[0]
        except BaseException as error:
            return error

    @staticmethod
    def decoded(string):
        try:
            return str(string, "utf-8")
        except UnicodeDecodeError as error:
            return Wrong(f"the text is not valid UTF-8: {error.reason} at byte {error.start}")

    def run(self, memory, size, answer_memory, reply):
        """Runs a request of `size` bytes. Returns the size of the answer in bytes."""
        words = np.frombuffer(memory.cover(size), np.uint64, HEAD + COLUMN).tolist()
        progress = memoryview(memory.map).cast("B")[: HEAD * 8].cast("Q")
        answer, n = Answer(answer_memory, 1), words[0]
        rows = self.results(read_columns(memory, self.inputs, words, n)[0], progress)
        status, errors = bytearray(n), []
        for i, row in enumerate(rows):
            if isinstance(row, BaseException):
                status[i] = FAILED
                errors.append([i, text_of(row)])
                rows[i] = ()
        lengths = np.fromiter(map(len, rows), np.int64, n)
        room = lengths + lengths % 2  # an item of an answer begins at a multiple of 8 bytes
        ids = chain.from_iterable((*row, 0) if len(row) % 2 else row for row in rows)
        at = answer.put(np.fromiter(ids, np.int32, int(room.sum())).tobytes())
        table = np.zeros((n, TABLE_ROW), np.uint64)
        table[:, 0] = at + 4 * (np.cumsum(room) - room)
        table[:, 1], table[:, 2] = 1, lengths
        answer.columns.append((RAGGED, 0, answer.put(table.tobytes()), 0))
        return answer.finish(n, status, errors)
