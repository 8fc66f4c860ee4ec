# Made by tools/make_stubs.py from `cachew ops --json`: change the operator's file, not this one.
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from cachew.dataset import Dataset
from cachew.expr import Expr

_DType: TypeAlias = (
    Literal[
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ]
    | np.dtype[Any]
    | type[Any]
)
_Expression: TypeAlias = Expr | str | bool | int | float
_Path: TypeAlias = str | os.PathLike[str]

def read_table() -> None: ...
def load_plugin(path: _Path) -> None: ...

class Operators:
    def assign(self, expressions: Mapping[str, _Expression] = ..., /, **named: _Expression) -> Dataset:
        """Components computed by expressions.

        Each expression sees the components as they arrive, not what others in the same object assign.
        dtype and shape follow from the expression (docs/expressions.md).

        set: {name: expression}; a component of that name is replaced (an object)
        """

    def autocache(self, freeze: bool = False, *, reuse: int = 0, seed: int = -1) -> Dataset:
        """A place where elements may be kept and need not be computed again.

        Where a cache directory is given, what passes here may be written there, and read in later
        epochs and by other runs. It never changes a result. Whether that pays is measured; of several
        at most one is used. Behind an operator that draws it is not used, unless `freeze` is set.

        freeze: draws before it are the same in many epochs, so that what is random can be kept too;
            whether or not it is (true or false)
        reuse: with freeze: epochs that have the same draws, before there are new ones; 0: all have (an
            integer, at least 0)
        seed: with freeze: seed of the draws before it; -1: that of the run (an integer, at least -1)
        """

    def batch(self, size: int, *, drop_remainder: bool = False) -> Dataset:
        """Stacks elements.

        Components of all elements of a batch must have the same shape.

        size: elements of a batch (an integer, from 1 to 1048576)
        drop_remainder: whether a short last batch is left out (true or false)
        """

    def bucket_by_length(
        self,
        length: _Expression,
        boundaries: Sequence[int],
        sizes: Sequence[int],
        *,
        pad: Mapping[str, Any] = {},
    ) -> Dataset:
        """Batches elements of similar length, padded to the longest.

        Components whose shape varies are padded at the end of each dimension to the largest of the
        batch; bytes are not padded.

        length: an element's length: an expression that gives an integer (an expression (a string))
        boundaries: bucket k holds lengths from boundaries[k-1] to below boundaries[k] (a list of
            integers of length 1 to 1023)
        sizes: elements of a batch, by bucket (a list of integers of length 2 to 1024, from 1 to
            1048576)
        pad: {component: value} to pad with; 0 where it names none (an object)
        """

    def cache(self, freeze: bool = False, *, reuse: int = 0, seed: int = -1) -> Dataset:
        """A place where elements are kept, wherever there is a cache.

        As `autocache`, but chosen before any of those, and without asking whether it pays.

        freeze: draws before it are the same in many epochs, so that what is random can be kept too;
            whether or not it is (true or false)
        reuse: with freeze: epochs that have the same draws, before there are new ones; 0: all have (an
            integer, at least 0)
        seed: with freeze: seed of the draws before it; -1: that of the run (an integer, at least -1)
        """

    def cast(self, component: str, dtype: _DType) -> Dataset:
        """A component in another dtype.

        Floating point to integer rounds half to even and saturates, NaN is 0; integer to integer wraps
        around; to bool is x != 0.

        component: component to convert (the name of a component)
        dtype: dtype it gets (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        """

    def center_crop(self, component: str, size: Sequence[int]) -> Dataset:
        """The middle of an image.

        y = (height - h) div 2, x = (width - w) div 2. A crop larger than the image fails the record.

        component: the image (the name of a component)
        size: [height, width] in pixels (a list of integers of length 2, from 1 to 65535)
        """

    @classmethod
    def concat(cls, inputs: Sequence[Dataset]) -> Dataset:
        """Several chains one after the other.

        Stands first in a chain. All inputs must have the same components with the same dtypes.

        inputs: chains of operators (a list of chains)
        """

    def count(self) -> Dataset:
        """Does nothing: a place where the profile counts elements, for tests."""

    def decode_image(
        self,
        component: str,
        *,
        channels: int = 3,
        dtype: _DType = "uint8",
        orientation: bool = True,
        max_pixels: int = 268435456,
    ) -> Dataset:
        """An image [height, width, channels] from JPEG, PNG or WebP bytes.

        The format is found by content. Conversions are those of Pillow's `convert`; docs/pixels.md has
        them, and what counts as a damaged image. Followed directly by a crop, only the rows and
        columns that the crop needs are decoded, and only their damage counts.

        component: the encoded image, bytes (the name of a component)
        channels: 1 (grey), 3 (RGB), 4 (RGBA), or 0: as stored (an integer, from 0 to 4)
        dtype: "uint8" or "uint16" (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        orientation: turn JPEG images as their EXIF tag says (true or false)
        max_pixels: width times height; larger images fail (an integer, from 1 to 1099511627776)
        """

    def delay(self, us: float, *, where: _Expression = "true") -> Dataset:
        """Sleeps, for tests.

        us: microseconds slept for each element (a number, from 0 to 1000000000000)
        where: condition: a scalar expression; only elements for which it holds wait (an expression (a
            string))
        """

    def drop(self, components: str | Sequence[str]) -> Dataset:
        """Drops the components named.

        components: names of the components to drop (a list of strings or a single one of length at
            least 1)
        """

    def fail(
        self,
        where: _Expression = "true",
        *,
        kind: Literal["error", "crash", "hang"] = "error",
    ) -> Dataset:
        """Fails, crashes or hangs, for tests.

        Workers of a service run it with crash only where they were started with --allow-python.

        where: condition: a scalar expression; elements for which it holds fail (an expression (a
            string))
        kind: error: the record fails; crash: the process is killed (SIGKILL); hang: waits until the
            run is cancelled (a string: one of "error", "crash", "hang")
        """

    @classmethod
    def files(cls, files: _Path | Sequence[_Path]) -> Dataset:
        """Whole files.

        Gives `data`, the bytes of each file, and `path`, its path without the pattern's directory
        (that before the first wildcard). Files are taken pattern by pattern, those of a pattern sorted
        by bytes.

        files: patterns (glob) or names of the files (a list of strings or a single one of length at
            least 1)
        """

    def filter(self, where: _Expression) -> Dataset:
        """Only the elements for which an expression holds.

        A number is true when it is not 0. The count of elements is not known behind a filter.

        where: condition: a scalar expression; elements for which it is false (0) are dropped (an
            expression (a string))
        """

    @classmethod
    def image_folder(cls, root: _Path) -> Dataset:
        """Image files in one directory per class.

        Gives `image` (the file's bytes), `label` (int64, number of the class among the directories
        sorted by bytes) and `path` (below root). Of a class's files those are taken that lie directly
        in its directory and end in jpg, jpeg, png or webp, in any case.

        root: the directory that holds a directory per class (a string)
        """

    @classmethod
    def jsonl(
        cls,
        files: _Path | Sequence[_Path],
        features: Mapping[str, Any],
        *,
        compression: Literal["auto", "none", "gzip", "zlib"] = "auto",
        max_line: int = 67108864,
    ) -> Dataset:
        """Components from the lines of JSON files (JSON Lines).

        Each line is an object; features are asked for as parse_example's are, of any dtype: strings
        give `bytes` (UTF-8), true and false `bool`, numbers any other dtype, nested arrays as many
        dimensions as `shape` has, and one more in front where `variable` is true. A feature that is
        null or missing gets its `default`; a variable one without default then has no values, any
        other fails the record, as malformed JSON, another type or shape, a number that the dtype can't
        hold and a fraction for an integer do; NaN, Infinity and -Infinity are numbers. Of a key that
        comes twice the last one counts. Files and lines are those of text; an empty line is no object.

        files: patterns (glob) or names of the files (a list of strings or a single one of length at
            least 1)
        compression: of the files; auto: by content (a string: one of "auto", "none", "gzip", "zlib")
        max_line: bytes that a line may have; the record of a longer one fails, and is not read (an
            integer, from 1 to 1073741824)
        features: {name: "bytes"|"int64"|...}, or {name: {key, dtype, shape, variable, default}} (an
            object)
        """

    def normalize(
        self,
        component: str,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        *,
        dtype: _DType = "float32",
    ) -> Dataset:
        """(x - mean) / std, per channel.

        Computed in float32 whatever the input. The channels are the last axis, so it stands before
        transpose_image; a two-dimensional image has one.

        component: the image (the name of a component)
        mean: what is subtracted, per channel, in units of the input (a list of numbers or a single one
            of length 1 to 64, at least -1e+30)
        std: what the difference is divided by, per channel (a list of numbers or a single one of
            length 1 to 64, at least -1e+30)
        dtype: float16, bfloat16, float32 or float64 (a dtype (bool, uint8 .. uint64, int8 .. int64,
            float16, bfloat16, float32, float64))
        """

    def pack(
        self,
        component: str,
        length: int,
        *,
        algorithm: Literal["next"] = "next",
        split: bool = True,
        separator: int | Sequence[int] = [],
        pad: int = 0,
        window: int = 1024,
    ) -> Dataset:
        """Rows of a fixed length from sequences of tokens.

        Gives `component` with `length` tokens, and two int32 components of that length: `segment_ids`
        (from 1 in each row; 0 is padding) and `positions` (of a token in its segment, from 0). Other
        components are dropped. The rows of each `window` positions of the sequence follow from these
        alone, so that any worker may compute them: a larger window leaves less padding and takes more
        memory. Stands behind one source; `shuffle` and `repeat` stand before it.

        component: sequences of tokens: integers, one dimension (the name of a component)
        length: tokens of a row (an integer, from 1 to 16777216)
        algorithm: next: a sequence goes to the last row begun, or begins the next one (a string: one
            of "next")
        split: a sequence that does not fit goes on in the next row; false: it is moved there as a
            whole (true or false)
        separator: a token behind each sequence, which counts as one of it; none: [] (a list of
            integers or a single one of length 0 to 1)
        pad: the token that fills up a row (an integer)
        window: positions that are packed among themselves; the last row of each window is padded (an
            integer, from 1 to 65536)
        """

    def parse_example(self, features: Mapping[str, Any], *, component: str = "record") -> Dataset:
        """Components from a tf.train.Example; all others are dropped.

        A dtype alone asks for exactly one value, a scalar. An object asks for the feature `key`
        (default: the name) of `dtype` with exactly as many values as `shape` has; where `variable` is
        true, with any number of such shapes, along a first dimension that varies. `default` (a string,
        a number for all values, or a list of numbers) is taken where the feature is missing, or empty
        and not variable; a variable one without default then has no values, any other fails the
        record, as another dtype or number of values and malformed data do.

        features: {name: "bytes"|"int64"|"float32"}, or {name: {key, dtype, shape, variable, default}}
            (an object)
        component: the component that holds the Example (the name of a component)
        """

    def random_crop(self, component: str, size: Sequence[int]) -> Dataset:
        """A rectangle of fixed size anywhere in an image.

        All positions are equally likely. A crop larger than the image fails the record.

        component: the image (the name of a component)
        size: [height, width] in pixels (a list of integers of length 2, from 1 to 65535)
        """

    def random_flip(self, component: str, *, horizontal: float = 0.5, vertical: float = 0) -> Dataset:
        """Images left-right or upside down, at random.

        Both flips are drawn independently for each element. Images are [height, width, channels] or
        [height, width].

        component: the image (the name of a component)
        horizontal: probability of left-right (a number, from 0 to 1)
        vertical: probability of upside down (a number, from 0 to 1)
        """

    def random_resized_crop(
        self,
        component: str,
        size: Sequence[int],
        *,
        scale: Sequence[float] = [0.08, 1],
        ratio: Sequence[float] = [0.75, 1.3333],
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
        antialias: bool = True,
    ) -> Dataset:
        """A rectangle of random area and aspect ratio, resized.

        The usual augmentation of image classifiers (Inception's crop). Ten attempts; if none fits the
        image, as much of its middle as `ratio` allows. The crop is resized as an image of its own.

        component: the image (the name of a component)
        size: [height, width] in pixels (a list of integers of length 2, from 1 to 65535)
        scale: smallest and largest share of the image's area (a list of numbers of length 2, from
            1e-09 to 1)
        ratio: smallest and largest width / height, drawn evenly in its logarithm (a list of numbers of
            length 2, from 1e-06 to 1000000)
        interpolation: how pixels are computed (a string: one of "nearest", "bilinear", "bicubic")
        antialias: average over all pixels when shrinking (no effect on nearest) (true or false)
        """

    @classmethod
    def range(cls, stop: int, *, start: int = 0, step: int = 1) -> Dataset:
        """Integers from start to stop, in steps.

        Gives `value`, an int64: start, start + step, ... as Python's range(start, stop, step) does.

        stop: the first integer not given (an integer)
        start: the first integer (an integer)
        step: distance of two integers, not 0 (an integer)
        """

    def rename(self, names: Mapping[str, Any]) -> Dataset:
        """Gives components other names.

        names: {old name: new name} (an object)
        """

    def repeat(self, count: int) -> Dataset:
        """The elements several times.

        Goes through the elements `count` times; random operators draw anew in each pass.

        count: passes; -1: without end (an integer, at least -1)
        """

    def resize(
        self,
        component: str,
        size: Sequence[int],
        *,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
        antialias: bool = True,
    ) -> Dataset:
        """An image in another size.

        The aspect ratio is not kept. With `antialias` (as Pillow and torchvision) a shrunk image is
        averaged over all its pixels; without it (as tf.image.resize and OpenCV) each pixel is made of
        its nearest 2 x 2 or 4 x 4. docs/pixels.md has the arithmetic.

        component: the image (the name of a component)
        size: [height, width] in pixels (a list of integers of length 2, from 1 to 65535)
        interpolation: how pixels are computed (a string: one of "nearest", "bilinear", "bicubic")
        antialias: average over all pixels when shrinking (no effect on nearest) (true or false)
        """

    def select(self, components: str | Sequence[str]) -> Dataset:
        """Keeps the components named, drops the others.

        components: names of the components to keep (a list of strings or a single one of length at
            least 1)
        """

    def shuffle(
        self,
        by: Literal["record", "chunk"] = "record",
        *,
        window: int = 0,
        reshuffle: bool = True,
    ) -> Dataset:
        """The elements in random order, another one each epoch.

        A pseudo-random permutation of all elements, however many there are, without a buffer: it moves
        indices, never data. Sources whose records can't be read one by one (compressed files) are
        shuffled by chunk, which mixes less well (docs/shuffling.md).

        by: record: a permutation of all elements; chunk: of runs of neighbours, for storage where
            random reads are slow (a string: one of "record", "chunk")
        window: behind an iterable, whose end is not known: so many elements that follow each other are
            permuted among themselves; 0 elsewhere (an integer, from 0 to 1048576)
        reshuffle: another order each epoch; false: the same order in all of them (true or false)
        """

    def skip(self, count: int) -> Dataset:
        """All but the first elements.

        Leaves out the first `count` elements (after a batcher: batches). Where it counts elements that
        a filter or `flat_map` left, one worker of a service runs the epoch.

        count: elements left out (an integer, at least 0)
        """

    @classmethod
    def synthetic(
        cls,
        count: int,
        *,
        shape: Sequence[int] = [],
        dtype: _DType = "float32",
        cost_us: float = 0,
        fill: Literal["random", "none"] = "random",
    ) -> Dataset:
        """Made-up elements, at a chosen cost.

        Gives `data`. Random integers have all values of their dtype, random floats lie in [0, 1); they
        depend on the element's number alone.

        count: number of elements (an integer, from 0 to 1099511627776)
        shape: of an element (a list of integers of length 0 to 6, from 1 to 2147483648)
        dtype: of an element (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        cost_us: CPU time used up per element, in microseconds (a number, from 0 to 1000000000)
        fill: random: the same words in every run; none: zeros (a string: one of "random", "none")
        """

    def take(self, count: int) -> Dataset:
        """The first elements.

        Keeps the first `count` elements (after a batcher: batches). Where it counts elements that a
        filter or `flat_map` left, all workers of a service run the epoch until it is full, if nothing
        but maps and `batch` stand behind it; else one worker does.

        count: elements kept (an integer, at least 0)
        """

    @classmethod
    def tar(
        cls,
        files: _Path | Sequence[_Path],
        components: Mapping[str, Any],
        *,
        compression: Literal["auto", "none", "gzip", "zlib"] = "auto",
    ) -> Dataset:
        """Samples of tar shards (WebDataset).

        Consecutive files of an archive with the same key, their path up to the first dot of the base
        name, are one record; what follows that dot is the extension. A component is the file with the
        extension `key` (default: its name), or the first of several, "jpg;jpeg;png", in upper or lower
        case: its content as `bytes`; of another dtype the numbers in it, as text between spaces, or as
        NumPy wrote them where the extension ends with npy (dtype and shape must be the same). Shapes,
        `variable` and `default` (where there is no such file) are as parse_example's. The key
        "__key__" gives the sample's key. Directories, links and files without an extension are passed
        over. Headers may be v7, ustar, GNU or pax; damaged archives, sparse files, devices, and names
        that lead out of the archive's directory are errors.

        files: patterns (glob) or names of the files (a list of strings or a single one of length at
            least 1)
        compression: of the files; auto: by content (a string: one of "auto", "none", "gzip", "zlib")
        components: {extension: "bytes"|"int64"|...}, or {name: {key, dtype, shape, variable,
            default}}; key: extensions, "jpg;jpeg;png" (an object)
        """

    @classmethod
    def text(
        cls,
        files: _Path | Sequence[_Path],
        *,
        compression: Literal["auto", "none", "gzip", "zlib"] = "auto",
        max_line: int = 67108864,
    ) -> Dataset:
        """Lines of text files.

        Gives `text`, the bytes of each line without its end ("\n" or "\r\n"). The last line may end
        with the file; empty lines are records. Files are taken pattern by pattern, those of a pattern
        sorted by bytes; index files (*.cwx) that a wildcard matches are left out. `compression` auto
        knows gzip; zlib has to be named, because a text may begin like it.

        files: patterns (glob) or names of the files (a list of strings or a single one of length at
            least 1)
        compression: of the files; auto: by content (a string: one of "auto", "none", "gzip", "zlib")
        max_line: bytes that a line may have; the record of a longer one fails, and is not read (an
            integer, from 1 to 1073741824)
        """

    @classmethod
    def tfrecord(
        cls,
        files: _Path | Sequence[_Path],
        *,
        compression: Literal["auto", "none", "gzip", "zlib"] = "auto",
        verify: bool = True,
    ) -> Dataset:
        """Records of TFRecord files.

        Gives `record`, the bytes of each record. Files are taken pattern by pattern, those of a
        pattern sorted by bytes; index files (*.cwx) that a wildcard matches are left out. The CRC of a
        record's length is always checked, when a file is indexed.

        files: patterns (glob) or names of the files (a list of strings or a single one of length at
            least 1)
        compression: of the files; auto: by content (a string: one of "auto", "none", "gzip", "zlib")
        verify: check the CRC of each record's data, and that it is the one in the index (true or
            false)
        """

    def transpose_image(self, component: str, *, layout: Literal["chw", "hwc"] = "chw") -> Dataset:
        """Channels first ([height, width, channels] to [channels, height, width]) or back.

        component: the image (the name of a component)
        layout: "chw": channels first; "hwc": back again (a string: one of "chw", "hwc")
        """

    @classmethod
    def zip(cls, inputs: Sequence[Dataset], *, stop: Literal["first"] = "first") -> Dataset:
        """Several chains side by side.

        Stands first in a chain. Element i has the components of element i of each input, under
        different names. An input is a source with an index, index operators and maps. Its records are
        read when positions are planned, one after the other. The record id of an element is its
        position in `zip`.

        inputs: chains of operators (a list of chains)
        stop: first: the shortest input ends it (a string: one of "first")
        """
