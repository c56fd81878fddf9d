# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Made-up images with boxes, as files of COCO, Pascal VOC and YOLO; and made-up detections."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

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
