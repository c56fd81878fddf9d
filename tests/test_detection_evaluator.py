# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Figures of detections: COCO's against pycocotools on files, VOC's against another computation."""

import itertools
import json
import math
import sys
import tarfile

import boxed
import numpy as np
import pytest
from boxed import detections, truth

from vit_jax.data.sources import registry
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput
from vit_jax.evaluators import detection
from vit_jax.evaluators.detection import Objects


def from_files(folder, truths, founds, classes, capsys):
    """The twelve figures that pycocotools prints of JSON files."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations = []
    for one in truths:
        rows = zip(one.boxes.tolist(), one.classes.tolist(), one.ignored.tolist(),
                   one.areas.tolist(), strict=True)  # fmt: skip
        for box, k, crowd, area in rows:
            more = {"iscrowd": int(crowd), "area": area}
            annotations.append(boxed.annotation(len(annotations) + 1, one.id, k + 1, box, **more))
    content = {
        "images": [{"id": one.id} for one in truths],
        "categories": [{"id": k + 1, "name": str(k)} for k in range(classes)],
        "annotations": annotations,
    }
    results = [
        {"image_id": one.id, "category_id": k + 1, "score": score,
         "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]]}
        for one, found in zip(truths, founds, strict=True)
        for box, score, k in zip(*(x.tolist() for x in found), strict=True)
    ]  # fmt: skip
    (folder / "true.json").write_text(json.dumps(content))
    (folder / "found.json").write_text(json.dumps(results))
    true = COCO(str(folder / "true.json"))
    if not results:  # pycocotools reads no empty file
        return [-1.0] * 12
    evaluated = COCOeval(true, true.loadRes(str(folder / "found.json")), "bbox")
    evaluated.evaluate()
    evaluated.accumulate()
    evaluated.summarize()
    capsys.readouterr()
    return evaluated.stats


def random_images(seed, images=12, classes=4, most=6, crowd=0.15, least=1.0):
    rng = np.random.default_rng(seed)
    truths = []
    for number in rng.permutation(images) + 50:
        count = rng.integers(0, most + 1)
        boxes = rng.uniform(0, 200, (count, 4))
        boxes[:, 2:] = boxes[:, :2] + rng.choice([least, 20, 60, 150], (count, 2))
        labels = rng.integers(0, classes - 1, count)  # the last never occurs
        crowds = rng.random(count) < crowd
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) * 0.7  # of masks
        truths.append(truth(int(number), boxes, labels, crowds, areas))
    return truths, [boxed.perturbed(rng, one, classes) for one in truths]


def compared(tmp_path, capsys, truths, founds, classes):
    objects = Objects(classes)
    for one, found in zip(truths, founds, strict=True):
        objects.add(one, found)
    figures = objects.figures()
    assert capsys.readouterr().out == ""
    expected = from_files(tmp_path, truths, founds, classes, capsys)
    expected = [math.nan if value < 0 else value for value in expected]
    np.testing.assert_allclose(list(figures.coco.values()), expected, rtol=0, atol=1e-12)
    return figures


@pytest.mark.parametrize(
    "case",
    [{}, {"most": 300, "images": 3}, {"most": 0}, {"crowd": 1.0}, {"crowd": 0.0, "classes": 2},
     {"images": 1, "classes": 9}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1])
def test_figures_are_those_of_pycocotools_on_files(tmp_path, capsys, seed, case):
    truths, founds = random_images(seed, **case)
    compared(tmp_path, capsys, truths, founds, case.get("classes", 4))


def test_nothing_found_is_zero_and_no_images_with_boxes_is_undefined():
    none = detections([], [], [])
    objects, empty = Objects(3), Objects(3)
    objects.add(truth(1, [[0, 0, 1, 1]], [1]), none)
    figures = objects.figures()
    small = {"AP", "AP50", "AP75", "AP_small", "AR_1", "AR_10", "AR_100", "AR_small"}
    assert {name for name, value in figures.coco.items() if value == 0} == small
    assert figures.voc == 0
    assert math.isnan(figures.coco["AP_large"])
    np.testing.assert_array_equal(figures.counts_K, [0, 1, 0])
    empty.add(truth(1, [], []), none)
    assert all(map(math.isnan, [*empty.figures().coco.values(), empty.figures().voc]))


def test_order_of_images_changes_nothing():
    truths, founds = random_images(3)
    orders = [np.arange(len(truths)), np.random.default_rng(0).permutation(len(truths))]
    results = []
    for order in orders:
        objects = Objects(4)
        for at in order:
            objects.add(truths[at], founds[at])
        results.append(objects.figures())
    assert results[0].coco == results[1].coco
    assert results[0].voc == results[1].voc
    np.testing.assert_array_equal(results[0].precision_KR, results[1].precision_KR)


def test_numbers_by_hand():
    """Two objects; the first and the third detection are right: precision 1, then 2/3."""
    true = truth(7, [[0, 0, 10, 10], [20, 20, 30, 30]], [0, 0])
    found = detections(
        [[0, 0, 10, 10], [40, 40, 50, 50], [20, 20, 30, 30]], [0.9, 0.8, 0.7], [0, 0, 0]
    )
    objects = Objects(2)
    assert objects.add(true, found) == pytest.approx(5 / 6)
    figures = objects.figures()
    assert figures.voc == pytest.approx(5 / 6)
    assert figures.coco["AP50"] == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert figures.coco["AR_1"] == 0.5
    assert figures.coco["AR_small"] == 1
    np.testing.assert_allclose(figures.precision_KR[0, [0, 50, 51, 100]], [1, 1, 2 / 3, 2 / 3])
    assert np.isnan(figures.precision_KR[1]).all()
    with pytest.raises(BadInput, match="two images are called 7"):
        objects.add(true, found)


def voc_by_points(images, label):
    """AP50 by the sum over recalls at which precision is highest from there on, one at a time."""
    rows, total = [], 0
    for number, (true, found) in enumerate(images):
        total += sum(
            1 for k, d in zip(true.classes, true.ignored, strict=True) if k == label and not d
        )
        rows += [(float(s), number, b) for b, s, k in zip(*found, strict=True) if k == label]
    used, marks = set(), []
    for _, number, box in sorted(rows, key=lambda row: (-row[0], row[1])):
        true = images[number][0]
        best, best_at = 0.0, None
        for at, other in enumerate(true.boxes):
            width = min(box[2], other[2]) - max(box[0], other[0])
            height = min(box[3], other[3]) - max(box[1], other[1])
            if true.classes[at] != label or width <= 0 or height <= 0:
                continue
            areas = [float((c[2] - c[0]) * (c[3] - c[1])) for c in (box.astype(float), other)]
            share = width * height / (sum(areas) - width * height)
            if share > best:
                best, best_at = share, at
        if best >= 0.5 and true.ignored[best_at]:
            continue
        marks.append(best >= 0.5 and (number, best_at) not in used)
        used |= {(number, best_at)} if best >= 0.5 else set()
    if not total:
        return math.nan
    right = np.cumsum(marks)
    points = [(r / total, r / n) for n, r in enumerate(right, 1)]
    recalls = sorted({r for r, _ in points} | {0.0})
    return sum(
        (high - low) * max(p for r, p in points if r >= high)
        for low, high in itertools.pairwise(recalls)
    )


@pytest.mark.parametrize("seed", range(4))
def test_voc_is_that_of_another_computation(seed):
    truths, founds = random_images(seed, images=30, crowd=0.2)
    rng = np.random.default_rng(seed)  # without ties
    founds = [
        f._replace(scores=np.sort(rng.random(len(f.scores)))[::-1].astype(np.float32))
        for f in founds
    ]
    images = sorted(zip(truths, founds, strict=True), key=lambda one: one[0].id)
    expected = [voc_by_points(images, label) for label in range(4)]
    np.testing.assert_allclose(detection.voc_ap50(images, 4), expected, atol=1e-12)


@pytest.mark.parametrize(
    "boxes, crowds, guesses, expected",
    [
        ([], [], [], math.nan),
        ([], [], [[0, 0, 9, 9]], 0),
        ([[0, 0, 9, 9]], [True], [[0, 0, 9, 9]], math.nan),  # within a crowd region
        ([[0, 0, 9, 9]], [True], [[0, 0, 9, 9], [20, 20, 30, 30]], 0),
        ([[0, 0, 9, 0]], [False], [], math.nan),  # without area
        ([[9, 9, 0, 0]], [False], [[0, 0, 9, 9]], 0),
        ([[0, 0, 9, 9], [5, 5, 5, 9]], [False, False], [[0, 0, 9, 9]], 1),
        ([[0, 0, 9, 9]], [False], [], 0),
    ],
)
def test_figure_of_an_image_alone_is_0_only_if_something_is_wrong(boxes, crowds, guesses, expected):
    true = truth(1, boxes, [1] * len(boxes), crowds)
    found = detections(guesses, [0.9, 0.8][: len(guesses)], [1] * len(guesses))
    objects = Objects(3)
    assert objects.add(true, found) == pytest.approx(expected, nan_ok=True)
    if any(r > x and b > y for x, y, r, b in boxes):
        voc = objects.figures().voc_K
        np.testing.assert_equal(voc, [math.nan, math.nan if all(crowds) else expected, math.nan])


def test_difficult_objects_count_neither_way():
    true = truth(1, [[0, 0, 10, 10], [20, 20, 30, 30]], [0, 0], [True, False])
    boxes = [[0, 0, 10, 10], [0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30]]
    found = detections(boxes, [0.9, 0.8, 0.7, 0.6], [0] * 4)
    assert detection.voc_ap50([(true, found)], 1)[0] == 1  # the last comes after the end of recall


def test_score_of_one_image():
    objects = Objects(3)
    none = detections([], [], [])
    assert math.isnan(objects.add(truth(1, [], []), none))
    assert objects.add(truth(2, [], []), detections([[0, 0, 5, 5]], [0.3], [1])) == 0
    assert objects.add(truth("a", [[0, 0, 5, 5]], [2]), none) == 0


def test_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)
    with pytest.raises(BadInput, match=r"pip install 'vit_jax\[coco\]'"):
        Objects(2)


def test_photographs_with_boxes(tmp_path, data_dir):
    """Detections near the truth of BCCD, through the source and from its own file."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if not (data_dir / "bccd.tar").exists():
        pytest.skip("no bccd.tar among the real images")
    with tarfile.open(data_dir / "bccd.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    path = tmp_path / "bccd/annotations/instances_val.json"
    source = registry.open_source(f"coco:{path}", Options(), val_percent=0, test_percent=0)
    read, rng = source.splits["val"].truth_reader(), np.random.default_rng(0)
    objects, results = Objects(len(source.classes)), []
    for index in range(len(source.splits["val"])):
        true = read(index)
        found = boxed.perturbed(rng, true, 3, shift=0.08)
        objects.add(true, found)
        for box, score, k in zip(*found, strict=True):
            ends = [float(x) for x in box]
            bbox = [ends[0], ends[1], ends[2] - ends[0], ends[3] - ends[1]]
            results.append({"image_id": true.id, "category_id": int(k) + 1, "bbox": bbox,
                            "score": float(score)})  # fmt: skip
    own = COCO(str(path))
    (tmp_path / "found.json").write_text(json.dumps(results))
    evaluated = COCOeval(own, own.loadRes(str(tmp_path / "found.json")), "bbox")
    evaluated.evaluate()
    evaluated.accumulate()
    evaluated.summarize()
    found = objects.figures().coco
    np.testing.assert_allclose(list(found.values()), evaluated.stats, rtol=0, atol=1e-9)
    assert 0.1 < found["AP"] < 0.9
