# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Input made to do harm: valid files with something changed, and what must come of them."""

import contextlib
import copy
import os
import socket
import tracemalloc
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from vit_jax.errors import BadInput

# For tests whose examples take a tenth of a second each.
few = settings(max_examples=settings().max_examples // 5)

BYTES = st.sampled_from([b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8, b"../"])
NUMBERS = st.sampled_from([0, 1, -1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**40, 2**63, 2**64, 10**400])
# Values of JSON that nobody expects in the place of others.
VALUES = st.one_of(
    NUMBERS, st.none(), st.booleans(), st.floats(), st.text(max_size=8), st.just([]), st.just({}),
    st.lists(NUMBERS, max_size=3), st.just({"a": [{}]}), st.just("../../x"),
)  # fmt: skip


def no_files(folder: Path) -> list[str]:
    """Makes a pipe, a socket and a link to a device that are called as images are; sorted."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "device.jpg").symlink_to(os.devnull)
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(folder):
        made.bind("socket.jpg")
    return [str(folder / f"{name}.jpg") for name in ("device", "pipe", "socket")]


@st.composite
def changed(draw, contents: list[bytes]):
    """One of some files with one to four changes: bytes flipped, cut out, repeated, replaced."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        to = min(len(content), at + draw(st.sampled_from([1, 2, 4, 30, 512])))
        kind = draw(st.sampled_from(["flip", "put", "cut", "repeat", "end", "splice"]))
        if kind == "flip" and at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "put":
            value = draw(BYTES)
            content[at : at + len(value)] = value
        elif kind == "cut":
            del content[at:to]
        elif kind == "repeat":
            content[at:at] = content[at:to]
        elif kind == "end":
            del content[at:]
        else:
            content[at:at] = draw(st.sampled_from(contents))[:512]
    return bytes(content)


@st.composite
def misplaced(draw, values):
    """A JSON value with one to three values in it replaced."""
    values = copy.deepcopy(values)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(values))
        if not places:
            break
        where, key = draw(st.sampled_from(places))
        where[key] = copy.deepcopy(draw(VALUES))  # it may be changed in its turn
    return values


def _places(values):
    keys = range(len(values)) if isinstance(values, list) else list(values)
    for key in keys:
        yield values, key
        if isinstance(values[key], list | dict):
            yield from _places(values[key])


def answer(function, *args, errors=(), **kwargs):
    """Returns the result of a call; None where it refuses the input with a message that ends."""
    try:
        return function(*args, **kwargs)
    except (BadInput, *errors) as e:
        said = str(e)
    assert len(said) > 10
    return None


def peak_mib(function, *args, **kwargs) -> float:
    """The most memory that Python and numpy hold during a call whose input may be refused."""
    tracemalloc.start()
    try:
        answer(function, *args, errors=(ValueError,), **kwargs)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
