# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how fast images become batches, stage by stage and against other ways to do it.

Start from `bench`. All rates are for the same files, which are in memory except for the stage
`read`. Every round runs each candidate once, so other load on the machine affects all of them.
"""

import collections
import functools
import io
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import PIL

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode, pixmap
from vit_jax.data.ops.augment import FlipLr, InceptionCrop
from vit_jax.data.splits import order
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import Tensor, plain, tf, untuned
from vit_jax.errors import BadInput

_STAGES = ("read", "decode", "augment", "transfer")
CHAIN = "decode|inception_crop({size})|flip_lr"
FAST = "decode|fast_inception_crop({size})|flip_lr"
_BATCH = 20
_MOST_BYTES = 2**28  # bytes of images that are kept decoded

_Step = Callable[[Tensor, Tensor], Any]  # (content, seed) -> image, or fields of an example
_Rates = tuple[float, float]  # images per second, and per second of processor time
_Run = Callable[[], _Rates]


def bench(
    split: Split, workers: int, *, chain: str = CHAIN, images: int = 200, rounds: int = 5,
    size: int = 224,
) -> dict[str, Any]:  # fmt: skip
    """Measures a training chain on the first images of a split.

    Args:
      split: image files; the other ways are measured only if all of them are JPEGs.
      workers: threads of every candidate.
      chain: ops that make images of one size. `fast` and the other ways are left out unless it is
        `CHAIN`, which they do.
      images: the largest number of images to use.
      rounds: number of rounds whose medians are taken, after one round of warm-up.
      size: size of the crops.

    Returns:
      The object that `vit_jax data bench --json` prints: `images`, `cores` (= workers), `ops` (the
      chain), `versions`; `images_per_sec_per_core`, by processor time, of the stages `read`,
      `decode` (whole images), `augment` (the chain on decoded images) and `transfer` (batches to
      the default device); `pipelines`: name -> images_per_sec (lowest, highest) and per core, of
      `ours` (the chain, decoding only the box of a crop), `one_core`, `fast` (`FAST`), `python`
      (the chain by `data.reader=python`, in processes), `bare` (only TensorFlow's ops, float32),
      `full` (the whole image decoded, then cropped), `pil`; `ratios`: of `ours` to each, medians
      over rounds; `ratios_per_core`: the same by processor time, which other work on the machine
      disturbs less; `rss_mib_by_epoch`: memory of this process after each of 3 epochs of `ours`;
      `notes`.

    Raises:
      BadInput: the source has no files, a file cannot be read or decoded, or the chain does not
        make images of one size.
    """
    shape = _shape(chain, size)
    files = _files(split, min(images, len(split)))
    runs = _stages(split, files, workers, size, chain, shape)
    runs |= _pipelines(files, workers, size, chain, shape)
    rates_of = _interleaved(runs, rounds)
    wall = {name: [rates[0] for rates in all_rates] for name, all_rates in rates_of.items()}
    core = {name: [rates[1] for rates in all_rates] for name, all_rates in rates_of.items()}
    names = [name for name in runs if name not in _STAGES]
    return {
        "images": len(files),
        "cores": workers,
        "ops": chain,
        "versions": _versions(),
        "images_per_sec_per_core": {name: _median(core[name]) for name in _STAGES},
        "pipelines": {
            name: {
                "images_per_sec": _median(wall[name]),
                "lowest": round(min(wall[name]), 1),
                "highest": round(max(wall[name]), 1),
                "images_per_sec_per_core": _median(core[name]),
            }
            for name in names
        },
        "ratios": {n: _ratio(wall["ours"], wall[n]) for n in names if n != "ours"},
        "ratios_per_core": {n: _ratio(core["ours"], core[n]) for n in names if n != "ours"},
        "rss_mib_by_epoch": _memory(files, workers, size, chain),
        "notes": _notes(chain, files),
    }


def _notes(chain: str, files: list[bytes]) -> list[str]:
    if chain != CHAIN:
        return [f"fast, bare, full, pil: left out, they do {CHAIN}"]
    return [] if _all_jpeg(files) else ["bare, full, pil: left out, not all files are JPEGs"]


def as_text(result: dict[str, Any]) -> str:
    """Formats the result of `bench` for people."""
    lines = [f"{result['images']} images, {result['cores']} threads, {result['ops']}"]
    lines += [
        f"{name:>10} {rate:10.1f} images/s per core"
        for name, rate in result["images_per_sec_per_core"].items()
    ]
    for name, rate in result["pipelines"].items():
        ratio = ""
        if name in result["ratios"]:
            by_core = result["ratios_per_core"][name]
            ratio = f"   ours is {result['ratios'][name]:.2f}x, {by_core:.2f}x by processor time"
        spread = f"({rate['lowest']:.1f} to {rate['highest']:.1f})"
        lines.append(f"{name:>10} {rate['images_per_sec']:10.1f} images/s {spread}{ratio}")
    memory = ", ".join(f"{mib:.0f}" for mib in result["rss_mib_by_epoch"])
    lines.append(f"memory after each epoch: {memory} MiB")
    return "\n".join(lines + result["notes"])


def _files(split: Split, count: int) -> list[bytes]:
    read, files = split.image_reader(), list[Any]()
    for index in range(count):
        try:
            files.append(read(index))
        except OSError as e:
            raise BadInput(
                f"{split.name(index)} cannot be read: {e.strerror or e}. Run `vit_jax data check` "
                "and remove what it names."
            ) from e
    if not isinstance(files[0], bytes):
        raise BadInput("the source holds pixels, not image files; there is nothing to decode.")
    for index, file in enumerate(files):
        try:
            decode.image(file, exif=False)
        except decode.BadImage as e:
            raise BadInput(
                f"{split.name(index)} cannot be decoded: {e}. Run `vit_jax data check` and remove "
                "the files that it names."
            ) from e
    return files


def _all_jpeg(files: list[bytes]) -> bool:
    shapes = [decode.jpeg_shape(tf.constant(f)) for f in files]
    return all(decode.is_jpeg(f, s, exif=False) for f, s in zip(files, shapes, strict=True))


def _ratio(ours: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, other, strict=True)), 3)


def _median(rates: list[float]) -> float:
    return round(statistics.median(rates), 1)


def _interleaved(runs: dict[str, _Run], rounds: int) -> dict[str, list[_Rates]]:
    """Returns the rates of each run in each round, without an extra first round of warm-up."""
    rates: dict[str, list[_Rates]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            rates[name].append(run())
    return {name: all_rounds[1:] for name, all_rounds in rates.items()}


def _dataset(count: int, example: Callable[[Tensor], Any], workers: int) -> Any:
    """Makes batches of example(k) for k from 0 to count - 1, as `Pipeline` does."""
    dataset = tf.data.Dataset.range(count)
    plain = tf.autograph.experimental.do_not_convert(example)
    dataset = dataset.map(plain, num_parallel_calls=workers)
    return untuned(dataset.batch(_BATCH).prefetch(2), workers)


def _timed(
    work: Callable[[], Any], count: int, others: Callable[[], float] = lambda: 0.0
) -> _Rates:
    """Returns the rates of some work; `others` gives the processor time of other processes."""
    wall, core = time.perf_counter(), time.process_time() + others()
    work()
    core = time.process_time() + others() - core
    return count / (time.perf_counter() - wall), count / core


def _rate(dataset: Any, count: int) -> _Rates:
    """Returns the rates for `count` images, after a first batch that completes the set-up."""
    batches = dataset.as_numpy_iterator()
    next(batches)
    return _timed(lambda: collections.deque(batches, maxlen=0), count)


def _process(chain: str, size: int) -> _Step:
    return preprocess.apply(preprocess.parse("--ops", chain, size))


def _fields(chain: str, size: int) -> _Step:
    """Returns the chain with all that it makes, such as the grid of naflex, as `python` makes."""
    chained = preprocess.apply_to_fields(preprocess.parse("--ops", chain, size))
    return lambda content, seed: chained({"image": content}, seed)


def _of_files(files: list[bytes], step: _Step, workers: int, epochs: int = 1) -> Any:
    """Applies `step` to files in memory, each with its own seed; yields one batch extra."""
    held = tf.constant(files)

    def example(k: Tensor) -> Tensor:
        return step(tf.gather(held, k % len(files)), order.example_seed(k, seed=0))

    return _dataset(len(files) * epochs + _BATCH, example, workers)


def _shape(chain: str, size: int) -> tuple[int, int, int]:
    """Returns the shape of the images that a chain makes.

    Raises:
      BadInput: it is not a chain, or its images differ in size.
    """
    ops, seed = preprocess.parse("--ops", chain, size), tf.zeros([2], tf.int64)
    if not isinstance(ops[0], decode.Decode):
        raise BadInput(
            f"--ops={chain} begins without decode, and the source has files; write decode|{chain}."
        )
    process, shapes = preprocess.apply(ops), set()
    for sides in ((480, 640), (640, 480)):
        image = tf.constant(pixmap.encoded(np.zeros([*sides, 3], np.uint8)))
        try:
            shapes.add(tuple(process(image, seed).shape))
        except tf.errors.OpError as e:
            raise BadInput(
                f"--ops={chain} fails for an image of 480 x 640 pixels: {plain(e)}."
            ) from None
    shape = shapes.pop()
    if shapes:
        raise BadInput(
            f"--ops={chain} does not make images of one size; end it with an op that does, such as "
            "resize({size})."
        )
    return shape


def _stages(
    split: Split, files: list[bytes], workers: int, size: int, chain: str,
    shape: tuple[int, int, int],
) -> dict[str, _Run]:  # fmt: skip
    count, read, process = len(files), split.reader(), _process(chain, size)
    decoded = list(_within(_MOST_BYTES, (decode.image(file, exif=False) for file in files)))
    held = tf.constant([image.tobytes() for image in decoded])
    shapes = tf.constant([image.shape for image in decoded])

    def augment(k: Tensor) -> Tensor:
        row = k % len(decoded)
        image = tf.reshape(tf.io.decode_raw(tf.gather(held, row), tf.uint8), shapes[row])
        image.set_shape([None, None, 3])
        return process(image, order.example_seed(k, seed=0))

    batch = np.zeros([_BATCH, *shape], np.uint8)

    def transfer() -> _Rates:
        steps = 1 + 2000 // _BATCH
        send = lambda: [jax.device_put(batch).block_until_ready() for _ in range(steps)]  # noqa: E731
        return _timed(send, steps * _BATCH)

    datasets = {
        "read": _dataset(count + _BATCH, lambda k: tf.strings.length(read(k % count)[0]), workers),
        "decode": _of_files(files, lambda c, _: tf.shape(decode.pixels(c, False)), workers),
        "augment": _dataset(count + _BATCH, augment, workers),
    }
    runs: dict[str, _Run] = {n: functools.partial(_rate, d, count) for n, d in datasets.items()}
    return runs | {"transfer": transfer}


def _within(most: int, images: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the first images, up to `most` bytes in total, but at least one."""
    total = 0
    for image in images:
        total += image.nbytes
        if total > most and total > image.nbytes:
            return
        yield image


def _pipelines(
    files: list[bytes], workers: int, size: int, chain: str, shape: tuple[int, int, int]
) -> dict[str, _Run]:
    count, ours = len(files), _fields(chain, size)
    datasets = {"ours": _of_files(files, ours, workers)}
    if workers > 1:
        datasets["one_core"] = _of_files(files, ours, 1)
    runs: dict[str, _Run] = {"python": _python(files, workers, size, chain, shape)}
    if chain == CHAIN:
        datasets["fast"] = _of_files(files, _process(FAST, size), workers)
    if chain == CHAIN and _all_jpeg(files):
        datasets["bare"] = _of_files(files, functools.partial(_bare, size), workers)
        datasets["full"] = _of_files(files, functools.partial(_full, size), workers)
        runs["pil"] = _pil(files, workers, size)
    return runs | {n: functools.partial(_rate, d, count) for n, d in datasets.items()}


def _python(
    files: list[bytes], workers: int, size: int, chain: str, shape: tuple[int, int, int]
) -> _Run:
    """Runs the chain by `data.reader=python` on the same files."""
    from vit_jax.data.python_reader import pool
    from vit_jax.data.python_reader.pipeline import PythonPipeline

    label = np.zeros(1, np.int32)
    table = Table(
        len(files), str, lambda: lambda row: (tf.gather(files, row), label),
        numpy_reader=lambda: lambda row: {"image": files[row], "labels": label},
    )  # fmt: skip
    ops = preprocess.parse("--ops", chain, size)
    sides = shape[0], shape[1]
    pipe = PythonPipeline(Split(table, range(len(files))), ops, _BATCH, 0, sides, workers, 2)
    pool.shared().end()  # it may have another number of processes

    def run() -> _Rates:
        steps = -(-len(files) // _BATCH)
        batches = pipe.train(0, 1 + steps)
        next(batches)
        used = pool.shared().processor_secs
        return _timed(lambda: collections.deque(batches, maxlen=0), steps * _BATCH, used)

    return run


def _box(size: int, shape: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the box that `CHAIN` draws; its crop is op number 1."""
    return InceptionCrop(size).box(shape, tf.random.experimental.stateless_fold_in(seed, 1))


def _bare(size: int, content: Tensor, seed: Tensor) -> Tensor:
    """Uses TensorFlow's ops as its documentation shows them; float32."""
    begin, extent = _box(size, tf.io.extract_jpeg_shape(content), seed)
    window = tf.concat([begin[:2], extent[:2]], axis=0)
    box = tf.io.decode_and_crop_jpeg(content, window, channels=3)
    return tf.image.random_flip_left_right(tf.image.resize(box, [size, size]))


def _full(size: int, content: Tensor, seed: Tensor) -> Tensor:
    """Decodes the whole image, then crops: `CHAIN` without the one-pass optimisation."""
    image = tf.io.decode_jpeg(content, channels=3)
    box = tf.slice(image, *_box(size, tf.shape(image), seed))
    own = tf.random.experimental.stateless_fold_in(seed, 2)
    return FlipLr()(InceptionCrop(size).resize(box), own)


def _pil(files: list[bytes], workers: int, size: int) -> _Run:
    """Runs Pillow in threads on the same boxes; its bilinear filter averages when shrinking."""
    from PIL import Image

    boxes = []
    for k, file in enumerate(files):
        seed = order.example_seed(tf.constant(k, tf.int64), seed=0)
        begin, extent = _box(size, tf.io.extract_jpeg_shape(file), seed)
        (top, left, _), (height, width, _) = begin.numpy(), extent.numpy()
        boxes.append((int(left), int(top), int(left + width), int(top + height)))

    def one(k: int) -> np.ndarray:
        picture = Image.open(io.BytesIO(files[k])).convert("RGB").crop(boxes[k])
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if k % 2 else picture
        return np.asarray(picture)

    def run() -> _Rates:
        with ThreadPoolExecutor(workers) as threads:

            def batches() -> None:
                images = list(threads.map(one, range(len(files))))
                for at in range(0, len(images), _BATCH):
                    np.stack(images[at : at + _BATCH])

            return _timed(batches, len(files))

    return run


def _memory(files: list[bytes], workers: int, size: int, chain: str) -> list[float]:
    """Returns the MiB that this process holds after each of 3 epochs."""
    mib = []
    steps = -(-len(files) // _BATCH)
    enough = 4 * _BATCH  # epochs; enough even for a single file
    batches = _of_files(files, _fields(chain, size), workers, enough).as_numpy_iterator()
    for _ in range(3):
        for _ in range(steps):
            next(batches)
        mib.append(round(_held_bytes() / 2**20, 1))
    return mib


def _held_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes, and only the peak


def _versions() -> dict[str, str]:
    libraries = {"tensorflow": tf, "jax": jax, "numpy": np, "pillow": PIL}
    versions = {name: library.__version__ for name, library in libraries.items()}
    return {"python": platform.python_version()} | versions
