# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The page on the architecture: its picture is that of the source, its files are there."""

import importlib.util
import re

import pytest


@pytest.fixture
def drawing(root):
    spec = importlib.util.spec_from_file_location("draw_rooms", root / "docs" / "draw_rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_picture_is_that_of_the_imports(drawing):
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.picture(), (
        "run python docs/draw_rooms.py"
    )


def test_picture_has_every_room_and_its_dots_lie_below_the_diagonal(drawing, root):
    rooms, arrows = drawing.rooms(), drawing.arrows()
    folders = {path.parent.name for path in root.glob("vit_jax/*/__init__.py")}
    assert set(rooms) == folders
    upwards = [(a, b) for a in rooms for b in arrows[a] if rooms.index(b) > rooms.index(a)]
    assert upwards == []
    assert arrows["training"]["step"] > 0
    assert all(drawing.purpose(room) for room in rooms)


def test_files_that_the_page_names_are_there(root):
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", page)
    assert len(named) > 20
    places = (root, root / "vit_jax")
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert missing == []
