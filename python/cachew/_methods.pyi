# Made by tools/make_stubs.py from `cachew ops --json`: change the operator's file, not this one.
import os
from collections.abc import Callable, Mapping, Sequence
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
_Operators: TypeAlias = Callable[[Dataset], Dataset] | Sequence[Any]
_Path: TypeAlias = str | os.PathLike[str]

def read_table() -> None: ...
def load_plugin(path: _Path) -> None: ...

class Operators:
    def adjust_sharpness(self, component: str, sharpness_factor: float, *, p: float = 1) -> Dataset:
        """Sharpens or smooths images.

        Blends the image with a smoothed copy (3 x 3 pixels). Pixels at the border are not changed.

        component: the image, of 1 or 3 channels (the name of a component)
        sharpness_factor: 0: smoothed; 1: unchanged; 2: twice as sharp (a number, from 0 to 1000000)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    def affine(
        self,
        component: str,
        *,
        angle: float = 0,
        translate: Sequence[float] = [0, 0],
        scale: float = 1,
        shear: float | Sequence[float] = 0,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest",
        fill: float | Sequence[float] = 0,
        center: Sequence[float] = [],
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Rotates, moves, scales and shears images.

        The results are those of torchvision's `affine` on Pillow images. The result has the size of
        the image. Images are uint8 or float32, [height, width, channels] or [height, width].

        component: the image (the name of a component)
        angle: in degrees, clockwise (a number, from -360 to 360)
        translate: [x, y] in pixels: moves to the right and down (a list of numbers of length 2, from
            -1000000 to 1000000)
        scale: more than 1: enlarges the image (a number, from 0.001 to 1000)
        shear: [x, y]: angles in degrees by which the image is sheared; a single number: along x (a
            list of numbers or a single one of length 1 to 2, from -89 to 89)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic) (a string: one of "nearest", "bilinear", "bicubic")
        fill: value of the result where it shows what is outside of the image, per channel; a single
            number: of all channels (a list of numbers or a single one of length 1 to 64, at least
            -1e+30)
        center: [x, y] of the fixed point in pixels, from the top left corner; []: the middle of the
            image (a list of numbers of length 0 to 2, from -1000000 to 1000000)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def assign(self, expressions: Mapping[str, _Expression] = ..., /, **named: _Expression) -> Dataset:
        """Adds components that expressions compute.

        Each expression sees the components as they arrive, not the results of the other expressions in
        the same `set`. The expression determines the dtype and the shape of its component
        (docs/expressions.md).

        set: {name: expression}; a component that has the same name is replaced (an object)
        """

    def augmix(
        self,
        component: str,
        *,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1,
        all_ops: bool = True,
    ) -> Dataset:
        """Mixes uint8 images with copies of them that chains of drawn changes have augmented.

        AugMix: each element draws mixture_width chains of changes (shears, translations, a rotation,
        changes of colours). The result is the sum of the image and the augmented copies, each times a
        drawn share. Attributes and changes are those of torchvision's AugMix, with the results of
        changes on Pillow images.

        component: the image, of 1 or 3 channels (the name of a component)
        severity: number of magnitudes that are drawn, from the smallest on (an integer, from 1 to 10)
        mixture_width: number of chains of changes (an integer, from 1 to 16)
        chain_depth: number of changes in a chain; -1: 1 to 3, drawn for each chain (an integer, from
            -1 to 16)
        alpha: parameter of the Beta and Dirichlet distributions of the shares (a number, from 0.001 to
            1000000)
        all_ops: whether chains also change brightness, colour, contrast and sharpness (true or false)
        """

    def auto_augment(
        self,
        component: str,
        *,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
    ) -> Dataset:
        """Augments uint8 images by a pair of changes that was learned.

        AutoAugment: each element draws one of the policy's 25 pairs of changes, which of the two are
        done, and their signs. The results are those of torchvision on Pillow images.

        component: the image, of 1 or 3 channels (the name of a component)
        policy: the data set that the pairs were learned for (a string: one of "imagenet", "cifar10",
            "svhn")
        """

    def autocache(self, freeze: bool = False, *, reuse: int = 0, seed: int = -1) -> Dataset:
        """Marks a cache point: a place where elements may be cached, so that they need not be computed
        again.

        If the run has a cache directory, the elements that reach this operator may be written to the
        directory, and read from it in later epochs and by other runs. Caching never changes a result.
        The run measures whether caching saves time. If a pipeline has several cache points, the run
        uses at most one of them. A cache point after a random operator is used only if `freeze` is
        set.

        freeze: true: the random operators before this one draw the same numbers in many epochs, so
            that their results can be cached; this also holds in runs without a cache (true or false)
        reuse: with freeze: number of epochs in which the same numbers are drawn, before new ones are
            drawn; 0: the same in all epochs (an integer, at least 0)
        seed: with freeze: seed of the random operators before this one; -1: the seed of the run (an
            integer, at least -1)
        """

    def autocontrast(self, component: str, *, p: float = 1) -> Dataset:
        """Stretches the contrast of images to the whole range of values.

        In each channel, the least value becomes 0 and the greatest becomes 255 (float32: 1). A channel
        of one single value is not changed.

        component: the image, of 1 or 3 channels (the name of a component)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    def batch(
        self,
        size: int,
        *,
        drop_remainder: bool = False,
        pad: Literal["longest"] | float | Mapping[str, Any] = {},
    ) -> Dataset:
        """Stacks elements into batches.

        Each component must have the same shape in all elements of a batch, unless `pad` names it.
        Padding is appended at the end of each dimension. A component with an element that is larger
        than the sizes `to` is an error. Bytes are not padded.

        size: elements per batch (an integer, from 1 to 1048576)
        drop_remainder: true: leave out the last batch if it is not full (true or false)
        pad: "longest": pad components whose shape varies with 0, to the largest size in the batch; a
            number: pad them with it; {component: number}, or {component: {"value": number, "to": [size
            of each dimension, or null]}}: pad only these components, and to these sizes (an object or
            a number or "longest")
        """

    def bucket_by_length(
        self,
        length: _Expression,
        boundaries: Sequence[int],
        sizes: Sequence[int],
        *,
        pad: Literal["longest", "boundary"] | float | Mapping[str, Any] = "longest",
        drop_remainder: bool = False,
        group: int = 1,
        remainder: Literal["next", "pad", "drop"] = "next",
    ) -> Dataset:
        """Makes batches of elements of similar length, padded to one shape.

        Each element goes to the bucket of its length, and a batch is made of elements of one bucket.
        Components whose shape varies are padded at the end of each dimension. Bytes are not padded.

        length: the length of an element: an expression that gives an integer (an expression (a
            string))
        boundaries: limits between the buckets, in ascending order: bucket k holds lengths from
            boundaries[k-1] up to, but not including, boundaries[k] (a list of integers of length 1 to
            1023)
        sizes: elements per batch, for each bucket: one value more than boundaries (a list of integers
            of length 2 to 1024, from 1 to 1048576)
        pad: to which size components are padded, and with which value: "longest", the largest size in
            the batch; "boundary", the largest length that the bucket holds, boundaries[k] - 1 (in the
            last bucket: longest); a number: pad with it in place of 0; {component: number}, or
            {component: {"value": number, "to": "longest", "boundary" or [size of each dimension, or
            null]}}: for these components (an object or a number or "longest" or "boundary")
        drop_remainder: true: leave out the batches that are not full at the end of the epoch (true or
            false)
        group: number of consecutive batches that share a bucket: batches k*group to k*group + group -
            1. The number of ranks must divide it (an integer, from 1 to 1024)
        remainder: what happens at the end of the epoch to the elements of a bucket that do not fill a
            group: `next`, they go to the next larger bucket, and those of the last bucket make a group
            of batches with fewer elements; `pad`, those of each bucket do (if there is an element for
            each batch; otherwise as `next`); `drop`, they are left out. With group 1, `next` is the
            same as `pad`: each bucket gives a short batch (a string: one of "next", "pad", "drop")
        """

    def bucketize(self, component: str, boundaries: Sequence[float]) -> Dataset:
        """Replaces each value by the number of its bucket (int64).

        The number of a value's bucket is the number of boundaries that are at most the value, as
        numpy.digitize gives it; NaN is in the last bucket. Values are compared with the boundaries as
        float64. The shape stays the same.

        component: the component (the name of a component)
        boundaries: limits between the buckets, in ascending order: bucket k holds values from
            boundaries[k-1] up to, but not including, boundaries[k] (a list of numbers of length 1 to
            65536)
        """

    def cache(self, freeze: bool = False, *, reuse: int = 0, seed: int = -1) -> Dataset:
        """Marks a cache point that is used whenever the run has a cache directory.

        `cache` works like `autocache`, with two differences. If the pipeline has both, the run uses
        the `cache`. The run uses it without measuring whether caching saves time.

        freeze: true: the random operators before this one draw the same numbers in many epochs, so
            that their results can be cached; this also holds in runs without a cache (true or false)
        reuse: with freeze: number of epochs in which the same numbers are drawn, before new ones are
            drawn; 0: the same in all epochs (an integer, at least 0)
        seed: with freeze: seed of the random operators before this one; -1: the seed of the run (an
            integer, at least -1)
        """

    def cast(self, component: str, dtype: _DType) -> Dataset:
        """Converts a component to another dtype.

        A floating-point value that becomes an integer is rounded to nearest, ties to even; values out
        of range become the smallest or largest integer, and NaN becomes 0. An integer that becomes
        another integer dtype wraps around. A value that becomes bool is true if it is not 0.

        component: the component to convert (the name of a component)
        dtype: the new dtype (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        """

    def center_crop(
        self,
        component: str,
        size: int | Sequence[int],
        *,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Cuts the middle out of an image.

        The crop begins at y = (height - h) div 2, x = (width - w) div 2. A crop larger than the image
        fails the record.

        component: the image (the name of a component)
        size: [height, width] in pixels; a single number: both (a list of integers or a single one of
            length 2, from 1 to 65535)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def color_jitter(
        self,
        component: str,
        *,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
    ) -> Dataset:
        """Changes brightness, contrast, saturation and hue of images, at random.

        Each element draws the four amounts and the order of the four changes. An amount that can only
        be neutral (factor 1, shift 0) changes nothing.

        component: the image, of 1 or 3 channels (the name of a component)
        brightness: x: a factor from max(0, 1 - x) to 1 + x; [least, greatest]: from that range (a list
            of numbers or a single one of length 1 to 2, from 0 to 1000000)
        contrast: the same, for the contrast (a list of numbers or a single one of length 1 to 2, from
            0 to 1000000)
        saturation: the same, for the saturation (a list of numbers or a single one of length 1 to 2,
            from 0 to 1000000)
        hue: x: a shift from -x to x, in turns of the colour circle; [least, greatest]: from that range
            (a list of numbers or a single one of length 1 to 2, from -0.5 to 0.5)
        """

    @classmethod
    def concat(cls, inputs: Sequence[Dataset]) -> Dataset:
        """The elements of several chains, one chain after the other.

        `concat` takes the place of a source, at the start of a pipeline. All inputs must have the same
        components with the same dtypes.

        inputs: a list of chains; a chain is a list of operators that begins with a source (a list of
            chains)
        """

    def concat_components(self, components: Sequence[str], name: str, *, axis: int = 0) -> Dataset:
        """Joins components of the same dtype to one array, one after the other.

        The result is that of numpy.concatenate: all dimensions but `axis` must be the same. The
        components that are joined stay; if `name` is the name of a component, the result replaces it.
        `concat` joins the elements of several sources instead.

        components: names of the components, in order (a list of strings of length 1 to 64)
        name: name of the result (a string)
        axis: the dimension along which they are joined; -1: the last one (an integer, from -6 to 5)
        """

    @classmethod
    def csv(
        cls,
        files: _Path | Sequence[_Path],
        *,
        compression: Literal["auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz"] = "auto",
        max_line: int = 67108864,
        header: bool = True,
        types: Mapping[str, Any] = {},
        columns: Sequence[str] = [],
        delimiter: Literal[",", "\t", ";", "|"] = ",",
    ) -> Dataset:
        """Rows of CSV files, a component for each column.

        Each row is an element; each column gives a component of its name, a scalar. Fields are as in
        RFC 4180: a field may be quoted with `"`, and then hold delimiters, line breaks and quotes,
        written twice. Empty lines are not rows, and a byte order mark is left out. A column whose name
        is empty is called f and its number, from 0. The first file decides which columns there are. In
        other files they may have another order, and there may be others besides. The dtypes that
        `types` does not give are inferred from the first 1,000 rows (at most 1 MiB) of the first file:
        bool if all values are true or false (also True, TRUE, ...), int64, float64, else bytes. A
        value that is empty or one of NA, N/A, n/a, <NA>, #N/A, NaN, nan, NULL, null and None is
        missing, except in quotes: it becomes NaN in a column of a floating dtype, so int64 is not
        inferred for a column with a missing value. A bytes column has the text of the field, whatever
        it is. A row fails if it has more or fewer fields than the first row of its file, if text
        follows the closing quote of a field, or if the dtype of a column that is needed can't hold its
        value. Files are found and decompressed as those of `text`. The pipeline's description needs
        the first file: a program that only sends it to a service must be able to read it too.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        compression: compression of the files; auto: detected from the content (a string: one of
            "auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz")
        max_line: longest line, in bytes; a longer line is not read, and its record fails (an integer,
            from 1 to 1073741824)
        header: the first row of each file names its columns; false: they are f0, f1, ... (true or
            false)
        types: dtypes of columns, {"label": "int32"}; those of other columns are inferred (an object)
        columns: names of the columns to read, at most 64; []: all columns (a list of strings)
        delimiter: what separates the fields of a row (a string: one of ",", "\t", ";", "|")
        """

    def cutmix(
        self,
        component: str,
        label: str,
        classes: int,
        *,
        alpha: float = 1.0,
        layout: Literal["hwc", "chw"] = "hwc",
    ) -> Dataset:
        """Pastes into each image of a batch a rectangle of the image before it, and mixes their labels.

        The operator comes after `batch`; only operators on batches, `take`, `skip` and `repeat` may
        follow. A batch draws one rectangle: its area is 1 - a share from Beta(alpha, alpha), before it
        is cut off at the edges of the image. The label becomes share * label + (1 - share) * the label
        of the image before it, with the share of the pixels that stay; the first image gets a part of
        the last one (Yun et al.: "CutMix: Regularization Strategy to Train Strong Classifiers with
        Localizable Features", ICCV 2019; torchvision's CutMix). A label that is no class ends the run.

        component: the images (the name of a component)
        label: the class of each row: an integer, or float32 [classes], the shares of classes. The
            result is float32 [classes] (the name of a component)
        classes: number of classes (an integer, from 1 to 16777216)
        alpha: parameter of the distribution Beta(alpha, alpha) of the share that rows keep (a number,
            from 0.01 to 1000)
        layout: the images are [height, width, channels] ("hwc") or [channels, height, width] ("chw")
            (a string: one of "hwc", "chw")
        """

    def decode_audio(
        self,
        component: str,
        *,
        mono: bool = True,
        sample_rate: str = "sample_rate",
        max_samples: int = 268435456,
    ) -> Dataset:
        """Decodes WAV, FLAC, Ogg or MP3 bytes to samples, float32.

        The format is detected from the content, by libsndfile. Samples of integers are divided by
        2^(bits - 1), so that they lie in [-1, 1). A file without samples, a damaged one, or one that
        is cut off fails the record. docs/audio.md has the details.

        component: the encoded audio, bytes (the name of a component)
        mono: true: the mean of the channels, [n]; false: all channels, [n, channels] (true or false)
        sample_rate: name of the component that gets the file's sample rate in Hz, int32; "": none (a
            string)
        max_samples: most samples (frames times channels); longer audio fails the record (an integer,
            from 1 to 1099511627776)
        """

    def decode_image(
        self,
        component: str,
        *,
        channels: int = 3,
        dtype: _DType = "uint8",
        orientation: bool = True,
        max_pixels: int = 268435456,
        scale: Literal["full", "auto"] = "full",
    ) -> Dataset:
        """Decodes JPEG, PNG or WebP bytes to an image [height, width, channels].

        The format is detected from the content. Channels are converted as by Pillow's `convert`;
        docs/pixels.md defines the conversions, and says which images count as damaged. If a crop of
        the image follows directly, only the rows and columns that the crop needs are decoded. In a
        JPEG image, most damage below these rows then does not fail the record; in a PNG or WebP image,
        any damage fails it.

        component: the encoded image, bytes (the name of a component)
        channels: number of channels: 1 (grey), 3 (RGB), 4 (RGBA), or 0 (as many as the file has) (an
            integer, from 0 to 4)
        dtype: dtype of the image: "uint8" or "uint16" (a dtype (bool, uint8 .. uint64, int8 .. int64,
            float16, bfloat16, float32, float64))
        orientation: true: turn JPEG images as their EXIF orientation tag says (true or false)
        max_pixels: most pixels (width times height); a larger image fails the record (an integer, from
            1 to 1099511627776)
        scale: auto: decode a JPEG image at 1/2, 1/4 or 1/8 of its size if resize or
            random_resized_crop follows directly and makes what it cuts at least that much smaller.
            Faster for large images; pixels differ a little from those of "full" (docs/jpeg.md) (a
            string: one of "full", "auto")
        """

    def drop(self, components: str | Sequence[str]) -> Dataset:
        """Drops the named components.

        components: names of the components to drop (a list of strings or a single one of length at
            least 1)
        """

    def enumerate(self, name: str = "index", *, start: int = 0) -> Dataset:
        """Numbers the elements of an epoch.

        Each element gets its place among the elements that arrive, from `start` on. The numbers begin
        again in each epoch, and in each pass of a `repeat` after `enumerate`. A `shuffle` before
        `enumerate` does not change the numbers, and a `shuffle` after it moves them with their
        elements. After a filter, `flat_map`, `pack` or a stream the elements must be counted one after
        the other; in a service, one worker then runs the whole epoch. `enumerate` must come before
        `batch` and after `zip` and `window`. It can't be used with `on_error` "replace".

        name: the name of the component with the numbers, which are int64; it replaces a component of
            that name (a string)
        start: the first number (an integer, at least -4.61168601842739e+18)
        """

    def equalize(self, component: str, *, p: float = 1) -> Dataset:
        """Equalizes the histogram of each channel of uint8 images.

        Each channel is changed by itself, so that its values are spread evenly from 0 to 255.

        component: the image, of 1 or 3 channels (the name of a component)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    @classmethod
    def files(cls, files: _Path | Sequence[_Path]) -> Dataset:
        """Whole files.

        Gives `data`, the bytes of each file, and `path`, its path relative to the directory of its
        pattern (the part before the first wildcard). Files come in the order of the patterns; the
        files of one pattern are sorted by the bytes of their paths.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        """

    def filter(self, where: _Expression) -> Dataset:
        """Keeps the elements for which an expression is true, drops all others.

        A number counts as true if it is not 0. The number of elements after a filter is not known in
        advance.

        where: the condition, a scalar expression: elements for which it is false (0) are dropped (an
            expression (a string))
        """

    @classmethod
    def fixed_length(
        cls,
        files: _Path | Sequence[_Path],
        record_bytes: int,
        *,
        header_bytes: int = 0,
        footer_bytes: int = 0,
    ) -> Dataset:
        """Records of a fixed number of bytes.

        Gives `record`, the bytes of each record, as the files of CIFAR or MNIST have them. A file must
        have a whole number of records between its header and its footer. Files come in the order of
        the patterns; the files of one pattern are sorted by the bytes of their paths.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        record_bytes: bytes of a record (an integer, from 1 to 1073741824)
        header_bytes: bytes at the beginning of each file that belong to no record (an integer, from 0
            to 1099511627776)
        footer_bytes: bytes at the end of each file that belong to no record (an integer, from 0 to
            1099511627776)
        """

    def flatten(self, component: str) -> Dataset:
        """Makes an array of any shape one-dimensional, with the same values in the same order.

        `flatten` is `reshape` with the shape [-1]. A scalar becomes an array with one value.

        component: the component (the name of a component)
        """

    def gaussian_blur(
        self,
        component: str,
        kernel_size: int | Sequence[int],
        *,
        sigma: float | Sequence[float] = [0.1, 2.0],
    ) -> Dataset:
        """Blurs images by a Gaussian kernel of random or fixed width.

        The results are those of torchvision's GaussianBlur, to 1 for uint8 images. Pixels outside of
        the image are mirrored. Images are uint8 or float32, [height, width, channels] or [height,
        width].

        component: the image (the name of a component)
        kernel_size: [along x, along y]: width and height of the kernel in pixels, odd numbers; a
            single number: both (a list of integers or a single one of length 1 to 2, from 1 to 255)
        sigma: range [low, high] of the standard deviation in pixels, drawn per element; a single
            number: always that one (a list of numbers or a single one of length 1 to 2, from 0.01 to
            1000)
        """

    def grayscale(self, component: str, *, num_output_channels: int = 1) -> Dataset:
        """Makes images grey, with 1 or 3 channels.

        Images are [height, width, channels]; an image of one channel counts as grey.

        component: the image, of 1 or 3 channels (the name of a component)
        num_output_channels: number of channels of the result: 1, or 3 that are equal (an integer, from
            1 to 3)
        """

    def group_by(
        self,
        key: _Expression,
        keys: int,
        size: int,
        *,
        drop_remainder: bool = False,
        pad: Literal["longest"] | float | Mapping[str, Any] = {},
    ) -> Dataset:
        """Makes batches of elements with the same key.

        A batch is made as soon as `size` elements of one key have come. At the end of the epoch the
        elements that are left make smaller batches, in ascending order of the keys. For a key without
        a bound, group by its remainder: `number % 100`.

        key: the key of an element: an expression that gives an integer from 0 on (an expression (a
            string))
        keys: number of different keys (an integer, from 1 to 1024)
        size: elements per batch (an integer, from 1 to 1048576)
        drop_remainder: true: leave out the last batch if it is not full (true or false)
        pad: "longest": pad components whose shape varies with 0, to the largest size in the batch; a
            number: pad them with it; {component: number}, or {component: {"value": number, "to": [size
            of each dimension, or null]}}: pad only these components, and to these sizes (an object or
            a number or "longest")
        """

    @classmethod
    def image_folder(cls, root: _Path) -> Dataset:
        """Image files in one directory per class.

        Gives `image` (the file's bytes), `label` (int64: the number of the class, with the class
        directories sorted by the bytes of their names) and `path` (relative to `root`). In each class
        directory it reads the files whose names end in jpg, jpeg, png or webp, in upper or lower case;
        subdirectories are not read.

        root: path of the directory with one subdirectory per class (a string)
        """

    @classmethod
    def interleave(cls, inputs: Sequence[Dataset], *, block_length: int = 1) -> Dataset:
        """The elements of several chains in turn.

        `interleave` takes the place of a source, at the start of a pipeline. Each input in turn gives
        `block_length` elements, or those that it has left; an input that has none is left out. The
        result ends when all inputs have ended, and has each element once. All inputs must have the
        same components with the same dtypes. Elements that a filter inside an input drops count in its
        turn. For inputs that begin again, or shares that are not equal, use `mix`.

        inputs: a list of chains; a chain is a list of operators that begins with a source (a list of
            chains)
        block_length: consecutive elements that an input gives in its turn (an integer, from 1 to
            1048576)
        """

    def invert(self, component: str, *, p: float = 1) -> Dataset:
        """Inverts the colours of images.

        A value x becomes 255 - x in a uint8 image, and 1 - x in a float32 image.

        component: the image, of 1 or 3 channels (the name of a component)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    @classmethod
    def jsonl(
        cls,
        files: _Path | Sequence[_Path],
        features: Mapping[str, Any],
        *,
        compression: Literal["auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz"] = "auto",
        max_line: int = 67108864,
    ) -> Dataset:
        """Components from the lines of JSON files (JSON Lines).

        Each line is a JSON object, and each of its keys is a feature. `features` has the same form as
        in `parse_example`, and allows every dtype: JSON strings give `bytes` (UTF-8), true and false
        give `bool`, numbers give any other dtype. A feature with a shape of n dimensions is a JSON
        array nested n deep; if `variable` is true, the array is nested one level deeper. A feature
        that is null or missing gets its `default`. Without a default, a variable feature then has no
        values, and any other feature fails the record. A record also fails on malformed JSON, on a
        value of another type or shape, on a number that the dtype can't hold, and on a fraction where
        the dtype is an integer. NaN, Infinity and -Infinity are allowed as numbers. If a key occurs
        twice in a line, the last value counts. `jsonl` finds files and lines in the same way as
        `text`; an empty line is not a JSON object, so its record fails.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        compression: compression of the files; auto: detected from the content (a string: one of
            "auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz")
        max_line: longest line, in bytes; a longer line is not read, and its record fails (an integer,
            from 1 to 1073741824)
        features: the components to read: {name: "bytes"|"int64"|...}, or {name: {key, dtype, shape,
            variable, default}} (an object)
        """

    def lookup(
        self,
        component: str,
        *,
        vocabulary: Sequence[str] = [],
        file: _Path = "",
        default: int = -1,
    ) -> Dataset:
        """Replaces a word (bytes) by its number in a vocabulary (int64).

        Words are compared byte by byte. Only a change of the file's content makes another pipeline,
        not a change of its path. Without a vocabulary, `hash(word) % n` in an expression gives numbers
        below n (docs/expressions.md).

        component: a bytes component (the name of a component)
        vocabulary: the words, whose numbers are 0, 1, ... (a list of strings)
        file: instead of `vocabulary`: the path of a text file with a word on each line (a string)
        default: the result for any other word (an integer)
        """

    @classmethod
    def materialized_stream(cls, path: _Path, *, wait: float = 600) -> Dataset:
        """The elements of a materialised data set, also while it is being written.

        Gives the same elements in the same order as `materialized`, each shard as soon as it is
        finished, and waits for the next one. The number of elements is not known until the data are
        complete, so the source is read from its start: `shuffle(window=n)` permutes each n consecutive
        elements among themselves. `cachew materialize` must have begun when the pipeline is compiled,
        because its journal has the components. Read complete data with `materialized`.

        path: the directory that `cachew materialize` or `Dataset.materialize` writes, or has written
            (a string)
        wait: fail if no further shard is finished for this time, in seconds (a number, from 0 to
            1000000000)
        """

    def maybe(self, p: float, operators: _Operators) -> Dataset:
        """Sends some elements, drawn at random, through operators.

        All other elements stay as they are. The operators may not change the dtype of a component, nor
        add or remove components. They are operators that compute an element from itself, without files
        and Python functions.

        p: probability that an element goes through the operators (a number, from 0 to 1)
        operators: operators; in Python a function that calls them on the dataset: lambda ds:
            ds.gaussian_blur("image", 9) (a list of operators, or of lists of operators)
        """

    def mel_spectrogram(
        self,
        component: str,
        *,
        n_fft: int = 400,
        hop: int = 160,
        mels: int = 80,
        rate: int = 16000,
        f_min: float = 0,
        f_max: float = 0,
        scale: Literal["htk", "slaney"] = "htk",
    ) -> Dataset:
        """Computes the power spectrogram of audio on the mel scale, float32 [mels, frames].

        The result of torchaudio's `MelSpectrogram(rate, n_fft, hop_length=hop, n_mels=mels)`: Hann
        window, frames centred on every hop-th sample, mirrored ends, squared magnitudes. docs/audio.md
        has the formulas. For a log-mel spectrogram, `assign` `log(audio + 1e-6)`.

        component: the samples, float32 [n] (the name of a component)
        n_fft: samples of a frame: the length of the window and of the transform; an even number (an
            integer, from 2 to 1048576)
        hop: samples from frame to frame (an integer, from 1 to 16777216)
        mels: number of mel bands (an integer, from 1 to 4096)
        rate: the sample rate of the samples, in Hz (an integer, from 1 to 16777216)
        f_min: lowest frequency, in Hz (a number, from 0 to 16777216)
        f_max: highest frequency, in Hz; 0: rate / 2 (a number, from 0 to 16777216)
        scale: htk: HTK's mel scale and triangles of height 1, as torchaudio; slaney: Slaney's mel
            scale and triangles of equal area, as librosa and Whisper (a string: one of "htk",
            "slaney")
        """

    @classmethod
    def mix(
        cls,
        inputs: Sequence[Dataset],
        weights: Sequence[float],
        *,
        stop: Literal["first", "last", "never"] = "first",
    ) -> Dataset:
        """The elements of several chains in turn, in proportion to weights.

        `mix` takes the place of a source, at the start of a pipeline. All inputs must have the same
        components with the same dtypes. The order is fixed, and even: among the first n elements, each
        input has its share of n, to within less than one element. Each input keeps its own order:
        write `shuffle` inside an input, or after `mix` to shuffle all elements. An input that begins
        again does so as in a `repeat`: a `shuffle` inside it gives another order, and random operators
        draw new numbers. Elements that a filter inside an input drops count for its share.

        inputs: a list of chains; a chain is a list of operators that begins with a source (a list of
            chains)
        weights: for each input its share of the elements, in any unit: [7, 3] and [0.7, 0.3] are the
            same (a list of numbers, at least 1e-12)
        stop: first: the result ends where an exhausted input would have to give another element; last:
            exhausted inputs begin again, until each input has been exhausted once; never: exhausted
            inputs begin again, without end (a string: one of "first", "last", "never")
        """

    def mixup(self, component: str, label: str, classes: int, *, alpha: float = 0.2) -> Dataset:
        """Mixes each row of a batch with the row before it, and their labels.

        The operator comes after `batch`; only operators on batches, `take`, `skip` and `repeat` may
        follow. A batch draws one share from Beta(alpha, alpha). A row becomes share * row + (1 -
        share) * the row before it, and so do labels; the first row is mixed with the last one. Rows
        are uint8 or float32, of any shape (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical
        Risk Minimization", ICLR 2018; torchvision's MixUp). A label that is no class ends the run.

        component: the images (the name of a component)
        label: the class of each row: an integer, or float32 [classes], the shares of classes. The
            result is float32 [classes] (the name of a component)
        classes: number of classes (an integer, from 1 to 16777216)
        alpha: parameter of the distribution Beta(alpha, alpha) of the share that rows keep (a number,
            from 0.01 to 1000)
        """

    def normalize(
        self,
        component: str,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        *,
        dtype: _DType = "float32",
    ) -> Dataset:
        """Computes (x - mean) / std for each channel of an image.

        The computation is in float32, whatever the dtype of the input. The last axis holds the
        channels, so `normalize` must come before `transpose_image`. A two-dimensional image has one
        channel.

        component: the image (the name of a component)
        mean: value to subtract, per channel, in units of the input; a single number: of all channels
            (a list of numbers or a single one of length 1 to 64, at least -1e+30)
        std: value to divide the difference by, per channel; a single number: of all channels (a list
            of numbers or a single one of length 1 to 64, at least -1e+30)
        dtype: dtype of the result: float16, bfloat16, float32 or float64 (a dtype (bool, uint8 ..
            uint64, int8 .. int64, float16, bfloat16, float32, float64))
        """

    def one_hot(self, component: str, classes: int, *, dtype: _DType = "float32") -> Dataset:
        """Replaces each class number by a vector with a one at the place of the class, else zeros.

        The component is an integer, or an array of integers; the result has one dimension more, the
        last one, of size `classes`. A record with a class below 0, or of `classes` or more, fails.

        component: the component (the name of a component)
        classes: number of classes, the size of the new last dimension (an integer, from 1 to 16777216)
        dtype: dtype of the result (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        """

    def one_of(self, choices: _Operators, *, weights: Sequence[float] = []) -> Dataset:
        """Sends each element through one of several lists of operators, drawn at random.

        A list may be empty. After each list, elements must have the same components with the same
        dtypes. The operators compute an element from itself, without files and Python functions.

        choices: lists of operators; in Python functions that call them on the dataset: [lambda ds:
            ds.invert("image"), lambda ds: ds] (a list of operators, or of lists of operators)
        weights: how often each list is chosen, in proportion to the sum; []: all equally often (a list
            of numbers, from 0 to 1000000000)
        """

    def pack(
        self,
        component: str,
        length: int,
        *,
        algorithm: Literal["next", "first_fit", "best_fit"] = "next",
        bins: int = 16,
        split: bool = True,
        separator: int | Sequence[int] = [],
        pad: int = 0,
        window: int = 1024,
    ) -> Dataset:
        """Packs sequences of tokens into rows of a fixed length.

        `pack` fills rows with sequences. A row has `length` tokens in `component`, and two int32
        components of the same length. A segment is a sequence, or the part of a sequence that lies in
        this row. `segment_ids` has the number of each token's segment in the row (from 1; 0 is
        padding). `positions` counts the tokens of each segment from 0. Other components are dropped.
        The elements of the epoch, counted before any filter, are divided into windows of `window`
        consecutive elements. The rows of a window depend only on its own elements, so any worker can
        compute them. A larger window leaves less padding and takes more memory. The pipeline's sources
        may be joined by `concat` or `mix`, if none of them is an `iterable` or has `flat_map`,
        `window` or `enumerate` before that. `shuffle` and `repeat` must come before `pack`.

        component: sequences of tokens: integers, one dimension (the name of a component)
        length: tokens per row (an integer, from 1 to 16777216)
        algorithm: which open row takes a sequence: `next`, the row that was begun last; `first_fit`,
            the first row that has room for all of it; `best_fit`, the row with the least room that is
            enough. If no row has room, a new one begins (a string: one of "next", "first_fit",
            "best_fit")
        bins: for first_fit and best_fit, the number of open rows: when one more is needed, the fullest
            is closed; `next` has one (an integer, from 1 to 1024)
        split: true: with `next`, a sequence that does not fit continues in the next row; with
            first_fit and best_fit, a sequence longer than a row is cut into full rows and a rest,
            which is packed like a sequence. false: sequences are never cut, and longer ones fail (true
            or false)
        separator: a token appended to each sequence, counted as one of its tokens; []: none (a list of
            integers or a single one of length 0 to 1)
        pad: the token that fills the rest of a row (an integer)
        window: number of consecutive elements that are packed together; the last row of each window is
            padded (an integer, from 1 to 65536)
        """

    def pad(self, component: str, *, shape: Sequence[int] = [], to: int = -1, value: float = 0) -> Dataset:
        """Fills an array up to a given shape, at the end of each dimension.

        A record fails if its array is larger than the result in any dimension. To cut it first, use
        `assign` with a slice such as `tokens[:512]` (docs/expressions.md). To pad to the longest
        element of a batch instead, use `bucket_by_length`.

        component: the component (the name of a component)
        shape: the shape of the result; -1: the dimension keeps its size (a list of integers of length
            0 to 6, from -1 to 1099511627776)
        to: instead of `shape`: the size of the first dimension of the result; all others keep their
            sizes (an integer, from -1 to 1099511627776)
        value: the value that is filled in (a number)
        """

    def pad_image(
        self,
        component: str,
        padding: int | Sequence[int],
        *,
        fill: float | Sequence[float] = 0,
        padding_mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant",
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Adds pixels at the edges of images.

        The results are those of torchvision's `pad` on Pillow images. `pad_image` before `random_crop`
        is the usual augmentation of small images. Images are of any dtype, [height, width, channels]
        or [height, width].

        component: the image (the name of a component)
        padding: pixels to add: [left, top, right, bottom], or [left and right, top and bottom]; a
            single number: on all sides (a list of integers or a single one of length 1 to 4, from 0 to
            65535)
        fill: value of the new pixels with padding_mode "constant", per channel; a single number: of
            all channels (a list of numbers or a single one of length 1 to 64, at least -1e+30)
        padding_mode: "constant": the new pixels are `fill`; "edge": the nearest pixel of the image;
            "reflect": the image mirrored at its outermost pixels, which are not repeated; "symmetric":
            mirrored at its edges (a string: one of "constant", "edge", "reflect", "symmetric")
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def pad_or_trim(self, component: str, length: int, *, value: float = 0) -> Dataset:
        """Gives the first dimension a fixed length: pads at its end, or cuts its end off.

        Clips of different lengths can then form a batch: samples [n] become [length]. All dtypes of
        numbers; other dimensions stay.

        component: the component (the name of a component)
        length: the new size of the first dimension (an integer, from 0 to 1099511627776)
        value: what is added, converted as by `cast` (a number)
        """

    @classmethod
    def parquet(
        cls,
        files: _Path | Sequence[_Path],
        *,
        columns: Sequence[str] = [],
        nulls: Mapping[str, Any] = {},
    ) -> Dataset:
        """Rows of Parquet files, a component for each column.

        Each row is an element; each column gives a component of its name. Only the columns that the
        batch or a later operator needs are read, so a `select` after it saves reading as `columns`
        does. Numbers and booleans keep their dtype; dates, times and timestamps are integers as stored
        (timestamps of 96 bits: nanoseconds since 1970); strings and binary values are bytes. A list of
        numbers is a component of one dimension that varies. A field of a struct is a column with the
        name STRUCT.FIELD. Decimal numbers, maps, lists of lists, of strings and of structs have no
        form as a component: they must be left out with `columns`. A null fails its row, unless `nulls`
        has a value for its column. For a column of lists, a list stands for a null list; a number
        stands for a null in a list, and a null list is then empty. All files must have the columns of
        the first one, with the same types. Pages may be compressed with snappy, gzip, LZ4 or zstd;
        checksums of pages are checked if the file has them. A row group is a chunk: `shuffle` is by
        chunk (docs/shuffling.md), and a column of a row group is decoded as a whole. The pipeline's
        description needs the first file: a program that only sends it to a service must be able to
        read it too.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        columns: names of the columns to read, at most 64; []: all columns (a list of strings)
        nulls: values in place of nulls, {"age": -1, "name": ""}; "NaN" for a floating dtype; a list
            for a list (an object)
        """

    def parse_example(self, features: Mapping[str, Any], *, component: str = "record") -> Dataset:
        """Reads components from a tf.train.Example, drops all other components.

        In `features`, a dtype alone declares a feature of exactly one value, a scalar. An object
        declares the feature `key` (default: the component's name), with values of `dtype`, exactly as
        many as `shape` holds. If `variable` is true, the feature may hold any number of arrays of this
        shape, and the component has one more dimension in front, which varies. `default` (a string,
        one number for all values, or a list of numbers) is used if the feature is missing, or if it is
        empty and not variable. Without a default, a variable feature then has no values, and any other
        feature fails the record. A record also fails if a feature has another dtype or number of
        values, or if the Example is malformed.

        features: the components to read: {name: "bytes"|"int64"|"float32"}, or {name: {key, dtype,
            shape, variable, default}} (an object)
        component: the component with the bytes of the Example (the name of a component)
        """

    def posterize(self, component: str, bits: int, *, p: float = 1) -> Dataset:
        """Keeps only the high bits of each value of uint8 images.

        The low bits, 8 - `bits` of them, become 0.

        component: the image, of 1 or 3 channels (the name of a component)
        bits: number of high bits to keep (an integer, from 0 to 8)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    def rand_augment(
        self,
        component: str,
        *,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
    ) -> Dataset:
        """Augments uint8 images by several drawn changes of a fixed magnitude.

        RandAugment: each element draws num_ops of 14 changes (shears, translations, a rotation,
        changes of colours), and their signs. The results are those of torchvision on Pillow images.

        component: the image, of 1 or 3 channels (the name of a component)
        num_ops: number of augmentations of each image (an integer, from 0 to 16)
        magnitude: how strong they are, from 0 to num_magnitude_bins - 1 (an integer, from 0 to 999)
        num_magnitude_bins: number of magnitudes (an integer, from 2 to 1000)
        """

    def random_affine(
        self,
        component: str,
        degrees: float | Sequence[float],
        *,
        translate: Sequence[float] = [0, 0],
        scale: Sequence[float] = [1, 1],
        shear: float | Sequence[float] = 0,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest",
        fill: float | Sequence[float] = 0,
        center: Sequence[float] = [],
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Rotates, moves, scales and shears images, at random.

        The results are those of torchvision's RandomAffine on Pillow images. The result has the size
        of the image. Images are uint8 or float32, [height, width, channels] or [height, width].

        component: the image (the name of a component)
        degrees: range [low, high] of the angle of rotation, clockwise; a single number x: [-x, x]; 0:
            none (a list of numbers or a single one of length 1 to 2, from -360 to 360)
        translate: [a, b]: moves by up to a times the width to the left or right, and up to b times the
            height up or down (a list of numbers of length 2, from 0 to 1)
        scale: range [low, high] of the scale (a list of numbers of length 2, from 0.001 to 1000)
        shear: range [low, high] of the angle, in degrees, by which the image is sheared along x; a
            single number s: [-s, s]; four numbers: [low_x, high_x, low_y, high_y] (a list of numbers
            or a single one of length 1 to 4, from -89 to 89)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic) (a string: one of "nearest", "bilinear", "bicubic")
        fill: value of the result where it shows what is outside of the image, per channel; a single
            number: of all channels (a list of numbers or a single one of length 1 to 64, at least
            -1e+30)
        center: [x, y] of the fixed point in pixels, from the top left corner; []: the middle of the
            image (a list of numbers of length 0 to 2, from -1000000 to 1000000)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_crop(
        self,
        component: str,
        size: int | Sequence[int],
        *,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Cuts a rectangle of fixed size at a random place out of an image.

        All positions are equally likely. A crop larger than the image fails the record.

        component: the image (the name of a component)
        size: [height, width] in pixels; a single number: both (a list of integers or a single one of
            length 2, from 1 to 65535)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_erasing(
        self,
        component: str,
        *,
        p: float = 0.5,
        scale: Sequence[float] = [0.02, 0.33],
        ratio: Sequence[float] = [0.3, 3.3],
        value: float | Sequence[float] = 0,
    ) -> Dataset:
        """Erases a random rectangle of images.

        The rectangle is drawn as by torchvision's RandomErasing. Images are of any dtype, [height,
        width, channels] or [height, width].

        component: the image (the name of a component)
        p: probability that a rectangle of the image is erased (a number, from 0 to 1)
        scale: range [low, high] of the area of the rectangle, as a fraction of that of the image (a
            list of numbers of length 2, from 0 to 1)
        ratio: range [low, high] of height / width of the rectangle (a list of numbers of length 2,
            from 0.001 to 1000)
        value: value of the pixels that are erased, per channel; a single number: of all channels (a
            list of numbers or a single one of length 1 to 64, at least -1e+30)
        """

    def random_flip(
        self,
        component: str,
        *,
        horizontal: float = 0.5,
        vertical: float = 0,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Flips images left-right or upside down, at random.

        Each element draws both flips independently. Images are [height, width, channels] or [height,
        width].

        component: the image (the name of a component)
        horizontal: probability of a left-right flip (a number, from 0 to 1)
        vertical: probability of an upside-down flip (a number, from 0 to 1)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_gain(self, component: str, *, db: float | Sequence[float] = [-6, 6]) -> Dataset:
        """Makes audio louder or softer, at random.

        Multiplies the samples of an element by 10^(g / 20), where g is drawn uniformly from `db`.
        Samples are not clipped.

        component: the samples, float32 (the name of a component)
        db: smallest and largest gain, in dB; a single number: always this gain (a list of numbers or a
            single one of length 2, from -200 to 200)
        """

    def random_grayscale(self, component: str, *, p: float = 0.1) -> Dataset:
        """Makes images grey, at random.

        The number of channels stays: the three channels of a grey image are equal.

        component: the image, of 1 or 3 channels (the name of a component)
        p: probability that an element becomes grey (a number, from 0 to 1)
        """

    def random_noise(self, component: str, *, snr: float | Sequence[float] = [10, 40]) -> Dataset:
        """Adds white noise to audio, at random.

        The noise of an element is normally distributed. Its ratio of signal to noise (of their mean
        squares) is drawn uniformly from `snr`. Silence stays silence.

        component: the samples, float32 (the name of a component)
        snr: smallest and largest ratio of signal to noise, in dB; a single number: always this ratio
            (a list of numbers or a single one of length 2, from -200 to 200)
        """

    def random_perspective(
        self,
        component: str,
        *,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
        fill: float | Sequence[float] = 0,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Moves the corners of images inwards, at random, as if they were seen from another side.

        The results are those of torchvision's RandomPerspective on Pillow images. An image that is too
        small for its corners to be four different points stays as it is. Images are uint8 or float32,
        [height, width, channels] or [height, width].

        component: the image (the name of a component)
        distortion_scale: how far corners move at most, as a fraction of half the width and half the
            height (a number, from 0 to 1)
        p: probability that an image is changed (a number, from 0 to 1)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic) (a string: one of "nearest", "bilinear", "bicubic")
        fill: value of the result where it shows what is outside of the image, per channel; a single
            number: of all channels (a list of numbers or a single one of length 1 to 64, at least
            -1e+30)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_resized_crop(
        self,
        component: str,
        size: int | Sequence[int],
        *,
        scale: Sequence[float] = [0.08, 1],
        ratio: Sequence[float] = [0.75, 1.3333],
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
        antialias: bool = True,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Cuts a rectangle of random area and aspect ratio, and resizes it.

        This is the usual augmentation for image classifiers (Inception's crop). The operator draws up
        to ten rectangles and takes the first that fits the image. If no rectangle fits, it takes as
        much of the middle of the image as `ratio` allows. Pixels outside the crop do not affect the
        resized result.

        component: the image (the name of a component)
        size: [height, width] in pixels; a single number: both (a list of integers or a single one of
            length 2, from 1 to 65535)
        scale: smallest and largest area of the rectangle, as a share of the image's area (a list of
            numbers of length 2, from 1e-09 to 1)
        ratio: smallest and largest width / height of the rectangle; the logarithm of the ratio is
            drawn uniformly (a list of numbers of length 2, from 1e-06 to 1000000)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic); from more with antialias (a string: one of "nearest",
            "bilinear", "bicubic")
        antialias: true: when shrinking, compute result pixels from all pixels of the image (no effect
            with nearest) (true or false)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_rotation(
        self,
        component: str,
        degrees: float | Sequence[float],
        *,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest",
        expand: bool = False,
        center: Sequence[float] = [],
        fill: float | Sequence[float] = 0,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Rotates images by a random angle.

        The results are those of torchvision's RandomRotation on Pillow images. Images are uint8 or
        float32, [height, width, channels] or [height, width].

        component: the image (the name of a component)
        degrees: range [low, high] of the angle, counter-clockwise; a single number x: [-x, x] (a list
            of numbers or a single one of length 1 to 2, from -360 to 360)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic) (a string: one of "nearest", "bilinear", "bicubic")
        expand: true: the result is as large as the whole rotated image, so its size varies; false: the
            size of the image (true or false)
        center: [x, y] of the fixed point in pixels, from the top left corner; []: the middle of the
            image (a list of numbers of length 0 to 2, from -1000000 to 1000000)
        fill: value of the result where it shows what is outside of the image, per channel; a single
            number: of all channels (a list of numbers or a single one of length 1 to 64, at least
            -1e+30)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def random_zoom_out(
        self,
        component: str,
        *,
        fill: float | Sequence[float] = 0,
        side_range: Sequence[float] = [1, 4],
        p: float = 0.5,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Puts images at a random place of a larger canvas.

        This is torchvision's RandomZoomOut, for detectors of small objects. The size of the result
        varies, so `resize` usually follows. Images are of any dtype, [height, width, channels] or
        [height, width].

        component: the image (the name of a component)
        fill: value of the canvas around the image, per channel; a single number: of all channels (a
            list of numbers or a single one of length 1 to 64, at least -1e+30)
        side_range: range [low, high] of the sides of the canvas, as multiples of the sides of the
            image (a list of numbers of length 2, from 1 to 100)
        p: probability that an image gets a canvas (a number, from 0 to 1)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    @classmethod
    def range(cls, stop: int, *, start: int = 0, step: int = 1) -> Dataset:
        """Integers from start to stop, in steps.

        Gives `value` (int64): start, start + step, ..., as Python's range(start, stop, step).

        stop: end of the range, which is not part of it (an integer)
        start: the first integer (an integer)
        step: difference between an integer and the one before it; not 0 (an integer)
        """

    def rebatch(
        self,
        size: int,
        *,
        drop_remainder: bool = False,
        pad: Literal["longest"] | float | Mapping[str, Any] = {},
    ) -> Dataset:
        """Makes batches of the rows of each element.

        The same as `unbatch` and then `batch`: rows of an element, along the first dimension of its
        components, are stacked into batches of `size` rows, also across elements. If a `batch` comes
        before `rebatch`, `rebatch` takes its place.

        size: elements per batch (an integer, from 1 to 1048576)
        drop_remainder: true: leave out the last batch if it is not full (true or false)
        pad: "longest": pad components whose shape varies with 0, to the largest size in the batch; a
            number: pad them with it; {component: number}, or {component: {"value": number, "to": [size
            of each dimension, or null]}}: pad only these components, and to these sizes (an object or
            a number or "longest")
        """

    def rename(self, names: Mapping[str, Any]) -> Dataset:
        """Gives components other names.

        names: {old name: new name} (an object)
        """

    def repeat(self, count: int) -> Dataset:
        """Gives all elements several times.

        One pass over all elements follows another, `count` passes in all. Random operators draw new
        numbers in each pass.

        count: number of passes; -1: endless (an integer, at least -1)
        """

    def resample(self, component: str, target: Sequence[float], initial: Sequence[float]) -> Dataset:
        """Drops elements at random, so that classes get given shares.

        An element of class k is kept with a probability in proportion to target[k] / initial[k], and
        as many elements as possible are kept: all those of the class with the largest quotient. If
        `initial` is right, the expected shares of the classes are those of `target`. Each element
        draws by itself, and draws again in each epoch. No element is repeated.

        component: the class of an element: an integer from 0 on (the name of a component)
        target: for each class its share of the elements that are kept, in any unit (a list of numbers
            of length 1 to 65536, at least 0)
        initial: for each class its share of the elements that arrive, in any unit: counts of a data
            set, for example (a list of numbers of length 1 to 65536, at least 0)
        """

    def resample_audio(
        self,
        component: str,
        rate: int,
        *,
        sample_rate: str = "sample_rate",
        input_rate: int = 0,
    ) -> Dataset:
        """Changes the sample rate of audio.

        Computed by libsoxr with its quality HQ, each channel by itself. Samples that have the new rate
        already stay as they are. docs/audio.md has the details.

        component: the samples, float32 [n] or [n, channels] (the name of a component)
        rate: the new sample rate, in Hz (an integer, from 1 to 16777216)
        sample_rate: the component with the sample rate of the samples, int32; it becomes the new rate
            (the name of a component)
        input_rate: the sample rate of all elements, in Hz, if no component has it; 0: `sample_rate`
            has it (an integer, from 0 to 16777216)
        """

    def reshape(self, component: str, shape: Sequence[int]) -> Dataset:
        """Gives an array another shape with the same values, in the same order.

        A record fails if its number of values does not fit the shape. `[]` is the shape of a scalar.

        component: the component (the name of a component)
        shape: the new shape; one size may be -1 and follows from the number of values (a list of
            integers of length 0 to 6, from -1 to 1099511627776)
        """

    def resize(
        self,
        component: str,
        size: int | Sequence[int],
        *,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
        antialias: bool = True,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Resizes an image.

        The aspect ratio is not kept. With `antialias` (as in Pillow and torchvision), shrinking
        averages over all pixels of the image. Without `antialias` (as in tf.image.resize and OpenCV),
        each result pixel is computed from the nearest 2 x 2 (bilinear) or 4 x 4 (bicubic) pixels.
        docs/pixels.md defines the arithmetic.

        component: the image (the name of a component)
        size: [height, width] in pixels; a single number: both (a list of integers or a single one of
            length 2, from 1 to 65535)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic); from more with antialias (a string: one of "nearest",
            "bilinear", "bicubic")
        antialias: true: when shrinking, compute result pixels from all pixels of the image (no effect
            with nearest) (true or false)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def rotate(
        self,
        component: str,
        angle: float,
        *,
        interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest",
        expand: bool = False,
        center: Sequence[float] = [],
        fill: float | Sequence[float] = 0,
        boxes: str | Sequence[str] = [],
        masks: str | Sequence[str] = [],
        keypoints: str | Sequence[str] = [],
    ) -> Dataset:
        """Rotates images by an angle.

        The results are those of torchvision's `rotate` on Pillow images. Images are uint8 or float32,
        [height, width, channels] or [height, width].

        component: the image (the name of a component)
        angle: in degrees, counter-clockwise (a number, from -360 to 360)
        interpolation: what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear)
            or 4 x 4 pixels (bicubic) (a string: one of "nearest", "bilinear", "bicubic")
        expand: true: the result is as large as the whole rotated image; false: the size of the image
            (true or false)
        center: [x, y] of the fixed point in pixels, from the top left corner; []: the middle of the
            image (a list of numbers of length 0 to 2, from -1000000 to 1000000)
        fill: value of the result where it shows what is outside of the image, per channel; a single
            number: of all channels (a list of numbers or a single one of length 1 to 64, at least
            -1e+30)
        boxes: components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in
            pixels (a list of strings or a single one)
        masks: components with masks of the image, which move with it: uint8 [height, width] or [n,
            height, width] (a list of strings or a single one)
        keypoints: components with points of the image, which move with it: float32 [n, 2], x y in
            pixels (a list of strings or a single one)
        """

    def sanitize_boxes(
        self,
        component: str,
        *,
        labels: str | Sequence[str] = [],
        min_size: float = 1,
        min_area: float = 1,
    ) -> Dataset:
        """Drops boxes that are too small, together with their labels.

        Image operators keep every box of the attribute `boxes`: a box that left the image has no area
        any more. `sanitize_boxes` drops such boxes, as torchvision's SanitizeBoundingBoxes does. It
        also drops boxes with numbers that are not finite.

        component: the boxes: float32 [n, 4], x0 y0 x1 y1 (the name of a component)
        labels: components with a row for each box, such as its class or its mask; the rows of boxes
            that are dropped are dropped too (a list of strings or a single one)
        min_size: smallest width and smallest height of a box that is kept, in pixels (a number, from 0
            to 1000000000)
        min_area: smallest area of a box that is kept, in pixels (a number, from 0 to 1e+18)
        """

    def select(self, components: str | Sequence[str]) -> Dataset:
        """Keeps the named components, drops all others.

        components: names of the components to keep (a list of strings or a single one of length at
            least 1)
        """

    def serialize_tensor(self, component: str) -> Dataset:
        """An array as bytes: its shape, then its values.

        Elements of any shape then fit in one batch. The bytes are little-endian: the number of
        dimensions (int64), the size of each dimension (int64), the values, and zeros up to a multiple
        of 8. Workers of a service use it where a pipeline is cut before its elements have equal shapes
        (docs/service.md).

        component: the component (the name of a component)
        """

    def shuffle(
        self,
        by: Literal["record", "chunk"] = "record",
        *,
        window: int = 0,
        reshuffle: bool = True,
        seed: int = -1,
    ) -> Dataset:
        """Puts the elements in random order, in a new order in each epoch.

        The order is a pseudo-random permutation of all elements, whatever their number. `shuffle` has
        no buffer: it permutes indices, not data. If the records of a source can't be read one by one
        (compressed files, Parquet), the shuffle is by chunk, which mixes less well
        (docs/shuffling.md).

        by: record: permute all elements; chunk: permute chunks of neighbouring records, and elements
            only within windows of chunks, for storage where random reads are slow (a string: one of
            "record", "chunk")
        window: for the source `iterable`, whose length is not known: number of consecutive elements
            that are permuted among themselves; for any other source: 0 (an integer, from 0 to 1048576)
        reshuffle: true: a new order in each epoch; false: the same order in all epochs (true or false)
        seed: -1: the order follows from the seed of the run; else the order follows from this seed, in
            every run, and wherever the shuffle stands. With reshuffle false it is also the same in all
            passes of a later `repeat`. Not for shuffles by chunk (an integer, at least -1)
        """

    def skip(self, count: int) -> Dataset:
        """Leaves out the first elements.

        After `batch` or `bucket_by_length`, `skip` counts batches, not elements. If a filter or
        `flat_map` comes before `skip`, the elements must be counted one after the other; in a service,
        one worker then runs the whole epoch.

        count: number of elements to leave out (an integer, at least 0)
        """

    def solarize(self, component: str, threshold: float, *, p: float = 1) -> Dataset:
        """Inverts the bright values of images.

        A value x >= `threshold` becomes 255 - x in a uint8 image, and 1 - x in a float32 image.

        component: the image, of 1 or 3 channels (the name of a component)
        threshold: values from this one on are inverted; at most 256 for uint8 images, 1 for float32
            images (a number, from 0 to 256)
        p: probability that an element is changed (a number, from 0 to 1)
        """

    def spec_augment(
        self,
        component: str,
        *,
        freq_mask: int = 27,
        time_mask: int = 100,
        freq_masks: int = 1,
        time_masks: int = 1,
        value: float = 0,
    ) -> Dataset:
        """Masks frequencies and times of a spectrogram, at random.

        SpecAugment without time warping (Park et al., 2019). The width of a mask is drawn uniformly
        from 0 to its largest width, its begin from all places where it fits.

        component: the spectrogram, float32 [frequencies, times] (the name of a component)
        freq_mask: most frequencies of a frequency mask (an integer, from 0 to 16777216)
        time_mask: most times of a time mask (an integer, from 0 to 16777216)
        freq_masks: number of frequency masks (an integer, from 0 to 1000)
        time_masks: number of time masks (an integer, from 0 to 1000)
        value: what masked places become (a number)
        """

    def stack(self, components: Sequence[str], name: str, *, axis: int = 0) -> Dataset:
        """Makes one component of several of the same dtype and shape, along a new dimension.

        The result is that of numpy.stack: scalars become a vector. The components that are stacked
        stay; if `name` is the name of a component, the result replaces it.

        components: names of the components, in order (a list of strings of length 1 to 64)
        name: name of the result (a string)
        axis: where the new dimension stands in the result; -1: the last one (an integer, from -6 to 5)
        """

    def standardize(
        self,
        component: str,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        *,
        dtype: _DType = "float32",
    ) -> Dataset:
        """Computes (x - mean) / std for each feature.

        The last dimension holds the features; a component may have any other dimensions, or be a
        single value. The computation is in float64, and its result is rounded once. For images,
        `normalize` is faster.

        component: the component (the name of a component)
        mean: value to subtract, per feature; a single number: of all features (a list of numbers or a
            single one of length 1 to 65536)
        std: value to divide the difference by, per feature; a single number: of all features (a list
            of numbers or a single one of length 1 to 65536)
        dtype: dtype of the result: float16, bfloat16, float32 or float64 (a dtype (bool, uint8 ..
            uint64, int8 .. int64, float16, bfloat16, float32, float64))
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
        """Made-up elements that take a chosen CPU time, for tests and measurements.

        Gives the component `data`. Random integers cover all values of their dtype; random
        floating-point numbers lie in [0, 1). The values depend only on the element's number.

        count: number of elements (an integer, from 0 to 1099511627776)
        shape: shape of an element (a list of integers of length 0 to 6, from 1 to 2147483648)
        dtype: dtype of an element (a dtype (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16,
            float32, float64))
        cost_us: CPU time spent on each element, in microseconds (a number, from 0 to 1000000000)
        fill: random: random values, the same in every run; none: zeros (a string: one of "random",
            "none")
        """

    def take(self, count: int) -> Dataset:
        """Keeps only the first elements.

        After `batch` or `bucket_by_length`, `take` counts batches, not elements. In a service, if a
        filter or `flat_map` comes before `take`, one worker runs the whole epoch. There is one
        exception: if only maps and `batch` come after `take`, all workers run the epoch until `count`
        elements have passed.

        count: number of elements to keep (an integer, at least 0)
        """

    def take_while(self, where: _Expression) -> Dataset:
        """Keeps the elements before the first one for which an expression is false.

        A number counts as true if it is not 0. In each pass of a `repeat` after it, `take_while`
        begins anew. `shuffle` must come before it. The elements must be checked in order, so in a
        service one worker runs the whole epoch. `take_while` can't be used with `on_error` "replace".

        where: the condition, a scalar expression: the first element for which it is false (0) ends the
            epoch (an expression (a string))
        """

    @classmethod
    def tar(
        cls,
        files: _Path | Sequence[_Path],
        components: Mapping[str, Any],
        *,
        compression: Literal["auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz"] = "auto",
    ) -> Dataset:
        """Samples of tar shards (WebDataset).

        A record is a sample: consecutive files of an archive that have the same key. The key of a file
        is its path up to the first dot of the base name; the rest after that dot is its extension. A
        component is the file with the extension `key` (default: the component's name). If `key` lists
        several extensions ("jpg;jpeg;png"), the first one that the sample has is taken. Upper and
        lower case of extensions are the same. With dtype `bytes` the component is the content of the
        file. With any other dtype it is the numbers in the file: text with white space between the
        numbers, or NumPy's format if the extension ends with npy (dtype and shape must be those of the
        component). `shape`, `variable` and `default` (for a sample without such a file) are as in
        `parse_example`. The key "__key__" gives the sample's key. Directories, links and files without
        an extension are skipped. Headers may be v7, ustar, GNU or pax. A damaged archive is an error,
        and so is an archive with sparse files, devices, or names that lead out of the archive's
        directory.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        compression: compression of the files; auto: detected from the content (a string: one of
            "auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz")
        components: the components to read: {extension: "bytes"|"int64"|...}, or {name: {key, dtype,
            shape, variable, default}}; key: one or more extensions, as in "jpg;jpeg;png" (an object)
        """

    @classmethod
    def text(
        cls,
        files: _Path | Sequence[_Path],
        *,
        compression: Literal["auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz"] = "auto",
        max_line: int = 67108864,
    ) -> Dataset:
        """Lines of text files.

        Gives `text`, the bytes of each line without its end ("\n" or "\r\n"). The last line of a file
        may lack a line end; empty lines are records. Files come in the order of the patterns; the
        files of one pattern are sorted by the bytes of their paths. Cachew's index files (*.cwx) are
        left out, even if a wildcard matches them. `compression` "auto" detects all but zlib, because a
        text may begin with the same bytes as zlib data.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        compression: compression of the files; auto: detected from the content (a string: one of
            "auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz")
        max_line: longest line, in bytes; a longer line is not read, and its record fails (an integer,
            from 1 to 1073741824)
        """

    @classmethod
    def tfrecord(
        cls,
        files: _Path | Sequence[_Path],
        *,
        compression: Literal["auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz"] = "auto",
        verify: bool = True,
    ) -> Dataset:
        """Records of TFRecord files.

        Gives `record`, the bytes of each record. Files come in the order of the patterns; the files of
        one pattern are sorted by the bytes of their paths. Cachew's index files (*.cwx) are left out,
        even if a wildcard matches them. When a file is indexed, the CRC of each record's length is
        always checked.

        files: names of files, addresses (`s3://bucket/key*`, `gs://`,
            `hf://datasets/OWNER/NAME/path*`, `https://`, `http://`), or patterns: `*`, `?`, `[...]`,
            `**` for directories at any depth, `{a,b}`, `{000..127}`, `~` for a home directory (a list
            of strings or a single one of length at least 1)
        compression: compression of the files; auto: detected from the content (a string: one of
            "auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz")
        verify: true: check the CRC of each record's data, and compare it with the CRC in the index
            (true or false)
        """

    def tokenize(
        self,
        component: str,
        tokenizer: _Path,
        *,
        add_special_tokens: bool = True,
        truncation: int | Sequence[int] = [],
    ) -> Dataset:
        """Replaces a text by its token ids, by a tokenizer of Hugging Face.

        The ids are int32 [n], exactly those of the Python package `tokenizers`, which must be
        installed for the Python that runs functions (docs/hosts.md). Only a change of the file's
        content makes another pipeline, not a change of its path. The file's own settings for padding
        and truncation are ignored. A text that is not valid UTF-8 fails the record.

        component: the text: bytes, in UTF-8 (the name of a component)
        tokenizer: path of a file tokenizer.json, as `save` and `save_pretrained` of Hugging Face's
            packages write it (a string)
        add_special_tokens: true: add the tokens that the tokenizer puts around a text, such as [CLS]
            and [SEP] (true or false)
        truncation: most tokens of a text, special tokens included; the rest is cut off at the end; []:
            no limit (a list of integers or a single one of length 0 to 1, from 1 to 2147483647)
        """

    def transpose_image(self, component: str, *, layout: Literal["chw", "hwc"] = "chw") -> Dataset:
        """Moves the channels of an image first ([height, width, channels] to [channels, height, width])
        or last.

        component: the image (the name of a component)
        layout: "chw": [height, width, channels] to [channels, height, width]; "hwc": the reverse (a
            string: one of "chw", "hwc")
        """

    def trivial_augment(self, component: str) -> Dataset:
        """Augments uint8 images by one drawn change of a drawn magnitude.

        TrivialAugmentWide: each element draws one of 14 changes (shears, translations, a rotation,
        changes of colours), one of 31 magnitudes, and its sign. The results are those of torchvision
        on Pillow images.

        component: the image, of 1 or 3 channels (the name of a component)
        """

    def unbatch(self) -> Dataset:
        """Makes elements of the rows of each element.

        Row i of an element has part i of each component along its first dimension. Every component
        must have a first dimension, of the same size within an element. The rows of an element stay
        together, in order. If a `batch` comes before `unbatch`, both are left out: between them there
        may be only operators on elements, and the `batch` must keep the remainder and must not pad.
        The number of elements after `unbatch` is otherwise not known in advance. `unbatch` is not
        allowed with on_error "replace".
        """

    def window(
        self,
        size: int,
        *,
        shift: int = 0,
        stride: int = 1,
        drop_remainder: bool = True,
        components: str | Sequence[str] = [],
    ) -> Dataset:
        """Makes one element of each window of elements.

        Window w has the elements at the positions w * shift + i * stride, for i from 0 to size - 1.
        Windows are elements like others, which `shuffle`, `take` and `batch` may follow. `window`
        comes after one source, of which only operators of the kinds "map" and "index" may follow
        before it, and no cache point. If an element of a window fails, the window fails. An element
        that lies in several windows is computed for each of them.

        size: elements of a window (an integer, from 1 to 1048576)
        shift: elements from the begin of a window to the begin of the next; 0: size (an integer, from
            0 to 1099511627776)
        stride: elements from one element of a window to the next (an integer, from 1 to 1073741824)
        drop_remainder: true: leave out windows that reach beyond the last element; false: these
            windows are shorter (true or false)
        components: components that get a leading dimension, one row for each element of the window;
            []: all. Other components are those of the window's first element (a list of strings or a
            single one)
        """

    @classmethod
    def zip(cls, inputs: Sequence[Dataset], *, stop: Literal["first"] = "first") -> Dataset:
        """Joins the elements of several chains, one element of each chain to one element.

        `zip` takes the place of a source, at the start of a pipeline. Element i has the components of
        element i of each input; the names of components must differ between inputs. An input is a
        source other than `iterable`, which may be followed by operators of the kinds "map" and "index"
        (such as `take`). One thread reads the records of all inputs for a block of elements, one input
        after the other. The record id of an element is its position in the result of `zip`.

        inputs: a list of chains; a chain is a list of operators that begins with a source (a list of
            chains)
        stop: first: the result ends with the shortest input (a string: one of "first")
        """
