# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens sources of examples, which are all written as `kind:rest`.

    tfds:NAME          a TensorFlow Datasets name, e.g. tfds:cifar10 or tfds:mnist:3.0.1; with boxes
                       or masks, see docs/detection.md and docs/segmentation.md
    folder:PATH        class folders, or train/ and test/ (and val/) that contain class folders; or
                       images without labels in PATH, or in PATH/train and PATH/test
    csv:FILE           rows of path,label[,split]; paths are relative to the file; with a header
                       also a column text, with or without label
    records:GLOB       TFRecord files of tf.train.Example, or their folder; splits by name, as in
                       x-train-00000-of-00064.tfrecord; class names in labels.txt beside them; the
                       keys of data.records name the features
    tar:GLOB           uncompressed tar files, or their folder: WebDataset shards (x.jpg with x.cls,
                       x.json or x.txt), class folders, or a tar a class; splits by name or folder
    vtab:TASK[/full]   a task of VTAB, e.g. vtab:eurosat: 1,000 training examples, or all
    mix:3*A,1*B        3 of every 4 training images from A and 1 from B, sources of other kinds;
                       classes of the same name are merged, val and test hold those of all sources
    synthetic:NAME     noise in the size of a dataset of the recipes, e.g. jft300m or vtab/eurosat
    objectnet:PATH     a test set: the 113 classes of ObjectNet that ImageNet has too
    masks:PATH         images and masks that give the class of each pixel, see docs/segmentation.md
    coco:FILE          a COCO file of instances, such as annotations/instances_train2017.json, or
                       its folder: images with boxes, see docs/detection.md
    voc:PATH           Pascal VOC: the masks, with JPEGImages, SegmentationClass and ImageSets; the
                       boxes by PATH/ImageSets/Main, or where there are no masks
    yolo:FILE          a YAML file of YOLO with names, train and val, or its folder
    python:M:F(k=v)    a function of the user's own package, see docs/extending_data.md
    digits             the handwritten digits of scikit-learn, 1,797 images of 8 x 8

