"""Options of iterators and loaders: checks what users give, and converts it to the form that the extension
module takes.
"""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

import numpy as np

from cachew._errors import OptionError, StateError
from cachew._values import bytes_of, is_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

State: TypeAlias = Mapping[str, Any]
Path: TypeAlias = str | os.PathLike[str]

ENDLESS = 2**63 - 1
TRANSPORTS = ("auto", "shm", "unix", "tcp")
ORDERS = ("exact", "any")
GUARANTEES = ("exactly-once", "at-most-once")


class Options(NamedTuple):
    """The options of an iterator, in the order in which the extension module reads them (python/src/wait.c).
    -1, 0 and None are the library's defaults; struct cachew_options describes each field.
    """

    seed: int = -1
    epochs: int = -1
    first_epoch: int = 0
    threads: int = 0
    memory: int = 0
    rank: int = 0
    world_size: int = 1
    optimize: bool = True
    state: str | None = None
    index_dir: Path | None = None
    service: str | None = None
    job: str | None = None
    token: str | None = None
    transport: str | None = None
    open_timeout_s: float = 0.0
    order: str | None = None
    guarantee: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    cache_dir: Path | None = None
    cache: str | None = None
    cache_bytes: int = 0
    cut: str | None = None


def make_options(
    *,
    seed: int | None = None,
    epochs: float | None = None,
    first_epoch: int = 0,
    threads: int | None = None,
    memory: int | str | None = None,
    rank: int = 0,
    world_size: int = 1,
    optimize: bool = True,
    state: State | str | None = None,
    index_dir: Path | None = None,
) -> Options:
    world_size = integer("world_size", world_size, 1, 2**20)
    return Options(
        -1 if seed is None else integer("seed", seed, 0, 2**63 - 1),
        _epochs(epochs),
        integer("first_epoch", first_epoch, 0, ENDLESS),
        0 if threads is None else integer("threads", threads, 1, 1024),
        0 if memory is None else byte_count("memory", memory),
        _rank(rank, world_size),
        world_size,
        truth("optimize", optimize),
        state_text(state),
        _directory("index_dir", index_dir),
    )


def with_cache(
    options: Options, cache_dir: Path | None, cache: str | int | None, cache_bytes: int | str | None
) -> Options:
    """The options with a cache directory. cache: "auto", "off" or the number of a cache point (an operator
    `cache` or `autocache`). None leaves a default.
    """
    if cache is None or (isinstance(cache, str) and cache in ("auto", "off")):
        where = cache
    else:
        number = int(cache) if isinstance(cache, str) and cache.isdecimal() else cache
        where = str(
            integer("cache", number, 0, 4096, '"auto", "off", or the number of a cache point, from 0 to 4096')
        )
    size = 0 if cache_bytes is None else byte_count("cache_bytes", cache_bytes)
    return options._replace(cache_dir=_directory("cache_dir", cache_dir), cache=where, cache_bytes=size)


class ServiceOptions(TypedDict, total=False):
    """Keywords of `Dataset.distribute` and of the loaders that apply only with a service, except its address.
    The docstring of `distribute` describes them.
    """

    job: str | None
    transport: str | None
    token: str | None
    open_timeout_s: float | None
    order: str | None
    guarantee: str | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    workers: int | None
    cut: str | int | None
    local_workers: int | str | None


class LoaderOptions(ServiceOptions, total=False):
    """Keywords of all loaders, except rank and world_size: those of `Dataset.iterator`, and those of a
    service.
    """

    seed: int | None
    threads: int | None
    memory: int | str | None
    timeout_s: float | None
    index_dir: Path | None
    cache_dir: Path | None
    cache: str | int | None
    cache_bytes: int | str | None
    service: str | None


def with_service(options: Options, service: str | None, **given: Unpack[ServiceOptions]) -> Options:
    """The options with a service that computes the batches; service None: this process does, and none of the
    other keywords may be given.
    """
    for name, choices in (("transport", TRANSPORTS), ("order", ORDERS), ("guarantee", GUARANTEES)):
        value = given.get(name)
        if value is not None and value not in choices:
            raise wrong(name, value, " or ".join(f'"{c}"' for c in choices))
    if service is None:
        for name, option in given.items():
            if option is not None:
                raise wrong(
                    name,
                    "..." if name == "token" else option,
                    'a service too (service="HOST:PORT" of its dispatcher, or "local")',
                )
        return options
    tls = {
        "tls_ca": _path("tls_ca", given.get("tls_ca")),
        "tls_cert": _path("tls_cert", given.get("tls_cert")),
        "tls_key": _path("tls_key", given.get("tls_key")),
    }
    for name, path in tls.items():
        if path is not None and service == "local":
            raise wrong(
                name, path, "None with the service 'local', which only this user on this machine can reach"
            )
    for name, text in (("service", service), ("job", given.get("job")), ("token", given.get("token"))):
        if text is not None and (not isinstance(text, str) or not text or not is_text(text)):
            shown = (
                _Shown(f"a {type(text).__name__}" if not isinstance(text, str) else "empty, or has a NUL")
                if name == "token"
                else text
            )
            # messages reach logs, so a token is not shown
            raise wrong(name, shown, "a text, not empty, without NUL")
    workers = given.get("workers")
    if workers is not None and service != "local":
        raise wrong(
            "workers", workers, f'None with the service {service!r}: workers are started by "local" only'
        )
    if workers is not None:
        from cachew._service import local_address  # only here: its imports take time

        local_address(workers)
    local = given.get("local_workers")
    if local is not None and service == "local":
        raise wrong(
            "local_workers", local, 'None with the service "local", whose workers are local: workers='
        )
    if local is not None:
        from cachew._service import start_local_workers

        start_local_workers(service, local, (given.get("token") or "").strip() or None, tls)
    cut = given.get("cut")
    if cut is not None and (not isinstance(cut, str) or not cut or not is_text(cut)):
        cut = str(
            integer("cut", cut, 0, 4096, '"auto", "worker", "client", or an operator\'s number or name')
        )
    return options._replace(
        service=service,
        job=given.get("job"),
        token=(given.get("token") or "").strip() or None,
        transport=given.get("transport") or "auto",
        open_timeout_s=(seconds("open_timeout_s", given["open_timeout_s"]) or 1e-3)
        if "open_timeout_s" in given
        else 0.0,
        order=given.get("order"),
        guarantee=given.get("guarantee"),
        tls_ca=tls["tls_ca"],
        tls_cert=tls["tls_cert"],
        tls_key=tls["tls_key"],
        cut=cut,
    )


