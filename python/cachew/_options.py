"""Options of iterators: what people may write, checked, as the extension takes it."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

import numpy as np

from cachew._errors import OptionError, StateError
from cachew._values import bytes_of, is_text

State: TypeAlias = Mapping[str, Any]
Path: TypeAlias = str | os.PathLike[str]

ENDLESS = 2**63 - 1
TRANSPORTS = ("auto", "shm", "unix", "tcp")
ORDERS = ("exact", "any")
GUARANTEES = ("exactly-once", "at-most-once")


class Options(NamedTuple):
    """In the order of the extension; -1 and 0 stand for its defaults."""

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
    """The same, with a directory where elements are kept that pass a cache point; None: without."""
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
    """What `Dataset.distribute` and the loaders take for a service, beside its name. What each means is in
    the docstring of `distribute`.
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


class LoaderOptions(ServiceOptions, total=False):
    """What all loaders take, beside ranks: as `Dataset.iterator`, and a service."""

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
    """The same, with batches from a service; None: from this process."""
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
                    'a service too: HOST:PORT of its dispatcher, or "local"',
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
                name, path, "None with the service 'local', which is of this machine and this user alone"
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
        from cachew._service import local_address  # and what that takes, where it is wanted

        local_address(workers)
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
    )


FIXED_SHARDINGS = ("static", "file", "data", "file_or_data", "hint")
"""The tf.data service's policies by which workers have parts of the data that do not change."""


def with_sharding(options: Options, sharding: str | None) -> Options:
    """The same under one of the tf.data service's policies, in whatever capitals."""
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
            "; which worker computes what has no influence on what is delivered here, so that there is "
            "nothing "
            "to be static"
            if policy in FIXED_SHARDINGS
            else ""
        ),
    )


def wrong(option: str, value: object, expected: str) -> OptionError:
    """The error for an option that is no good."""
    error = OptionError(f"option {option} is {value!r}: expected {expected}")
    error.attribute, error.value, error.expected = option, str(value), expected
    return error


class _Shown(str):
    """What is said of a value that is not shown."""

    def __repr__(self) -> str:
        return str(self)


def integer(option: str, value: Any, low: int, high: int, expected: str | None = None) -> int:
    expected = expected or f"an integer from {low} to {high}"
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(option, value, expected) from None
    if isinstance(value, (bool, np.bool_)):  # an option that was given in another one's place
        raise wrong(option, value, expected)
    if not low <= number <= high:
        raise wrong(option, value, expected)
    return number


def truth(option: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise wrong(option, value, "True or False")
    return bool(value)


def check_ranks(rank: int | None, world_size: int | None) -> None:
    """What a loader is given of them; the other one is known when it runs."""
    most = 2**20 if world_size is None else integer("world_size", world_size, 1, 2**20)
    if rank is not None:
        _rank(rank, most)


def _rank(rank: int, world_size: int) -> int:
    return integer("rank", rank, 0, world_size - 1, f"an integer from 0, less than world_size, {world_size}")


def _directory(option: str, value: Path | None) -> Path | None:
    """Its name may be any bytes, as the system has them."""
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
    """Bytes, from a number or a text as "256M"."""
    expected = 'bytes, at least 1, as 268435456, "256M" or "1.5G"'
    number = bytes_of(value) if isinstance(value, str) else value
    if number is None:
        raise wrong(option, value, expected)
    return integer(option, number, 1, 2**62, expected)


def seconds(option: str, value: float | None) -> float:
    """A time limit as the extension takes it: -1 is none."""
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
    """A state as its JSON."""
    if isinstance(state, str) and not is_text(state):
        raise StateError(f"state is {state!r:.60}: expected what state_dict() gave, or its JSON")
    if state is None or isinstance(state, str):
        return state
    if not isinstance(state, Mapping):
        raise StateError(f"state is a {type(state).__name__}: expected what state_dict() gave, or its JSON")
    if "cachew" in state:
        raise StateError(
            "state is that of a loader: expected what state_dict() of an iterator gave, which "
            'is state["cachew"] here'
        )
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as problem:
        raise StateError(f"state is not what state_dict() gave: {problem}") from None