PATH, FILE and GLOB may begin with ~; for folder, csv, records and tar also with gs://BUCKET/. Quote
a GLOB in a shell, e.g. "records:/data/x-*".
Start from `open_source`.
"""

import difflib
import glob
import os
import re
import shlex
from urllib.parse import unquote

from vit_jax.config.plugins import resolve
from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits import split as splits_lib
from vit_jax.errors import BadInput, unknown
from vit_jax.storage import files as storage

IN_BUCKETS = ("folder", "csv", "records", "tar")
IN_DATA_DIR = ("vtab", "objectnet")  # these kinds take data_dir alone


_ENDINGS = {  # kind -> pattern of its file extensions
    "csv": r"\.csv",
    "tar": r"\.(tar|tar\.gz|tgz)",
    "records": r"\.(tfrecords?|tfrec)(\.gz)?|-of-\d+",
}


def kind_of_path(text: str) -> str:
    """Returns the kind of source that reads a path; "" if the text does not look like a path."""
    there = os.path.expanduser(text)
    if re.match(r"\w+:(?!//)", text) and not os.path.exists(there):  # a misspelt kind
        return ""
    for kind, ending in _ENDINGS.items():
        if re.search(f"({ending})$", text, re.IGNORECASE):
            return kind
    is_path = re.match(r"gs://|[/~]|\.\.?(/|$)", text) or os.path.isdir(there)
    return "folder" if is_path else ""


def unknown_kind(key: str, spec: str) -> BadInput:
    """Returns the error for a source without a known kind.

    Args:
      key: the configuration key or the argument that holds the source.
      spec: the source as given.
    """
    usages = [usage for usage, _ in KINDS.values()]
    if not spec:
        return BadInput(f"{key} is not set; give one of: {', '.join(usages)}.")
    if _is_image(spec):
        return BadInput(
            f"{key}={spec!r} is one image; give folder:PATH, a folder with a folder of images for "
            "each class (`vit_jax predict` takes images as they are)."
        )
    from vit_jax.config import synonyms

    hint = _tfds_hint(synonyms.hint("data.source", spec)) or _near_kind(spec)
    path = unquote(spec.removeprefix("file://")) if spec.startswith("file:///") else spec
    kind = kind_of_path(path)
    if not (kind or hint or ":" in spec) and "/" in spec:
        kind = "folder"
    if kind:
        there = os.path.expanduser(path)
        is_pattern = storage.is_remote(path) or glob.has_magic(path)
        gone = "" if is_pattern or os.path.exists(there) else f" But {path} does not exist."
        return BadInput(
            f"{key}={spec!r} is a path without a kind; did you mean "
            f"{shlex.quote(f'{kind}:{path}')}?{gone} Known kinds: {', '.join(usages)}."
        )
    return unknown(key, spec, usages, hint)


def _tfds_hint(hint: str) -> str:
    """Returns a hint; one that names a dataset which TFDS does not list offers folder: too."""
    from vit_jax.data.catalog import prepared

    match = re.search(r"tfds:(\w+)", hint)
    if match is None or prepared.is_listed(match[1]):
        return hint
    return (
        f" Datasets of that library are not read. If TensorFlow Datasets has it, write {match[0]}; "
        "otherwise save its images in class folders and write folder:PATH."
    )


def may_be_path(text: str) -> bool:
    """Returns True if a text without a kind looks like a path, not like a dataset name."""
    return bool(kind_of_path(text)) or _is_image(text) or text.count("/") > 1


def _is_image(text: str) -> bool:
    from vit_jax.data.ops.decode import EXTENSIONS

    path = text.removeprefix("file://")
    is_name = re.match(r"\w+:", path) or os.path.isdir(os.path.expanduser(path))
    return path.lower().endswith(EXTENSIONS) and not is_name


def _near_kind(spec: str) -> str:
    """Returns a hint for a misspelt kind, or one followed by / instead of a colon; "" for none."""
    match = re.fullmatch(r"(\w+)[:/](?!//)(.+)", spec, re.DOTALL)
    near = difflib.get_close_matches(match[1].lower(), KINDS, n=1, cutoff=0.75) if match else []
    if not match or not near or near[0] == "digits":
        return ""
    return f" Did you mean {shlex.quote(f'{near[0]}:{match[2]}')}?"


def open_source(spec: str, options: Options, *, val_percent: int, test_percent: int) -> Source:
    """Opens a source without decoding any image.

    Args:
      spec: `kind:rest`, see the module docstring.
      options: for the kinds that need them.
      val_percent: see `splits.standard`.
      test_percent: likewise.

    Raises:
      BadInput: the kind is unknown, the data is missing, or its layout is wrong. The message says
        what was found.
    """
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        raise unknown_kind("data.source", spec)
    if bool(rest) != (kind != "digits"):
        raise BadInput(f"data.source={spec!r}: write it as {KINDS[kind][0]}.")
    if storage.is_remote(rest) and kind not in IN_BUCKETS:
        raise BadInput(
            f"data.source={spec!r}: only {', '.join(IN_BUCKETS)} are read from gs://; copy it to a "
            "disk."
        )
    if kind == "mix":
        from vit_jax.data.sources import mixture

        percents = {"val_percent": val_percent, "test_percent": test_percent}
        weights, specs = mixture.parse(rest)
        parts = [open_source(one, options, **percents) for one in specs]
        return Source(spec, *mixture.mix(weights, parts))
    try:
        given_to = options.data_dir if kind in IN_DATA_DIR else options
        classes, own_splits, notes = resolve(KINDS[kind][1])(rest, given_to)
        meant = {}
        if kind == "objectnet":
            from vit_jax.data.sources import objectnet

            meant = objectnet.stands_for(rest, options.data_dir)
    except OSError as e:
        raise BadInput(f"data.source={spec!r} cannot be read: {e.strerror}: {e.filename}.") from e
    hold = splits_lib.hold_out_last if kind == "tfds" else splits_lib.hold_out
    splits, more = splits_lib.standard(
        own_splits, val_percent=val_percent, test_percent=test_percent, hold=hold
    )
    return Source(spec, tuple(classes), splits, (*notes, *more), tuple(meant.values()))


# Kind -> how it is written, and the function that opens it, imported on use: (rest, options or
# options.data_dir) -> class names, splits, notes. `open_source` itself opens the sources of a
# mixture.
KINDS: dict[str, tuple[str, str]] = {
    "tfds": ("tfds:NAME", "vit_jax.data.sources.tfds:open_tfds"),
    "folder": ("folder:PATH", "vit_jax.data.sources.folders:open_folder"),
    "csv": ("csv:FILE", "vit_jax.data.sources.folders:open_csv"),
    "records": ("records:GLOB", "vit_jax.data.sources.records:open_records"),
    "tar": ("tar:GLOB", "vit_jax.data.sources.tars:open_tar"),
    "vtab": ("vtab:TASK[/full]", "vit_jax.data.sources.vtab:open_vtab"),
    "mix": ("mix:N*SOURCE,N*SOURCE", "vit_jax.data.sources.mixture:mix"),
    "synthetic": ("synthetic:NAME", "vit_jax.data.sources.builtin:open_synthetic"),
    "objectnet": (
        "objectnet:PATH",
        "vit_jax.data.sources.objectnet:open_objectnet",
    ),
    "python": ("python:MODULE:FUNCTION", "vit_jax.data.sources.source:open_custom"),
    "digits": ("digits", "vit_jax.data.sources.builtin:open_digits"),
    "masks": ("masks:PATH", "vit_jax.data.sources.masks:open_masks"),
    "voc": ("voc:PATH", "vit_jax.data.sources.voc:open_voc"),
    "coco": ("coco:FILE", "vit_jax.data.sources.coco:open_coco"),
    "yolo": ("yolo:FILE", "vit_jax.data.sources.yolo:open_yolo"),
}