FIXED_SHARDINGS = ("static", "file", "data", "file_or_data", "hint")
"""The tf.data service's policies that assign each worker a fixed part of the data."""


def with_sharding(options: Options, sharding: str | None) -> Options:
    """The options with a sharding policy of the tf.data service, in upper or lower case."""
    policy = sharding.lower() if isinstance(sharding, str) else sharding
    if policy is None or policy == "dynamic":
        return options
    if policy == "off":
        job = (
            options.job if options.job is None or options.world_size == 1 else f"{options.job}/{options.rank}"
        )
        return options._replace(job=job, rank=0, world_size=1)
    raise wrong(
        "sharding",
        sharding,
        '"dynamic" or "off"'
        + (
            "; which worker reads which data has no influence on the batches, so there is no static sharding"
            if policy in FIXED_SHARDINGS
            else ""
        ),
    )


def wrong(option: str, value: object, expected: str) -> OptionError:
    """The error for an option with a wrong value. expected: the end of the sentence "expected ..."."""
    error = OptionError(f"option {option} is {value!r}: expected {expected}")
    error.attribute, error.value, error.expected = option, str(value), expected
    return error


class _Shown(str):
    """A description that replaces a secret value in an error message; its repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)


def integer(option: str, value: Any, low: int, high: int, expected: str | None = None) -> int:
    expected = expected or f"an integer from {low} to {high}"
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(option, value, expected) from None
    if isinstance(value, (bool, np.bool_)):  # likely meant for another option
        raise wrong(option, value, expected)
    if not low <= number <= high:
        raise wrong(option, value, expected)
    return number


def truth(option: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise wrong(option, value, "True or False")
    return bool(value)


def check_ranks(rank: int | None, world_size: int | None) -> None:
    """Checks the ranks that a loader was given. None: not given; the value is known only when the loader
    runs.
    """
    most = 2**20 if world_size is None else integer("world_size", world_size, 1, 2**20)
    if rank is not None:
        _rank(rank, most)


def _rank(rank: int, world_size: int) -> int:
    return integer("rank", rank, 0, world_size - 1, f"an integer from 0, less than world_size, {world_size}")


def _directory(option: str, value: Path | None) -> Path | None:
    """The checked path of a directory. It need not be UTF-8."""
    if value is None:
        return None
    try:
        name = os.fsencode(value)
    except (TypeError, ValueError):
        name = b""
    if not name or b"\0" in name:
        raise wrong(option, value, "the path of a directory")
    return value


def _path(option: str, value: Path | None) -> str | None:
    if value is None:
        return None
    try:
        text = os.fspath(value)
        text.encode()
    except (TypeError, ValueError, AttributeError):
        text = ""
    if not text or "\0" in text:
        raise wrong(option, value, "the path of a file")
    return text


def _epochs(epochs: float | None) -> int:
    if epochs is None:
        return -1
    if isinstance(epochs, float) and epochs == math.inf:
        return ENDLESS
    return integer("epochs", epochs, 0, ENDLESS, f"an integer from 0 to {ENDLESS}, or math.inf for no end")


def byte_count(option: str, value: int | str) -> int:
    """A number of bytes, from a number or a text such as "256M"."""
    expected = 'bytes, at least 1, such as 268435456, "256M" or "1.5G"'
    number = bytes_of(value) if isinstance(value, str) else value
    if number is None:
        raise wrong(option, value, expected)
    return integer(option, number, 1, 2**62, expected)


def seconds(option: str, value: float | None) -> float:
    """A time limit in seconds, as the extension module takes it; -1: no limit."""
    expected = "seconds, at least 0, or None for no limit"
    if value is None:
        return -1.0
    try:
        number = math.nan if isinstance(value, (str, bytes, bool, np.bool_)) else float(value)
    except (TypeError, ValueError):
        raise wrong(option, value, expected) from None
    if not number >= 0:
        raise wrong(option, value, expected)
    return min(number, 1e9)


def state_text(state: State | str | None) -> str | None:
    """The JSON of a state; None: no state. Raises StateError for a value that can't be a state."""
    if isinstance(state, str) and not is_text(state):
        raise StateError(f"state is {state!r:.60}: expected what state_dict() gave, or its JSON")
    if state is None or isinstance(state, str):
        return state
    if not isinstance(state, Mapping):
        raise StateError(f"state is a {type(state).__name__}: expected what state_dict() gave, or its JSON")
    if "cachew" in state:
        raise StateError(
            'state is that of a loader: expected what state_dict() of an iterator gave, here state["cachew"]'
        )
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as problem:
        raise StateError(f"state is not what state_dict() gave: {problem}") from None
