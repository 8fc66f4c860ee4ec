"""Cachew: input pipelines for machine learning. A `Dataset` describes a pipeline, from a source of records to
batches; iterating over it runs it.

import cachew
from cachew import col

ds = (cachew.Dataset.tfrecord("train-*.tfrecord")
      .parse_example({"image": "bytes", "label": "int64"})
      .decode_image("image")
      .random_resized_crop("image", size=(224, 224))
      .filter(col("label") >= 0)
      .shuffle()
      .batch(256))
for batch in ds:
    batch["image"], batch["label"]  # NumPy arrays
"""

import os as _os
import sys as _sys

from cachew import _core
from cachew._batch import Batch, Bytes
from cachew._debug import debug
from cachew._errors import (
    DataError,
    DeadlineError,
    Error,
    FailedElement,
    InternalError,
    MemoryBudgetError,
    OptionError,
    OutOfMemoryError,
    PipelineError,
    RecordError,
    ServiceError,
    StateError,
    StorageError,
    UsageError,
)
from cachew._host_tree import nest
from cachew._iterator import DatasetIterator
from cachew._methods import load_plugin
from cachew.dataset import Dataset, Field
from cachew.expr import Expr, col, where

__version__ = _core.version()
if _sys.executable:
    _core.set_python(_sys.executable, _os.path.join(_os.path.dirname(__file__), "_host.py"))

__all__ = [
    "Batch",
    "Bytes",
    "DataError",
    "Dataset",
    "DatasetIterator",
    "DeadlineError",
    "Error",
    "Expr",
    "FailedElement",
    "Field",
    "InternalError",
    "MemoryBudgetError",
    "OptionError",
    "OutOfMemoryError",
    "PipelineError",
    "RecordError",
    "ServiceError",
    "StateError",
    "StorageError",
    "UsageError",
    "col",
    "debug",
    "load_plugin",
    "nest",
    "where",
]
