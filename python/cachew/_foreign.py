"""Names that users of other libraries type, and what Cachew has in their place, for error messages."""

from __future__ import annotations

_ARRAYS = "batches have NumPy arrays; cachew.torch.loader(ds) and cachew.jax.loader(ds) give tensors"
_CORES = "leave it out: all cores are used; threads=n of iterator() or loader() limits them"
_AHEAD = "leave it out: batches are computed in advance, as many as memory= of iterator() or loader() allows"
_FILES = "write Dataset.files(patterns), or Dataset.text(), jsonl(), tfrecord() or tar() for files of records"

METHODS = {
    # tf.data
    "apply": "write function(ds)",
    "as_numpy_iterator": f"write ds.iterator(): {_ARRAYS}",
    "bucket_by_sequence_length": "write bucket_by_length(length, boundaries, sizes)",
    "cardinality": "write len(ds), or ds.n_batches(), which gives None if the number is not known",
    "concatenate": "write Dataset.concat([ds, other])",
    "element_spec": "write ds.schema",
    "from_generator": "write Dataset.iterable(function, outputs={name: dtype})",
    "from_tensor_slices": "write Dataset.arrays({name: array})",
    "from_tensors": "write Dataset.arrays({name: array}), with a first axis of length 1",
    "list_files": _FILES,
    "options": "leave it out: iterator() and loader() have the options",
    "padded_batch": "write batch(size, pad=...), or bucket_by_length(length, boundaries, sizes)",
    "prefetch": _AHEAD,
    "reduce": "write a loop: for batch in ds.iterator()",
    "sample_from_datasets": "write Dataset.mix([a, b], weights)",
    "with_options": "leave it out: iterator() and loader() have the options",
    # Hugging Face datasets, Ray Data, Grain, WebDataset
    "batch_map": "write map_batches(function)",
    "column_names": "write list(ds.schema)",
    "columns": "write list(ds.schema)",
    "compose": "write operators one after the other: ds.map(f).filter(g)",
    "decode": 'write decode_image("image")',
    "features": "write ds.schema",
    "from_dict": "write Dataset.arrays({name: array})",
    "from_list": "write Dataset.sequence(items)",
    "from_pandas": "write Dataset.arrow(pyarrow.Table.from_pandas(frame))",
    "iter_batches": "write ds.batch(n).iterator()",
    "iter_rows": "write ds.iterator(), without batch()",
    "read_parquet": "write Dataset.parquet(path)",
    "remove_columns": "write drop([name])",
    "rename_column": "write rename({old: new})",
    "rename_columns": "write rename({old: new})",
    "select_columns": "write select([name])",
    "set_format": _ARRAYS,
    "to_tf_dataset": "write tf.data.Dataset.from_generator(ds.iterator, ...)",
    "to_tuple": "batches are dicts: batch[name]",
    "train_test_split": "write ds.random_split([0.9, 0.1])",
    "with_format": _ARRAYS,
    # torch, and words of NumPy
    "as_numpy": _ARRAYS,
    "numpy": _ARRAYS,
    "to": 'write cachew.torch.loader(ds, device="cuda")',
}
ARGUMENTS = {
    "batch_size": "write batch(n)",
    "batched": "write map_batches(), after batch()",
    "collate_fn": "write map_batches(function) after batch(); batch(pad=...) pads lengths that differ",
    "cycle_length": _CORES,
    "drop_last": "write batch(n, drop_remainder=True)",
    "generator": "write seed=",
    "multiprocessing_context": "leave it out: functions run in processes of their own",
    "num_parallel_calls": _CORES,
    "num_parallel_reads": _CORES,
    "num_proc": _CORES,
    "num_workers": _CORES,
    "output_signature": "write outputs={name: (dtype, shape)}",
    "output_types": "write outputs={name: dtype}",
    "persistent_workers": "leave it out: the processes that run functions are kept",
    "prefetch_factor": _AHEAD,
    "remove_columns": "leave it out: a function's result replaces the element",
    "reshuffle_each_iteration": "write reshuffle=",
    "sampler": "write shuffle(), take(), skip() or filter() on the dataset",
    "shuffle": "write ds.shuffle()",
    "worker_init_fn": "leave it out: a function can do this at its first call",
}


def method(name: str) -> str:
    """The end of a message about a method that does not exist; "": not known from another library."""
    return f": {METHODS[name]}" if name in METHODS else ""


def argument(name: str) -> str:
    """The end of a message about an argument that does not exist; "": not known from another library."""
    return f": {ARGUMENTS[name]}" if name in ARGUMENTS else ""
