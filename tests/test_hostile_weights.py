# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weight files of strangers become arrays or a message, in the memory that they have bytes for."""

import io
import json
import struct
import zipfile
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vit_jax.errors import BadInput
from vit_jax.weights import convert

WIDTH, HEADS, MLP = 8, 2, 16
BLOCK = "Transformer/encoderblock_0"


def arrays() -> dict[str, np.ndarray]:
    """A ViT of one block, under the names of the original code."""
    shapes = {
        "cls": (1, 1, WIDTH), "embedding/kernel": (4, 4, 3, WIDTH), "embedding/bias": (WIDTH,),
        "Transformer/posembed_input/pos_embedding": (1, 5, WIDTH),
        "Transformer/encoder_norm/scale": (WIDTH,), "Transformer/encoder_norm/bias": (WIDTH,),
        "head/kernel": (WIDTH, 3), "head/bias": (3,),
        f"{BLOCK}/MlpBlock_3/Dense_0/kernel": (WIDTH, MLP),
        f"{BLOCK}/MlpBlock_3/Dense_0/bias": (MLP,),
        f"{BLOCK}/MlpBlock_3/Dense_1/kernel": (MLP, WIDTH),
        f"{BLOCK}/MlpBlock_3/Dense_1/bias": (WIDTH,),
    }  # fmt: skip
    for number in (0, 2):
        shapes |= {f"{BLOCK}/LayerNorm_{number}/{n}": (WIDTH,) for n in ("scale", "bias")}
    attention, split = f"{BLOCK}/MultiHeadDotProductAttention_1", (HEADS, WIDTH // HEADS)
    for part in ("query", "key", "value"):
        shapes |= {f"{attention}/{part}/kernel": (WIDTH, *split), f"{attention}/{part}/bias": split}
    shapes |= {f"{attention}/out/kernel": (*split, WIDTH), f"{attention}/out/bias": (WIDTH,)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def npy(shape, kind="<f4", data=b"", order=False) -> bytes:
    text = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def npz(path: Path, *, without=(), packed=False, **more: bytes) -> Path:
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, array in arrays().items():
            if name not in (*more, *without):
                archive.writestr(f"{name}.npy", npy(array.shape, data=array.tobytes()))
        for name, content in more.items():
            archive.writestr(f"{name}.npy", content)
    return path


def both(path: Path):
    """Reads a file by its headers and by its values: the same, or refused both times."""
    found = [hostile.answer(convert.read, path, shapes_only=shapes) for shapes in (True, False)]
    if None not in found:
        assert found[0].tensors == found[1].tensors
        assert found[0].settings == found[1].settings
    return found[1]


def test_the_file_that_is_changed_here_is_right(tmp_path):
    assert both(npz(tmp_path / "x.npz")).settings["depth"] == 1


SHAPES = st.lists(
    st.sampled_from([0, 1, 3, 8, -1, -8, 2**16, 2**31, 2**33, 2**62, 2**80, True, "x", 1.5]),
    max_size=4,
).map(tuple)
KINDS = st.sampled_from(["<f4", ">f4", "<f2", "<f8", "|V2", "|O", "<U9", "|V0", "<i8", "x", ""])


@pytest.mark.integration
@pytest.mark.timeout(60)
@given(st.sampled_from(sorted(arrays())), SHAPES, KINDS, st.booleans())
@example("head/kernel", (8, 2**28), "<f2", False)
@example("head/kernel", (8, 2**33), "<f4", False)
@example("Transformer/posembed_input/pos_embedding", (1, 2**16, 2**14), "<f4", False)
@example("Transformer/encoderblock/x", (2**29, 1), "<f4", False)
@example("head/kernel", (-8, -3), "<f4", True)
def test_header_of_an_array_is_believed_as_far_as_there_are_bytes(
    tmp_path_factory, name, shape, kind, order
):
    path = npz(tmp_path_factory.getbasetemp() / "x.npz", **{name: npy(shape, kind, b"", order)})
    assert hostile.peak_mib(convert.read, path, shapes_only=True) < 32
    assert hostile.peak_mib(convert.read, path) < 32
    both(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [
    "Transformer/encoderblock_" + "9" * 5000 + "/MlpBlock_3/Dense_0/bias",
    "block999999999/unit1/conv1/kernel", "block2/unit1/conv1/kernel", "../../x", "\x1b[2J", "",
])  # fmt: skip
def test_names_that_no_model_has_are_refused(tmp_path, name):
    root = npy((7, 7, 3, 64), data=bytes(7 * 7 * 3 * 64 * 4))
    more = {"conv_root/kernel": root, name: npy((1, 1, 2, 2), data=bytes(16))}
    with pytest.raises(BadInput):
        convert.read(npz(tmp_path / "x.npz", **more))


@pytest.mark.timeout(60)
def test_more_layers_or_arrays_than_any_model_has_are_refused(tmp_path):
    scanned = {"Transformer/encoderblock/x": npy((2000, 1), data=bytes(8000))}
    with pytest.raises(BadInput, match="2000 layers"):
        convert.read(npz(tmp_path / "x.npz", **scanned))
    many = {f"x{i}": npy((1,), data=bytes(4)) for i in range(10_001)}
    with pytest.raises(BadInput, match="at most 10000"):
        convert.read(npz(tmp_path / "x.npz", **many))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return npz(tmp_path_factory.mktemp("weights") / "x.npz", packed=True).read_bytes()


@hostile.few
@given(data=st.data())
def test_changed_npz_is_read_or_refused(tmp_path_factory, written, data):
    path = tmp_path_factory.getbasetemp() / "x.npz"
    path.write_bytes(data.draw(hostile.changed([written])))
    both(path)


# --- safetensors ---

HEADER = {
    "cls_token": {"dtype": "F32", "shape": [1, 1, 2], "data_offsets": [0, 8]},
    "pos_embed": {"dtype": "F32", "shape": [1, 5, 2], "data_offsets": [8, 48]},
}


def safetensors(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@given(hostile.misplaced(HEADER) | st.sampled_from([[], 5, {"a": 5}]))
def test_header_of_safetensors_is_believed_as_far_as_there_are_bytes(tmp_path_factory, header):
    path = tmp_path_factory.getbasetemp() / "x.safetensors"
    path.write_bytes(safetensors(json.dumps(header).encode(), bytes(48)))
    assert hostile.peak_mib(convert.read, path, shapes_only=True) < 32
    both(path)


@given(hostile.changed([safetensors(json.dumps(HEADER).encode(), bytes(48))]))
@example(safetensors(b"[" * 100_000, b""))
def test_changed_safetensors_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "x.safetensors"
    path.write_bytes(content)
    both(path)


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_many_small_tensors_are_read_in_one_go(tmp_path):
    empty = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = {f"x{i}": empty | {"data_offsets": [4 * i, 4 * i + 4]} for i in range(5000)}
    content = safetensors(json.dumps(header).encode(), bytes(20_000))
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match="is not a known model; unknown names: x0, x1, "):
        convert.read(tmp_path / "x.safetensors")


def test_nothing_is_unpickled(tmp_path):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.array([print], object), allow_pickle=True)
    with pytest.raises(BadInput, match="pickled objects, which are never loaded"):
        convert.read(npz(tmp_path / "x.npz", **{"head/bias": out.getvalue()}))
