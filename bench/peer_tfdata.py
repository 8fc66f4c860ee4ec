"""tf.data as its guide advises: parallel interleave, fused decode and crop, AUTOTUNE everywhere, no
fixed order.
"""

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf  # noqa: E402
from common import RATIO, SCALE, SIZE, Meter, arguments, drain  # noqa: E402

AUTOTUNE = tf.data.AUTOTUNE
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def crop_window(shape):
    """
    torchvision's RandomResizedCrop, all ten tries at once. tf.image.sample_distorted_bounding_box would draw
    the side and not the area evenly: its crops are a tenth smaller, less to decode than the others have.
    """
    height, width = tf.cast(shape[0], tf.float32), tf.cast(shape[1], tf.float32)
    draws = tf.random.uniform([2, 10])
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * draws[0])
    ratio = tf.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * draws[1])
    sizes = tf.round(tf.sqrt(tf.stack([area / ratio, area * ratio])))
    fits = (sizes[0] <= height) & (sizes[1] <= width)
    first = tf.argmax(fits)
    size = tf.where(fits[first], sizes[:, first], tf.stack([height, width]))
    begin = tf.floor(tf.random.uniform([2]) * (tf.stack([height, width]) - size + 1))
    return tf.cast(tf.concat([begin, size], 0), tf.int32)


def load(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = example["image"]
    window = crop_window(tf.image.extract_jpeg_shape(image))
    pixels = tf.image.decode_and_crop_jpeg(image, window, channels=3)
    pixels = tf.image.resize(pixels, [SIZE, SIZE], method="bilinear", antialias=False)
    pixels = tf.image.random_flip_left_right(tf.cast(pixels + 0.5, tf.uint8))
    return pixels, example["label"]


def main():
    args = arguments(__doc__)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = args.threads
    options.threading.max_intra_op_parallelism = 1
    dataset = tf.data.Dataset.from_tensor_slices(args.files).shuffle(len(args.files))
    dataset = dataset.interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=1 << 20),
        cycle_length=4,
        num_parallel_calls=AUTOTUNE,
        deterministic=False,
    )
    dataset = dataset.shuffle(1024).repeat(args.epochs)
    dataset = dataset.map(load, num_parallel_calls=AUTOTUNE, deterministic=False)
    dataset = dataset.batch(args.batch).prefetch(AUTOTUNE).with_options(options)
    drain(Meter("tf.data"), dataset, args.batches, lambda batch: batch[0].shape[0])


if __name__ == "__main__":
    main()
