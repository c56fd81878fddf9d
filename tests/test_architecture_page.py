# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The pages for contributors: their pictures are those of the source, their files are there."""

import importlib.util
import re

import pytest


def script(root, name):
    spec = importlib.util.spec_from_file_location(name, root / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def drawing(root):
    return script(root, "draw_rooms")


@pytest.mark.parametrize("name", ["draw_rooms", "draw_protocol"])
def test_picture_is_that_of_the_source(root, name):
    module = script(root, name)
    text = module.PICTURE.read_text(encoding="utf-8")
    assert text == module.picture(), f"run python docs/{name}.py"


def test_page_of_keys_is_that_of_the_declarations(root):
    module = script(root, "list_keys")
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python docs/list_keys.py"


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
