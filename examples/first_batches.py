"""Photographs as NumPy batches, augmented and shuffled. After `./demo`:

python examples/first_batches.py build/photos
"""

import sys

import cachew
from cachew import Dataset, col


def photographs(directory: str) -> Dataset:
    return (
        Dataset.tfrecord(f"{directory}/photos-*.tfrecord")
        .parse_example({"image": "bytes", "label": "int64"})
        .decode_image("image")
        .random_resized_crop("image", size=(224, 224))
        .random_flip("image")
        .filter(col("label") >= 0)
        .assign(bright=(col("image").max() > 250) & (col("image").min() < 5))
        .shuffle()
        .batch(128, drop_remainder=True)
    )


def main() -> None:
    ds = photographs(sys.argv[1] if len(sys.argv) > 1 else "build/photos")
    print(ds)
    for name, field in ds.schema.items():
        print(f"{name}: {field.dtype} {field.shape}")
    try:
        with ds.iterator(seed=1, epochs=2) as batches:
            for batch in batches:
                print(
                    batch,
                    f"{batch['image'].mean():.1f}, {batch['bright'].mean():.0%} with bright and dark spots",
                )
    except cachew.Error as error:
        sys.exit(f"{error} (kind {error.kind}, file {error.file})")


if __name__ == "__main__":
    main()
