# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Made-up images with boxes, as files of COCO, Pascal VOC and YOLO; and made-up detections."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from vit_jax.cli.main import main
from vit_jax.data.formats.boxes import Truth
from vit_jax.step.detection import Detections

NAMES = ("disc", "square", "never")
COLOURS = np.array([[220, 60, 60], [60, 90, 220]])


def drawn(seed: int, most: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Discs and squares on gray: uint8 [H, W, 3], boxes [n, 4], classes [n]."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(40, 64, 2)
    image = np.full((rows, columns, 3), 128) + rng.integers(-20, 20, (rows, columns, 3))
    y, x = np.mgrid[:rows, :columns]
    boxes, classes = [], []
    for _ in range(rng.integers(0, most + 1) if seed else most):
        side = int(rng.integers(10, 20))
        left, top = int(rng.integers(0, columns - side)), int(rng.integers(0, rows - side))
        label = int(rng.integers(0, 2))
        inside = (x >= left) & (x < left + side) & (y >= top) & (y < top + side)
        if label == 0:
            inside &= np.hypot(x - left - side / 2 + 0.5, y - top - side / 2 + 0.5) <= side / 2
        image[inside] = COLOURS[label]
        boxes.append([left, top, left + side, top + side])
        classes.append(label)
    return (
        image.astype(np.uint8),
        np.array(boxes, float).reshape(-1, 4),
        np.array(classes, np.int32),
    )


def coco(root: Path, counts=(("train", 6), ("val", 3), ("test", 3)), first: int = 0) -> Path:
    """A folder with train/, val/, test/ and annotations/; category ids have gaps."""
    (root / "annotations").mkdir(parents=True)
    seed = first
    for split, count in counts:
        (root / split).mkdir()
        images, annotations = [], []
        for _ in range(count):
            image, boxes, classes = drawn(seed)
            name = f"{seed:04d}.png"
            Image.fromarray(image).save(root / split / name)
            sides = {"height": image.shape[0], "width": image.shape[1]}
            images.append({"id": seed + 100, "file_name": name, **sides})
            for box, k in zip(boxes.tolist(), classes.tolist(), strict=True):
                annotations.append(annotation(len(annotations) + 1, seed + 100, 3 + 4 * k, box))
            seed += 1
        content = {"images": images, "annotations": annotations, "categories": categories()}
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(content))
    return root


def annotation(number, image, category, box, **more) -> dict:
    left, top, right, bottom = box
    bbox = [left, top, right - left, bottom - top]
    made = {"id": number, "image_id": image, "category_id": category, "bbox": bbox}
    return made | {"area": bbox[2] * bbox[3], "iscrowd": 0} | more


def categories() -> list[dict]:
    return [{"id": 3 + 4 * k, "name": name} for k, name in reversed([*enumerate(NAMES)])]


def truth(number, boxes, classes, ignored=None, areas=None) -> Truth:
    boxes = np.array(boxes, float).reshape(-1, 4)
    ignored = np.zeros(len(boxes), bool) if ignored is None else np.array(ignored, bool)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) if areas is None else np.array(areas)
    return Truth(number, boxes, np.array(classes, np.int32), ignored, areas)


def detections(boxes, scores, classes) -> Detections:
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    return Detections(boxes, np.array(scores, np.float32), np.array(classes, np.int32))


def perturbed(rng, true: Truth, classes: int, shift: float = 0.1) -> Detections:
    """Detections near the truth: moved, some missing, some of another class, some made up."""
    kept = rng.random(len(true.boxes)) < 0.8
    boxes = true.boxes[kept]
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    boxes = boxes + shift * sides * rng.normal(size=boxes.shape)
    more = rng.uniform(0, 60, (rng.integers(0, 4), 4))
    more[:, 2:] = more[:, :2] + rng.uniform(2, 40, (len(more), 2))
    boxes = np.concatenate([boxes, more])
    labels = np.concatenate([true.classes[kept], rng.integers(0, classes, len(more))])
    labels = np.where(rng.random(len(labels)) < 0.1, rng.integers(0, classes, len(labels)), labels)
    scores = np.sort(rng.random(len(boxes)).round(1).astype(np.float32))[::-1]  # with ties
    return detections(boxes, scores, labels)


def voc(root: Path, counts=(("train", 6), ("val", 3), ("test", 3)), difficult=()) -> Path:
    """The same images in the layout of Pascal VOC, whose pixels count from 1."""
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    seed = 0
    for split, count in counts:
        names = []
        for _ in range(count):
            image, boxes, classes = drawn(seed)
            names.append(f"{seed:04d}")
            Image.fromarray(image).save(root / f"JPEGImages/{names[-1]}.png")
            objects = [
                voc_object(NAMES[k], box, (seed, at) in difficult)
                for at, (box, k) in enumerate(zip(boxes, classes, strict=True))
            ]
            text = voc_xml(objects, image.shape)
            (root / f"Annotations/{names[-1]}.xml").write_text(text)
            seed += 1
        (root / f"ImageSets/Main/{split}.txt").write_text("\n".join(names) + "\n")
    return root


def voc_xml(objects, shape=(0, 0)) -> str:
    sides = f"<size><width>{shape[1]}</width><height>{shape[0]}</height></size>"
    return f"<annotation>{sides}{''.join(objects)}</annotation>"


def voc_object(name, box, difficult=False) -> str:
    ends = (box[0] + 1, box[1] + 1, box[2], box[3])
    tags = zip(("xmin", "ymin", "xmax", "ymax"), ends, strict=True)
    bndbox = "".join(f"<{tag}>{end:g}</{tag}>" for tag, end in tags)
    return (
        f"<object><name>{name}</name><difficult>{int(difficult)}</difficult>"
        f"<part><name>x</name><bndbox><xmin>1</xmin></bndbox></part><bndbox>{bndbox}</bndbox>"
        "</object>"
    )


def yolo(root: Path, counts=(("train", 6), ("val", 3), ("test", 3))) -> Path:
    """The same images in the layout of YOLO; an image without boxes has no file of labels."""
    seed, lines = 0, [f"names: [{', '.join(NAMES)}]"]
    for split, count in counts:
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for _ in range(count):
            image, boxes, classes = drawn(seed)
            Image.fromarray(image).save(root / f"images/{split}/{seed:04d}.png")
            shares = boxes / np.tile(image.shape[1::-1], 2)
            rows = [
                f"{k} {(a + c) / 2:.9f} {(b + d) / 2:.9f} {c - a:.9f} {d - b:.9f}"
                for k, (a, b, c, d) in zip(classes, shares, strict=True)
            ]
            if rows:
                (root / f"labels/{split}/{seed:04d}.txt").write_text("\n".join(rows))
            seed += 1
        lines.append(f"{split}: images/{split}")
    (root / "data.yaml").write_text("\n".join(lines))
    return root


def edited(path: Path, **changes):
    """Changes the lists of a COCO file by functions."""
    content = json.loads(path.read_text())
    for key, change in changes.items():
        content[key] = change(content[key])
    path.write_text(json.dumps(content))


def truths(source, split):
    read = source.splits[split].truth_reader()
    return [read(index) for index in range(len(source.splits[split]))]


def checked(capsys, spec):
    """Returns what `data check` lists: (file, reason)."""
    code = main(["data", "check", str(spec), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (2 if report["bad"] else 0)
    return [(one["file"], one["reason"]) for one in report["bad"]]
