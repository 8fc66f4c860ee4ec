"""Operators that run Python functions: map, filter, flat_map, map_batches, and the sources iterable and
sequence. Host processes, short hosts, run the functions (docs/hosts.md).
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cachew._batch import Bytes
from cachew._calls import checked_methods, refuse_in_import
from cachew._errors import PipelineError
from cachew._host_tree import flat
from cachew._options import byte_count
from cachew._values import is_text, plain, shown_bytes

if TYPE_CHECKING:
    from typing_extensions import Self

Element: TypeAlias = dict[str, Any]
"""Component name -> NumPy array, NumPy scalar, or bytes."""
Outputs: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Component name -> dtype, (dtype, shape of an element), or (dtype, shape, default). None in a shape is a
dimension that varies. A dict in the dict stands for a dict that the function returns, a list for a tuple.
"""


@checked_methods
class Functions:
    """The methods of Dataset that take Python functions. Their parameters:

    function: any callable; it is pickled by cloudpickle, and runs in host processes. If it has a parameter
        `rng`, that is a numpy.random.Generator whose numbers depend only on seed, epoch and element

    outputs: the components that the function returns, {name: dtype}, {name: (dtype, shape)} or
        {name: (dtype, shape, default)}, where the default stands for a None that the function returns; None:
        the function is called now, with the first element, to find them. A function may return dicts in a
        dict, and tuples: components are named by their path, "a.x" for `result["a"]["x"]` and "a.0" for
        `result["a"][0]`. They are declared alike: `{"a": {"x": dtype}}`, or `{"a": [dtype, dtype]}` for a
        tuple

    timeout_s: seconds for one call. A host process whose call takes longer is ended, and the call is made
        again

    host_memory: resident memory that a host process may use, in bytes or as "2G"; None: half of the machine's
        memory, divided by the machine's number of CPUs

    deterministic: False: the function gives different results for the same element, on purpose; results are
        not checked, and nothing after the function is cached

    version: identifies the function in states and caches, instead of a hash of its code, closure and globals.
        Change it whenever the function's results change

    concurrency: for a function that is `async def`: elements that a host process computes at the same time,
        1 to 4096; None: found by measuring, at most 256
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @classmethod
        def _make_function_source(cls, op: str, attributes: Mapping[str, Any]) -> Self: ...
        def _with_function(self, op: str, attributes: Mapping[str, Any]) -> Self: ...

    def map(
        self,
        function: Callable[..., Mapping[str, Any]],
        *,
        outputs: Outputs | None = None,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
        concurrency: int | None = None,
    ) -> Self:
        """The function may write to the arrays that it gets. Their memory is reused after the call: copy what
        you keep.
        """
        call = _Call("map", function, timeout_s, host_memory, deterministic, version, concurrency)
        return self._with_function(
            "map", {**call.attributes(), "outputs": call.outputs(outputs, self._infer(call))}
        )

    def filter(
        self,
        where: Any,
        *,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
        concurrency: int | None = None,
    ) -> Self:
        """where: a function, or an expression (`col("label") >= 0`, or its text). An expression runs in C and
        is far cheaper.
        """
        if not callable(where):
            return super().filter(where)  # type: ignore[misc,no-any-return]
        call = _Call("filter", where, timeout_s, host_memory, deterministic, version, concurrency)
        return self._with_function("filter_function", call.attributes())

    def flat_map(
        self,
        function: Callable[..., Iterable[Mapping[str, Any]]],
        *,
        outputs: Outputs | None = None,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
        concurrency: int | None = None,
    ) -> Self:
        """If `outputs` is not given, the first element for which the function returns at least one element
        determines the outputs.
        """
        call = _Call("flat_map", function, timeout_s, host_memory, deterministic, version, concurrency)
        return self._with_function(
            "flat_map", {**call.attributes(), "outputs": call.outputs(outputs, self._infer(call))}
        )

    def map_batches(
        self,
        function: Callable[..., Mapping[str, Any]],
        *,
        outputs: Outputs | None = None,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
    ) -> Self:
        """The function gets components of bytes as `cachew.Bytes`, and returns them as a list or as
        `cachew.Bytes`.
        """
        call = _Call("map_batches", function, timeout_s, host_memory, deterministic, version)
        return self._with_function(
            "map_batches", {**call.attributes(), "outputs": call.outputs(outputs, self._infer(call))}
        )

    @classmethod
    def iterable(
        cls,
        factory: Callable[[], Iterable[Mapping[str, Any]]] | Iterable[Mapping[str, Any]],
        *,
        outputs: Outputs | None = None,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
    ) -> Self:
        """factory: a function that returns an iterable, or an object that can be iterated over more than
        once.
        """
        if not callable(factory):
            if not isinstance(factory, Iterable):
                raise TypeError(
                    f"iterable() takes a function that returns an iterable, or an iterable, not "
                    f"a {type(factory).__name__}"
                )
            if iter(factory) is factory:
                raise TypeError(
                    f"iterable() got a {type(factory).__name__}, which can be iterated over only "
                    f"once: expected a function that makes a new one"
                )
            factory = _Again(factory)
        call = _Call("iterable", factory, timeout_s, host_memory, deterministic, version)

        def first() -> Any:
            return cls._make_function_source(
                "iterable", {**call.attributes(_FirstOfIterable(factory)), "outputs": _TYPES}
            )

        return cls._make_function_source(
            "iterable",
            {**call.attributes(), "outputs": call.outputs(outputs, lambda: _first_types(first(), call))},
        )

    @classmethod
    def sequence(
        cls,
        items: Sequence[Mapping[str, Any]],
        *,
        outputs: Outputs | None = None,
        timeout_s: float = 300,
        host_memory: int | str | None = None,
        deterministic: bool = True,
        version: str | None = None,
    ) -> Self:
        """A source whose elements are the items of a sequence of dicts: any object with len() and items[i],
        such as a PyTorch Dataset. The object is pickled, and each host process has a copy of it.
        """
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            raise TypeError(
                f"sequence() takes an object with len() and items[i], not a {type(items).__name__}"
            )
        numbers = cls._make_function_source("range", {"stop": len(items)})
        return numbers.map(
            _Item(items),
            outputs=outputs,
            timeout_s=timeout_s,
            host_memory=host_memory,
            deterministic=deterministic,
            version=version,
        )

    def _infer(self, call: _Call) -> Callable[[], dict[str, Any]]:
        """A callable that finds the outputs by running the function on the first element."""
        wrappers: dict[str, type[_First]] = {
            "map": _First,
            "flat_map": _FirstOfList,
            "map_batches": _FirstOfBatch,
        }
        return lambda: _first_types(
            self._with_function(
                "map_batches" if call.op == "map_batches" else "map",
                {**call.attributes(wrappers[call.op](call.function)), "outputs": _TYPES},
            ),
            call,
        )


MUCH_CAPTURED = 100_000_000
"""Bytes from which a warning says what a function captures."""


class _Call:
    """A user's function with the options of its operator, all checked."""

    def __init__(
        self,
        op: str,
        function: Any,
        timeout_s: float,
        host_memory: int | str | None,
        deterministic: bool,
        version: str | None,
        concurrency: int | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"{op}() takes a function, not a {type(function).__name__}")
        if version is not None and (not isinstance(version, str) or not version):
            raise PipelineError(f"{op}: version is {version!r}: expected a text that is not empty, or None")
        if not isinstance(deterministic, (bool, np.bool_)):
            raise PipelineError(f"{op}: deterministic is {deterministic!r}: expected True or False")
        if not isinstance(timeout_s, (int, float)) or not math.isfinite(timeout_s):
            raise PipelineError(f"{op}: timeout_s is {timeout_s!r}: expected a finite number of seconds")
        self.op, self.function, self.timeout_s, self.deterministic, self.version = (
            op,
            function,
            timeout_s,
            bool(deterministic),
            version,
        )
        self.host_memory = 0 if host_memory is None else byte_count("host_memory", host_memory)
        self.name = _name(function)
        self.rng = _takes_rng(function)
        self.asynchronous = _is_async(function)
        if concurrency is not None and not self.asynchronous:
            raise PipelineError(
                f"{op}: concurrency is {concurrency!r}, but {self.name} is not `async def`: leave it out "
                f"(functions that wait are called by more threads), or write an `async def`"
            )
        if concurrency is not None and (not isinstance(concurrency, int) or not 0 < concurrency <= 4096):
            raise PipelineError(f"{op}: concurrency is {concurrency!r}: expected 1 to 4096, or None")
        self.concurrency = concurrency or 0
        self._check_parameters()
        self._identify()

    def _check_parameters(self) -> None:
        """Checks that the function can be called with what it will get."""
        get = [] if self.op == "iterable" else [None]
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # builtins
            return
        try:
            signature.bind(*get, **{"rng": None} if self.rng else {})
        except TypeError:
            what = "no parameter" if not get else "one parameter, a dict of the components, and possibly rng"
            raise TypeError(f"{self.op}: {self.name} takes {signature}: expected {what}") from None

    def _unsendable(self, problem: object) -> PipelineError:
        return PipelineError(
            f"{self.op}: {self.name} can't be sent to the processes that run functions ({problem}): make "
            f"such an object in the function, or in a module that the function imports when it runs"
        )

    def _identify(self) -> None:
        # not at the top: importing these takes long, and most pipelines have no function
        from cachew._identity import Identity, Unidentified
        from cachew._places import gathered

        found = Identity(self.function)
        if self.version is None and found.problem is not None:
            self._pickle(self.function)  # no version= would help a function that can't be pickled
            what = (
                f"{found.problem}, which has no hash that is the same in every process"
                if isinstance(found.problem, Unidentified)
                else "too much to hash"
            )
            raise PipelineError(
                f"{self.op}: {self.name} refers to {what}: give version=, a text that you "
                f"change when the function changes"
            )
        self.identity = found.hash if self.version is None else self.version
        self.modules = (
            gathered(found.places, found.late, self.version is not None) if found.places or found.late else ""
        )

    def _pickle(self, function: Any) -> str:
        """The payload of a function."""
        # not at the top: importing these takes long
        import cloudpickle  # type: ignore[import-untyped]

        from cachew._payload import payload_of

        # multiprocessing loads the parent's __main__ as __mp_main__ in a spawned process; hosts can't import
        # it
        if "__mp_main__" in sys.modules:
            cloudpickle.register_pickle_by_value(sys.modules["__mp_main__"])
        try:
            return payload_of(function)
        except Exception as problem:
            raise self._unsendable(problem) from None

    def attributes(self, function: Any = None) -> dict[str, Any]:
        """The attributes as JSON. function, if given, is pickled instead of the user's function."""
        from cachew._payload import Payload  # not at the top: importing it takes long

        payload = self._pickle(self.function if function is None else function)
        if function is None and isinstance(payload, Payload) and payload.size > MUCH_CAPTURED:
            warnings.warn(
                f"{self.op}: {self.name} captures {shown_bytes(payload.size)} of data"
                f"{_captured(self.function)}, which is too much for a service: let the function read a file",
                stacklevel=4,
            )
        modules = {"modules": self.modules} if self.modules else {}
        effort = {
            "timeout_s": (self.timeout_s, 300),
            "host_memory": (self.host_memory, 0),
            "deterministic": (self.deterministic and function is None, True),
            "concurrency": (self.concurrency, 0),
        }
        return {
            "function": {
                "name": self.name,
                "identity": self.identity,
                "payload": payload,
                **modules,
                "path": [os.path.abspath(p) for p in sys.path if not p.endswith(".zip")],
                "rng": self.rng,
                **({"async": True} if self.asynchronous else {}),
            },
            **{name: value for name, (value, default) in effort.items() if value != default},
        }

    def outputs(self, given: Outputs | None, infer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if given is None:
            refuse_in_import()
            return infer()
        if not isinstance(given, (Mapping, list, tuple)):
            raise TypeError(
                f"{self.op}() takes outputs as a dict of dtypes or (dtype, shape), not a "
                f"{type(given).__name__}"
            )
        try:
            declared = flat(
                given,
                lambda _, v: isinstance(v, list) or (isinstance(v, Mapping) and "dtype" not in v),
            )
        except ValueError as problem:
            raise PipelineError(f"{self.op}: outputs: {problem}") from None
        return {name: _declared(self.op, name, value) for name, value in declared.items()}


def _declared(op: str, name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        value = value["dtype"], value.get("shape", ()), value.get("default")
    if not isinstance(value, tuple) or len(value) not in (2, 3):
        value = value, ()
    dtype, shape, default = (*value, None)[:3]
    if dtype is bytes:
        dtype = "bytes"
    if isinstance(default, bytes):
        default = default.decode(errors="surrogateescape")
    try:
        made = {"dtype": plain(dtype), "shape": None if shape is None else [plain(d) for d in shape]}
        if default is None:
            return made
        # JSON has no NaN
        made["default"] = "nan" if isinstance(default, float) and math.isnan(default) else plain(default)
        fits = _is_value(str(made["dtype"]), made["default"])
    except TypeError as problem:
        raise PipelineError(f"{op}: outputs: {name}: {problem}") from None
    if not fits:
        raise PipelineError(
            f"{op}: outputs: {name}: the default is {default!r}: expected a value of {made['dtype']}"
        )
    return made


def _is_value(dtype: str, value: Any) -> bool:
    """Whether a value of JSON can be one of the dtype; NaN is the text "nan"."""
    if dtype in ("bytes", "bool"):
        return isinstance(value, str if dtype == "bytes" else bool)
    if isinstance(value, bool):
        return False
    if "int" in dtype:
        return isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return value == "nan" or isinstance(value, (int, float))


def _name(function: Any) -> str:
    for candidate in (function, getattr(function, "func", None), getattr(function, "_named", None)):
        name = getattr(candidate, "__qualname__", None)
        if name:
            return str(name)
    return type(function).__qualname__


def _captured(function: Any) -> str:
    """The largest values that a function captures, for a message."""
    try:
        names = inspect.getclosurevars(function)
    except TypeError:  # another callable
        return ""
    values = {**names.globals, **names.nonlocals}
    sizes = {name: size for name, v in values.items() if isinstance(size := getattr(v, "nbytes", None), int)}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    return f" ({', '.join(f'{name}: {shown_bytes(sizes[name])}' for name in largest)})" if largest else ""


def _is_async(function: Any) -> bool:
    # of an object that can be called, its method is the function
    candidates = (function, type(function).__call__)
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in candidates)


def _takes_rng(function: Any) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins
        return False


# ---- finding the outputs by a first call ----

# Outputs of the wrappers below: each calls the user's function and returns the types of its result, as JSON.
_TYPES = {"types": {"dtype": "bytes"}}


def _first_types(ds: Any, call: _Call) -> dict[str, Any]:
    with ds.iterator(epochs=1, threads=1) as batches:
        for batch in batches:
            types = batch["types"]
            found: dict[str, Any] | None = json.loads(bytes(types[0] if isinstance(types, Bytes) else types))
            if found is not None:
                return found
    raise PipelineError(
        f"{call.op}: {call.name} gave no element to infer its outputs from: declare them, "
        f"outputs={{name: (dtype, shape)}}"
    )


def _types_of(value: Any, rows: int | None = None) -> str:
    if not hasattr(value, "keys") and not isinstance(value, tuple):
        raise TypeError(f"returned a {type(value).__name__}, expected a dict of components")
    # A tuple in a dict is one value: (224, 224) becomes an array.
    try:
        value = flat(value, lambda _, inner: hasattr(inner, "keys"))
    except ValueError as problem:
        raise TypeError(f"returned a dict in which {problem}") from None
    if not value.keys():
        raise TypeError("returned a dict without components, expected at least one")
    for name in value.keys():
        if not isinstance(name, str):
            raise TypeError(
                f"returned a component of the name {name!r}, a {type(name).__name__}: expected a text"
            )
        if not is_text(name) or not 0 < len(name.encode()) < 256:
            raise TypeError(
                f"returned a component of the name {name!r:.80}: expected a text of 1 to 255 bytes in UTF-8"
            )
    return json.dumps({name: _type_of(name, value[name], rows) for name in value.keys()})


def _type_of(name: str, value: Any, rows: int | None) -> dict[str, Any]:
    if isinstance(value, (bytes, bytearray, memoryview, str, Bytes)) or (
        rows is not None
        and isinstance(value, (list, tuple))
        and all(isinstance(v, (bytes, bytearray, memoryview, str)) for v in value)
    ):
        return {"dtype": "bytes", "shape": []}
    if value is None:
        raise TypeError(
            f'returned None as "{name}", whose type is then not known: declare outputs, with a default: '
            f'"{name}": (dtype, shape, default)'
        )
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f'returned a masked array as "{name}", and components have no masks: fill it, or '
            f"return the mask as a component of its own"
        )
    try:
        array = np.asarray(value)
    except Exception as problem:
        raise TypeError(
            f'returned a {type(value).__name__} as "{name}", which NumPy can\'t convert to an array '
            f"({type(problem).__name__}: {problem})"
        ) from None
    if (array.dtype.kind not in "biuf" or array.dtype.itemsize > 8) and array.dtype.name != "bfloat16":
        raise TypeError(
            f'returned "{name}" of dtype {array.dtype} ({type(value).__name__}), which components can\'t have'
        )
    if rows is not None and (array.ndim == 0 or array.shape[0] != rows):
        raise TypeError(f'returned "{name}" of shape {array.shape}, expected {rows} rows')
    if array.ndim > 6 + (rows is not None):
        raise TypeError(f'returned "{name}" of shape {array.shape}, expected at most 6 dimensions')
    return {"dtype": array.dtype.name, "shape": list(array.shape if rows is None else array.shape[1:])}


