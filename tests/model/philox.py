"""Random numbers as docs/randomness.md defines them: Philox4x32-10, keys, draws, permutations."""

import math

import xxhash

MASK32 = 0xFFFFFFFF


def philox(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """One Philox4x32-10 call: four 32-bit words from a 64-bit key and four counter words."""
    k0, k1 = key & MASK32, key >> 32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def le64(value: int) -> bytes:
    return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def hash64(*parts: bytes) -> int:
    """XXH3_64 with seed 0 of the concatenated parts."""
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def draw_key(seed: int, epoch: int, salt: str) -> int:
    return hash64(le64(seed), le64(epoch), salt.encode())


def shuffle_key(seed: int, epoch: int, salt: str, pass_number: int, kind: int, window: int) -> int:
    return hash64(le64(seed), le64(epoch), salt.encode(), le64(pass_number), le64(kind), le64(window))


def element_id(file_key: int, row: int, ordinals: tuple[int, ...]) -> int:
    return hash64(le64(file_key), le64(row), *(le64(o) for o in ordinals))


def uniform(word: int) -> float:
    return (word >> 8) * 2.0**-24


def integer(word: int, n: int) -> int:
    return (word * n) >> 32


class Draw:
    """The words of one element's draw under one key; word k on demand."""

    def __init__(self, key: int, element: int):
        self.key = key
        self.element = element

    def block(self, b: int) -> tuple[int, int, int, int]:
        return philox(self.key, (self.element & MASK32, self.element >> 32, b, 0))

    def word(self, k: int) -> int:
        return self.block(k // 4)[k % 4]


TABLE = 65536  # positions at most that are permuted by a table
ROUNDS = 8


def table(key: int, n: int) -> list[int]:
    a = list(range(n))
    words: tuple[int, ...] = ()
    for t in range(n - 1):
        if t % 4 == 0:
            words = philox(key, (t // 4, 0, 0, 1))
        i = n - 1 - t
        j = integer(words[t % 4], i + 1)
        a[i], a[j] = a[j], a[i]
    return a


def round_hash(v: int, key0: int, key1: int) -> int:
    v ^= key0
    v = ((v ^ (v >> 16)) * 0x7FEB352D) & MASK32
    v = (v ^ (v >> 15)) + key1 & MASK32
    v = (v * 0x846CA68B) & MASK32
    return v ^ (v >> 16)


class Network:
    """A permutation of n positions, each computed by itself: a Feistel network on rows and columns that
    walks cycles.
    """

    def __init__(self, key: int, n: int):
        self.n = n
        self.rows = math.isqrt(n - 1) + 1
        self.columns = -(-n // self.rows)
        self.keys = [word for block in range(ROUNDS // 2) for word in philox(key, (block, 0, 0, 2))]

    def once(self, position: int) -> int:
        row, column = divmod(position, self.columns)
        for k in range(0, ROUNDS, 2):
            a, b, c, d = self.keys[2 * k : 2 * k + 4]
            row = (row + integer(round_hash(column, a, b), self.rows)) % self.rows
            column = (column + integer(round_hash(row, c, d), self.columns)) % self.columns
        return row * self.columns + column

    def __getitem__(self, position: int) -> int:
        position = self.once(position)
        while position >= self.n:
            position = self.once(position)
        return position


def permutation(key: int, n: int) -> list[int]:
    """Of all positions of a shuffle."""
    if n <= TABLE:
        return table(key, n)
    network = Network(key, n)
    return [network[i] for i in range(n)]
