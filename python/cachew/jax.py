"""Cachew for JAX: batches as arrays, sharded over devices.

from cachew.jax import loader

train = loader(ds, seed=1)
for epoch in range(90):
    for batch in train:
        state = train_step(state, batch["image"], batch["label"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from cachew._batch import Batch
from cachew._calls import checked
from cachew._loader import Loader
from cachew._options import LoaderOptions, check_ranks, integer, wrong
from cachew.dataset import Dataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["JaxLoader", "loader"]


class JaxLoader(Loader[dict[str, Any]]):
    """Batches of a dataset as dicts of JAX arrays, one epoch per `for` loop. The function `loader` makes a
    JaxLoader. Components of bytes stay `cachew.Bytes`.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        sharding: Sharding | str | None,
        prefetch: int,
        rank: int | None,
        world_size: int | None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        policy = sharding if isinstance(sharding, str) else None
        self.sharding = _local() if sharding is None or isinstance(sharding, str) else sharding
        ranks = (
            jax.process_index() if rank is None else rank,
            jax.process_count() if world_size is None else world_size,
        )
        # Loader calls a function for the ranks, because those of torch are known only when the loader runs
        super().__init__(
            dataset, _Converter(self.sharding, dataset.batch_size), prefetch, lambda: ranks, policy, **options
        )


@checked
def loader(
    dataset: Dataset,
    *,
    sharding: Sharding | str | None = None,
    prefetch: int = 2,
    rank: int | None = None,
    world_size: int | None = None,
    **options: Unpack[LoaderOptions],
) -> JaxLoader:
    """Batches of a dataset as dicts of JAX arrays: each `for batch in loader` is the next epoch.

    A thread starts the copies to the devices before the program requests the batches.

    sharding: the sharding of the arrays (default: the first axis is divided among this process's devices; the
        batch size must be a multiple of their number). With a sharding over the devices of several processes,
        each array is a global array that consists of the arrays of all these processes. A text ("dynamic" or
        "off") is not a JAX sharding but the argument `sharding` of Dataset.distribute; the arrays then have
        the default sharding

    seed: seed of all randomness (default: set by Dataset.defaults, else 0)

    prefetch: number of batches that are copied to the devices before the program requests them

    rank, world_size: the number of this process, from 0, and how many processes share each epoch (default:
        jax.process_index() and jax.process_count())

    threads, memory, timeout_s, index_dir, cache_dir, cache, cache_bytes: as for Dataset.iterator

    service: the service that computes the batches, with all other options of Dataset.distribute: job,
        transport, token, open_timeout_s, order, guarantee, tls_ca, tls_cert, tls_key, workers,
        cut, local_workers
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"loader() takes a cachew.Dataset, not a {type(dataset).__name__}")
    if sharding is not None and not isinstance(sharding, (str, Sharding)):
        raise wrong("sharding", sharding, 'a jax.sharding.Sharding, or, with a service, "dynamic" or "off"')
    check_ranks(rank, world_size)
    return JaxLoader(
        dataset,
        sharding=sharding,
        prefetch=integer("prefetch", prefetch, 1, 1024),
        rank=rank,
        world_size=world_size,
        **options,
    )


def _local() -> Sharding:
    """The default sharding: divides the first axis among the devices of this process."""
    spec = PartitionSpec("batch")  # type: ignore[no-untyped-call]
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("batch",)), spec)


class _Converter:
    """Converts a batch to a dict of JAX arrays, and starts their copies to the devices."""

    def __init__(self, sharding: Sharding, batch_size: int | None) -> None:
        self._sharding = sharding
        self._batch_size = batch_size

    def __call__(self, batch: Batch) -> dict[str, Any]:
        return {
            name: self._put(name, value) if isinstance(value, np.ndarray) else value
            for name, value in batch.items()
        }

    def _put(self, name: str, value: Any) -> Any:
        if self._sharding.is_fully_addressable:
            try:
                self._sharding.shard_shape(value.shape)
            except ValueError as problem:
                expected = (
                    f"a multiple of {len(self._sharding.device_set)}, and drop_remainder=True if "
                    f"the last batch is short; or another sharding"
                )
                raise wrong("batch_size", len(value), expected + f" ({name}: {problem})") from None
            return jax.device_put(value, self._sharding)
        if self._batch_size is not None and len(value) != self._batch_size:  # JAX would wait without end
            raise wrong(
                "batch_size",
                len(value),
                f"{self._batch_size}, because a global array needs batches of the same size from all "
                f"processes; drop_remainder=True leaves out the last, short batch",
            )
        return jax.make_array_from_process_local_data(self._sharding, value)  # type: ignore[no-untyped-call]
