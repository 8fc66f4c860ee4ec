"""Cachew for PyTorch: batches as tensors.

from cachew.torch import loader

train = loader(ds, seed=1, device="cuda")
for epoch in range(90):
    for batch in train:
        loss = f(model(batch["image"]), batch["label"])
"""

from __future__ import annotations

from typing import Any, Unpack

import torch

from cachew._batch import Batch
from cachew._calls import checked
from cachew._loader import Loader
from cachew._options import LoaderOptions, check_ranks, integer, truth, wrong
from cachew.dataset import Dataset

__all__ = ["TorchLoader", "loader"]


class TorchLoader(Loader[dict[str, Any]]):
    """Batches of a dataset as dicts of tensors, one epoch per `for` loop. The function `loader` makes a
    TorchLoader. Components of bytes stay `cachew.Bytes`.

    `state_dict()` and `load_state_dict()` work like those of torchdata's StatefulDataLoader. Lightning and
    Hugging Face's Trainer read the attributes `dataset`, `batch_size`, `num_workers`, `sampler` and so on.
    """

    num_workers = 0
    sampler = None
    batch_sampler = None
    collate_fn = None
    drop_last = False
    persistent_workers = False

    def __init__(
        self,
        dataset: Dataset,
        *,
        device: torch.device | None,
        pin_memory: bool,
        prefetch: int,
        rank: int | None,
        world_size: int | None,
        sharding: str | None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        self.device = device
        self.pin_memory = pin_memory
        self.prefetch_factor = prefetch
        super().__init__(
            dataset,
            _Converter(device, pin_memory),
            prefetch if device is not None or pin_memory else 0,
            lambda: _ranks(rank, world_size),
            sharding,
            **options,
        )

    def _hand_over(self, value: Any) -> dict[str, Any]:
        return _arrived(*value)


@checked
def loader(
    dataset: Dataset,
    *,
    device: str | torch.device | None = None,
    pin_memory: bool | None = None,
    prefetch: int = 2,
    rank: int | None = None,
    world_size: int | None = None,
    sharding: str | None = None,
    **options: Unpack[LoaderOptions],
) -> TorchLoader:
    """Batches of a dataset as dicts of tensors: each `for batch in loader` is the next epoch.

    On the CPU, tensors lie in the engine's memory, without a copy. With a device, a thread copies batches to
    pinned memory and then to the device, before the program requests them.

    seed: seed of all randomness (default: set by Dataset.defaults, else 0)

    device: device of the tensors (default: the CPU)

    pin_memory: copy batches to pinned memory (default: True with a CUDA device, else False)

    prefetch: number of batches that are copied to the device before the program requests them

    rank, world_size: the number of this process, from 0, and how many processes share each epoch (default:
        those of torch.distributed if it is initialised, else 0 and 1)

    threads, memory, timeout_s, index_dir, cache_dir, cache, cache_bytes: as for Dataset.iterator

    service: the service that computes the batches, with all other options of Dataset.distribute: job,
        transport, token, open_timeout_s, order, guarantee, sharding, tls_ca, tls_cert, tls_key, workers
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"loader() takes a cachew.Dataset, not a {type(dataset).__name__}")
    check_ranks(rank, world_size)
    target = _device(device)
    pin = (
        (target is not None and target.type == "cuda")
        if pin_memory is None
        else truth("pin_memory", pin_memory)
    )
    # torch before 2.6 can pin memory only for CUDA
    if pin and not getattr(torch, "accelerator", torch.cuda).is_available():
        raise wrong(
            "pin_memory", pin_memory, "False: torch finds no device on this machine that uses pinned memory"
        )
    return TorchLoader(
        dataset,
        device=target,
        pin_memory=pin,
        prefetch=integer("prefetch", prefetch, 1, 1024),
        rank=rank,
        world_size=world_size,
        sharding=sharding,
        **options,
    )


def _device(device: Any) -> torch.device | None:
    """The checked device; None: the CPU."""
    try:
        found = None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as problem:
        raise wrong(
            "device",
            device,
            f'None, a torch.device or its name, such as "cuda:1" ({str(problem).splitlines()[0]})',
        ) from None
    if found is not None and found.type == "cuda" and not torch.cuda.is_available():
        raise wrong("device", device, "another device: torch finds no CUDA on this machine")
    return None if found is not None and found.type == "cpu" else found


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (
        rank is None
        and world_size is None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return rank or 0, world_size or 1


def as_tensor(value: Any) -> Any:
    """A NumPy array as a tensor over the same memory; other values are returned as they are."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return value
    if dtype.name == "bfloat16":  # torch does not know the NumPy dtype of ml_dtypes
        return torch.from_numpy(value.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(value)


class _Converter:
    """Converts a batch to a dict of tensors, and starts their copies to a device. Only one thread uses it.

    Copies to a CUDA device run on a separate CUDA stream. A call returns the tensors and a CUDA event that
    occurs when the copies are done (None if there are none).
    """

    def __init__(self, device: torch.device | None, pin_memory: bool) -> None:
        self._device = device
        self._pin = pin_memory
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, batch: Batch) -> tuple[dict[str, Any], torch.cuda.Event | None]:
        if self._device is None or self._device.type != "cuda":
            return {name: self._move(as_tensor(value)) for name, value in batch.items()}, None
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            tensors = {name: self._move(as_tensor(value)) for name, value in batch.items()}
            return tensors, self._stream.record_event()

    def _move(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if self._pin:
            value = value.pin_memory()
        return value if self._device is None else value.to(self._device, non_blocking=self._pin)


def _arrived(tensors: dict[str, Any], event: torch.cuda.Event | None) -> dict[str, Any]:
    """Makes the user's current CUDA stream wait for the copies, and marks the tensors as used by that stream:
    torch then reuses their memory only after the work that the user queues there. event: as `_Converter`
    returns it.
    """
    if event is not None:
        for value in tensors.values():
            if isinstance(value, torch.Tensor):
                stream = torch.cuda.current_stream(value.device)
                stream.wait_event(event)
                value.record_stream(stream)
    return tensors
