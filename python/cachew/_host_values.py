"""Values that functions take and return in a host process: the declared type of a component, the check and
conversion of a value, and the messages for wrong values.
"""

import math
import os
import traceback

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def numpy_dtype(name):
    if name == "bfloat16":
        try:
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        except ImportError:
            return np.dtype(np.uint16)
    return np.dtype(name)


class Wrong(Exception):
    """The user's function did not return its declared outputs. The text is the end of a message that the
    engine begins with the function's name: "normalize: " + "returned a list, expected ...".
    """


def refuse_mask(name, value):
    """Raises Wrong for a masked array: its mask would be lost."""
    if (
        isinstance(value, np.ndarray)
        and type(value) is not np.ndarray
        and isinstance(value, np.ma.MaskedArray)
    ):
        raise Wrong(
            f'returned a masked array as "{name}", and components have no masks: fill it, or '
            f"return the mask as a component of its own"
        )


def describe(value):
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.generic):
        return str(value.dtype)
    return type(value).__name__


def array_of(name, value):
    """The value as a NumPy array. Raises Wrong with the component's name if NumPy can't convert it."""
    try:
        return np.asarray(value)
    except Exception as error:
        said = " ".join(str(error).split())
        raise Wrong(
            f'returned {describe(value)} as "{name}", which NumPy can\'t convert to an array '
            f"({type(error).__name__}: {said})"
        ) from None


def in_order(array, dtype):
    """The array in the machine's byte order, if it differs from the dtype only in byte order."""
    return array.astype(dtype) if array.dtype != dtype and array.dtype.newbyteorder("=") == dtype else array


def short(number):
    """A short text for a number. Python refuses to print integers of more than 4,300 digits."""
    try:
        text = repr(number)
    except ValueError:
        return f"an int of {number.bit_length()} bits"
    return text if len(text) <= 60 else text[:40] + "..."


def text_of(error):
    """One line with the exception and the place in the user's code where it was raised."""
    if isinstance(error, Wrong):
        return printable(str(error))
    said = "".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(HERE + os.sep)
    ]
    if frames:
        said += f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})"
    return printable(said)


def printable(text):
    """The text in one line that JSON can hold. It has at most 390 characters, because the engine keeps the
    message of a record in a buffer of 400 bytes.
    """
    clean = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) if ord(c) < 256 else "?" for c in clean)[:390]


class Component:
    """The declared type of a component. Checks and converts values of the component.

    spec: {name, dtype, shape} and perhaps {default}, as the engine sends it.
    """

    def __init__(self, spec):
        self.name, self.dtype_name, self.shape = spec["name"], spec["dtype"], spec["shape"]
        self.bytes = self.dtype_name == "bytes"
        self.dtype = None if self.bytes else numpy_dtype(self.dtype_name)
        self.fixed = not self.bytes and self.shape is not None and None not in self.shape
        self.scalar_types = None
        if self.fixed and not self.shape:
            self.scalar_types = {self.dtype.type} | ({bool} if self.dtype == bool else set())
        # In the list of a column's values, the entry of a row that failed: zero if the component is a scalar,
        # else None. The engine does not read values of failed rows.
        self.nothing = self.dtype.type(0) if self.scalar_types else None
        self.python_types = (
            (bool,)
            if self.dtype == bool
            else (int,)
            if self.dtype is not None and self.dtype.kind in "iu"
            else (int, float)
        )
        # What None stands for; None: it is an error. The default fills the shape; dimensions that vary are 0.
        self.default = None
        if spec.get("default") is not None:
            value = spec["default"]
            if value == "nan" and not self.bytes and self.dtype.kind not in "biu":
                value = math.nan
            value = self.convert(value) if self.bytes else self.scalar(value)
            if not self.bytes and self.shape:
                value = np.full([d or 0 for d in self.shape], value)
            self.default = value if self.bytes or self.shape else value[()]

    def declared(self):
        if self.bytes:
            return "bytes"
        shape = "..." if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype_name}[{shape}]"

    def wrong(self, value):
        if value is None:
            return Wrong(
                f'returned None as "{self.name}", expected {self.declared()}; give a default for None in '
                f'outputs: "{self.name}": (dtype, shape, default)'
            )
        said = f'returned {describe(value)} as "{self.name}", expected {self.declared()}'
        if self.fixed and getattr(value, "dtype", None) == self.dtype and np.ndim(value) == len(self.shape):
            said += "; if the size varies, write None for it in the shape in outputs"
        return Wrong(said)

    def convert(self, value):
        """The value as an array of the declared type; for a component of bytes, as bytes, a bytearray or a
        memoryview (a str is encoded in UTF-8). Raises Wrong if the value does not have the declared type.
        """
        if self.bytes:
            if isinstance(value, str):
                try:
                    return value.encode()
                except UnicodeEncodeError as error:
                    raise Wrong(
                        f'returned a str as "{self.name}" that can\'t be written in UTF-8 ({error}), '
                        f"expected bytes or a text"
                    ) from None
            if isinstance(value, (bytes, bytearray, memoryview)):
                return value
            raise self.wrong(value)
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            array = self.scalar(value)
        else:
            array = value if isinstance(value, np.ndarray) else array_of(self.name, value)
            if array.dtype == object:
                raise self.wrong(value)
            refuse_mask(self.name, array)
            array = in_order(array, self.dtype)
        if array.dtype != self.dtype or (self.shape is not None and not self.fits(array.shape)):
            raise self.wrong(array)
        if array.ndim > 6:
            raise Wrong(f'returned "{self.name}" with {array.ndim} dimensions, expected at most 6')
        return array

    def scalar(self, value):
        """A Python number as an array without dimensions. Raises Wrong if the dtype can't hold it."""
        if type(value) not in self.python_types:
            raise self.wrong(value)
        try:
            with np.errstate(over="ignore"):
                array = np.array(value, self.dtype)
            fits = (
                int(array) == value
                if self.dtype.kind in "iu"
                else np.isfinite(array) or not math.isfinite(value)
            )
        except OverflowError:
            fits = False
        if not fits:
            raise Wrong(
                f'returned {short(value)} as "{self.name}", which is out of range for {self.dtype_name}'
            )
        return array

    def keep(self, value):
        """The value, converted and copied: the function may reuse its arrays for the next record."""
        if self.scalar_types is not None:
            return value if type(value) in self.scalar_types else self.convert(value)[()]
        value = self.convert(value)
        if self.bytes:
            return value if type(value) is bytes else bytes(value)
        return value.copy()

    def fits(self, shape):
        return len(shape) == len(self.shape) and all(d is None or d == n for d, n in zip(self.shape, shape))