class _First:
    """Wraps a function of `map`: returns the types of its result."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, element: Element, **rng: Any) -> Any:
        result = self.function(element, **rng)
        return self._later(element, result) if _is_async(self.function) else self._types(element, result)

    async def _later(self, element: Element, result: Any) -> Element:
        if hasattr(result, "__aiter__"):
            return self._types(element, [value async for value in result])
        return self._types(element, await result)

    def _types(self, element: Element, result: Any) -> Element:
        return {"types": _types_of(result)}


class _FirstOfList(_First):  # flat_map
    def _types(self, element: Element, result: Any) -> Element:
        if result is None or hasattr(result, "keys"):
            raise TypeError(
                f"returned a {type(result).__name__}, expected a list of dicts, or a generator of them"
            )
        for value in result:
            return {"types": _types_of(value)}
        return {"types": "null"}


class _FirstOfBatch(_First):  # map_batches
    def _types(self, element: Element, result: Any) -> Element:
        rows = len(next(iter(element.values())))
        return {"types": [_types_of(result, rows)] * rows}


class _FirstOfIterable:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *_: Any, **__: Any) -> Any:
        for value in self.function():
            yield {"types": _types_of(value)}
            return


class _Item:
    """The function of `sequence`: returns the item of the sequence whose index is the component `value`."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self._named = type(items)

    def __call__(self, element: Element) -> Any:
        return self.items[int(element["value"])]


class _Again:
    """A factory for `iterable` that begins to iterate over the same object each time."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items
        self._named = type(items)

    def __call__(self) -> Iterator[Any]:
        return iter(self.items)
