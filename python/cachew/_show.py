"""Elements of a dataset as a table: text for terminals, HTML with pictures for notebooks. `Dataset.show` and
`Dataset._repr_html_` use it.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cachew._batch import Batch
from cachew._errors import Error

if TYPE_CHECKING:
    from cachew.dataset import Dataset, Field

TEXT_WIDTH = 40
"""The longest text in a cell, in characters."""
PICTURE_SIZE = 128
"""The longest side of a picture, in pixels."""
ENCODED_BYTES = 1 << 20
"""The largest encoded image that goes into HTML as it is, where Pillow is not installed."""
SMALL = 8
"""An array of at most this many values is shown with its values."""

FORMATS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png", b"GIF8": "gif"}
"""Encoded images that browsers show, by their first bytes. WebP is found by itself."""


class Table:
    """Rows of cells, with a header. In a notebook it is HTML, elsewhere text. A cell is a pair: its text, and
    its HTML, or None if that is the text.
    """

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[tuple[str, str | None]]]) -> None:
        self._header = header
        self._rows = rows

    def __repr__(self) -> str:
        lines = [list(self._header), *([text for text, _ in row] for row in self._rows)]
        widths = [max(map(len, column)) for column in zip(*lines)]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        def line(cells: Iterable[str], tag: str) -> str:
            marked = (f'<{tag} style="text-align:left">{cell}</{tag}>' for cell in cells)
            return f"<tr>{''.join(marked)}</tr>"

        body = [line((html.escape(t) if h is None else h for t, h in row), "td") for row in self._rows]
        return f"<table>{line(map(html.escape, self._header), 'th')}{''.join(body)}</table>"


def display(shown: Any) -> None:
    """Shows a value that has a text and an HTML form: in IPython and notebooks as these do, else as text."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

        display(shown)
    else:
        print(shown)


# ---- elements ----


def elements(ds: Dataset, batches: Iterable[Batch]) -> Iterator[dict[str, Any]]:
    """The elements of batches, as component -> NumPy array or memoryview."""
    batched = ds.batch_size is not None
    for batch in batches:
        if not batched:
            if batch.n_records:  # else the element failed, and on_error("skip") leaves it out
                yield batch
            continue
        for i in range(batch.n_records):
            yield {name: value[i] for name, value in batch.items()}


def table(ds: Dataset, n: int) -> Table:
    """The first n elements of the next `for` loop."""
    names = list(ds.schema)
    with ds.iterator(epoch=ds.epoch) as iterator:
        found = itertools.islice(elements(ds, iterator), n)
        return Table(names, [[cell(element[name]) for name in names] for element in found])


def cell(value: Any) -> tuple[str, str | None]:
    if isinstance(value, (memoryview, bytes)):
        return short(text_of(bytes(value))), encoded_picture(bytes(value))
    array = np.asarray(value)
    text = array_text(array)
    if is_picture(array):
        return text, f"{image_tag('png', png(thumbnail(array)))}<br>{html.escape(text)}"
    return text, None


def text_of(value: bytes) -> str:
    """A byte string for people: UTF-8 as text, with escapes as in Python for what can't be printed; else its
    first bytes.
    """
    try:
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value.decode())
    except UnicodeDecodeError:
        head = value[:8].hex(" ")
        return f"{len(value)} bytes: {head}{' ...' if len(value) > 8 else ''}"


def short(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 3]}..."


def array_text(array: np.ndarray[Any, Any]) -> str:
    if array.ndim == 0:
        return str(array[()])
    shape = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.size <= SMALL:
        return short(f"{shape} {array.tolist()}")
    return f"{shape} {array.min()} .. {array.max()}"


# ---- pictures ----


def is_picture(array: np.ndarray[Any, Any]) -> bool:
    shape = array.shape
    return (
        array.dtype == np.uint8
        and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4)))
        and min(shape[:2]) > 1
    )


def thumbnail(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Every k-th row and column, so that no side is longer than PICTURE_SIZE."""
    step = -(-max(pixels.shape[:2]) // PICTURE_SIZE)
    return pixels[::step, ::step]


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PNG file with the pixels: uint8, height x width, or height x width x channels (1, 3 or 4)."""
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    # each row begins with the number of its filter, 0: none
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * channels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    colour = {1: 0, 3: 2, 4: 6}[channels]  # grey, RGB, RGB with alpha
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(rows.tobytes()))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def encoded_picture(value: bytes) -> str | None:
    """The HTML of an encoded image, with its size; None: the bytes are no image, or a large one that Pillow
    is needed for.
    """
    webp = value[:4] == b"RIFF" and value[8:12] == b"WEBP"
    kind = "webp" if webp else next((k for magic, k in FORMATS.items() if value.startswith(magic)), None)
    if kind is None:
        return None
    note = f"<br>{kind}, {len(value)} bytes"
    try:
        from PIL import Image

        picture = Image.open(io.BytesIO(value))
        note = f"<br>{kind} {picture.height} x {picture.width}, {len(value)} bytes"
        picture.thumbnail((PICTURE_SIZE, PICTURE_SIZE))
        return image_tag("png", png(np.asarray(picture.convert("RGB")))) + note
    except Exception:  # Pillow is not installed, or can't read these bytes
        return image_tag(kind, value) + note if len(value) <= ENCODED_BYTES else None


def image_tag(kind: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    return f'<img src="data:image/{kind};base64,{text}" style="max-width:{PICTURE_SIZE}px">'


# ---- a dataset ----


def shape_text(field: Field) -> str:
    if field.shape is None:
        return "varies"
    return f"[{', '.join('?' if d is None else str(d) for d in field.shape)}]"


def dataset_html(ds: Dataset) -> str:
    """What a notebook shows for a dataset."""
    try:
        n = ds.n_elements
        count = "not known beforehand" if n is None else f"{n:,}"
    except Error as error:  # a missing file, for example
        count = str(error)
    facts = Table(
        ("component", "dtype", "shape"),
        [[(name, None), (f.dtype, None), (shape_text(f), None)] for name, f in ds.schema.items()],
    )
    return (
        f"<pre>{html.escape(repr(ds))}</pre>{facts._repr_html_()}"
        f"<p>elements of an epoch: {html.escape(count)}; batch size: {ds.batch_size or 'none'}; "
        f"next epoch: {ds.epoch}</p>"
    )
