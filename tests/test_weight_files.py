# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""npz and safetensors files as names and arrays, and everything that can be wrong with one."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from vit_jax.errors import BadInput
from vit_jax.weights import files

ARRAYS = {
    "embedding/kernel": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "head/bias": np.array([1.5, -2.25], np.float16),
    "cls": np.array([[0.1]], np.float64),
    "scalar": np.array(3.0, np.float32),
    "steps": np.array([7], np.int64),
    "none": np.zeros((0, 4), np.float32),
}


def npz_bytes(compressed: bool = False, **arrays) -> bytes:
    raw = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(raw, **(arrays or ARRAYS))
    return raw.getvalue()


def zip_bytes(**members: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return raw.getvalue()


def npy_bytes(shape: tuple, data: bytes, descr: str = "'<f4'") -> bytes:
    """An array file whose header says what is asked."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def safetensors_bytes(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def assert_equal(found: dict, expected: dict) -> None:
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# --- what is there ---

CONTENTS = {
    "stored.npz": npz_bytes(),
    "compressed.npz": npz_bytes(compressed=True),
    "file.safetensors": save(ARRAYS),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_array_is_read_as_it_is(tmp_path, name):
    assert_equal(files.read(written(tmp_path / name, CONTENTS[name])), ARRAYS)


@pytest.mark.parametrize("name", CONTENTS)
def test_shapes_are_those_of_the_arrays_and_take_no_memory(tmp_path, name):
    found = files.read(written(tmp_path / name, CONTENTS[name]), shapes_only=True)
    assert_equal(found, {n: np.zeros_like(a) for n, a in ARRAYS.items()})
    assert all(set(a.strides) <= {0} for a in found.values())


def test_shapes_are_read_without_the_values(tmp_path):
    path = written(tmp_path / "x.npz", CONTENTS["stored.npz"])
    with mock.patch.object(np.lib.format, "read_array", side_effect=AssertionError):
        assert files.read(path, shapes_only=True).keys() == ARRAYS.keys()


@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_array_that_is_not_there_is_refused_by_its_header(tmp_path, shapes_only):
    huge = npy_bytes((1 << 20, 1 << 20), b"")  # 4 TiB
    path = written(tmp_path / "x.npz", zip_bytes(**{"head/kernel.npy": huge}))
    with pytest.raises(BadInput, match=r"claims \[1048576, 1048576\] float32, and has 0 bytes"):
        files.read(path, shapes_only=shapes_only)


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_both_versions_of_numpy_files_are_read(tmp_path, version):
    values, raw = np.arange(6, dtype=np.float32).reshape(2, 3), io.BytesIO()
    np.lib.format.write_array(raw, values, version=version)
    path = written(tmp_path / "x.npz", zip_bytes(**{"a.npy": raw.getvalue()}))
    assert_equal(files.read(path), {"a": values})


@pytest.mark.parametrize("shapes_only", [False, True])
def test_bfloat16_of_numpy_files_is_two_bytes_without_a_meaning(tmp_path, shapes_only):
    values = np.array([1.0, -0.5, 3.140625], ml_dtypes.bfloat16)
    npy = npy_bytes((3,), values.tobytes(), "'|V2'")
    content = zip_bytes(**{"a.npy": npy, "b": npy_bytes((3,), values.tobytes(), "'<V2'")})
    found = files.read(written(tmp_path / "x.npz", content), shapes_only=shapes_only)
    expected = np.zeros_like(values) if shapes_only else values
    assert_equal(found, {"a": expected, "b": expected})


@pytest.mark.parametrize("shapes_only", [False, True])
def test_number_formats_of_safetensors(tmp_path, shapes_only):
    values = {
        "F32": np.array([0.1], np.float32), "F16": np.array([0.1], np.float16),
        "F64": np.array([0.1], np.float64), "BF16": np.array([0.5], ml_dtypes.bfloat16),
    }  # fmt: skip
    header, data = {}, b""
    for name, value in values.items():
        ends = [len(data), len(data) + value.nbytes]
        header[name] = {"dtype": name, "shape": [1], "data_offsets": ends}
        data += value.tobytes()
    path = written(tmp_path / "x.safetensors", safetensors_bytes(header, data))
    found = files.read(path, shapes_only=shapes_only)
    assert_equal(found, {n: np.zeros_like(v) if shapes_only else v for n, v in values.items()})


def test_array_in_column_order(tmp_path):
    value = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    path = written(tmp_path / "x.npz", npz_bytes(a=value))
    assert_equal(files.read(path), {"a": value})


# --- what is wrong ---


def message(path: Path, shapes_only: bool = False) -> str:
    with pytest.raises(BadInput) as caught:
        files.read(path, shapes_only=shapes_only)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_missing_file_and_folder(tmp_path):
    assert "does not exist" in message(tmp_path / "none.npz")
    (tmp_path / "folder.npz").mkdir()
    message(tmp_path / "folder.npz")


@pytest.mark.parametrize("name", ["x.pth", "x.bin", "x", "x.npy", "x.h5", "x.NPZ", "npz"])
def test_other_suffix_says_which_are_known(tmp_path, name):
    said = message(written(tmp_path / name, npz_bytes()))
    assert ".npz" in said
    assert ".safetensors" in said


@pytest.mark.parametrize("kept", [0, 1, 4, 30, 0.1, 0.5, 0.9, -23, -22, -1])
@pytest.mark.parametrize("name", CONTENTS)
def test_truncated_file(tmp_path, name, kept):
    content = CONTENTS[name]
    end = int(kept * len(content)) if isinstance(kept, float) else kept
    path = written(tmp_path / name, content[:end])
    for shapes_only in (False, True):
        assert "incomplete" in message(path, shapes_only)


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
def test_nothing_is_unpickled(tmp_path, name):
    trace = tmp_path / "trace"
    array = np.array([Trap(trace)], dtype=object)
    plain = pickle.dumps({"a": Trap(trace)})
    contents = [npz_bytes(a=array), plain, zip_bytes(**{"data.pkl": plain, "a.npy": plain})]
    for content in contents:
        message(written(tmp_path / name, content))
    assert not trace.exists()


def test_pickled_array_has_no_floats_by_its_header_either(tmp_path):
    content = npz_bytes(a=np.array([{"a": 1}], dtype=object))
    found = files.read(written(tmp_path / "x.npz", content), shapes_only=True)
    assert found["a"].dtype == object


ONE = npy_bytes((1,), bytes(4))
WRONG_NPZ = {
    "text": b"weights\n",
    "array file": npy_bytes((2,), bytes(8)),
    "safetensors": save(ARRAYS),
    "no array": zip_bytes(a=b"no array"),
    "nothing": zip_bytes(a=b""),
    "folder": zip_bytes(**{"a/": b""}),
    "one of two is no array": zip_bytes(a=ONE, b=b"\x93NUMPY"),
    "promises more": zip_bytes(a=npy_bytes((3,), bytes(8))),
    "promises far more": zip_bytes(a=npy_bytes((1 << 40,), bytes(8))),
    "overflows": zip_bytes(a=npy_bytes((1 << 32, 1 << 32), bytes(8))),
    "negative": zip_bytes(a=npy_bytes((-1,), bytes(8))),
    "promises less": zip_bytes(a=npy_bytes((1,), bytes(8))),
    "code as header": zip_bytes(a=npy_bytes((1,), bytes(4), "exit(3)")),
    "one name twice": zip_bytes(**{"a": ONE, "a.npy": ONE}),
}


def entry(shape: list[int], start: int, end: int) -> dict:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


WRONG_SAFETENSORS = {
    "text": b"weights\n",
    "npz": npz_bytes(),
    "long header": struct.pack("<Q", 1 << 60) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"{{{{",
    "beyond the end": safetensors_bytes({"a": entry([4], 0, 16)}, bytes(8)),
    "another shape": safetensors_bytes({"a": entry([3], 0, 8)}, bytes(8)),
    "overlap": safetensors_bytes({"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, bytes(8)),
    "gap": safetensors_bytes({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
}


@pytest.mark.parametrize("kind", WRONG_NPZ)
def test_malformed_npz(tmp_path, kind):
    message(written(tmp_path / "x.npz", WRONG_NPZ[kind]))


@pytest.mark.parametrize("kind", WRONG_SAFETENSORS)
def test_malformed_safetensors(tmp_path, kind):
    message(written(tmp_path / "x.safetensors", WRONG_SAFETENSORS[kind]))


def test_number_format_that_numpy_lacks(tmp_path):
    header = {"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
    path = written(tmp_path / "x.safetensors", safetensors_bytes(header, bytes(2)))
    message(path)
    assert files.read(path, shapes_only=True)["a"].dtype.kind != "f"


@pytest.mark.parametrize("name", ["stored.npz", "compressed.npz"])
def test_no_damage_goes_unnoticed(tmp_path, name):
    """Where a file with a flipped bit is read at all, no array has another value."""
    rng, content, refused = np.random.default_rng(0), CONTENTS[name], 0
    for _ in range(80):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        try:
            found = files.read(written(tmp_path / name, bytes(damaged)))
        except BadInput:
            refused += 1
        else:
            for member, array in found.items():
                np.testing.assert_array_equal(array, ARRAYS[member])
    assert refused > 20


# --- JSON ---


def test_json_object(tmp_path):
    assert files.read_json(written(tmp_path / "a.json", b'{"a": [1]}')) == {"a": [1]}
    assert files.read_json(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"3", b"null", b'{"a": }', b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_no_json_object(tmp_path, content):
    with pytest.raises(BadInput, match=r"a\.json"):
        files.read_json(written(tmp_path / "a.json", content))


def test_folder_named_like_a_json_file(tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(BadInput, match=r"a\.json"):
        files.read_json(tmp_path / "a.json")


# --- writing ---

FLOATS = {name: a for name, a in ARRAYS.items() if a.dtype == np.float32}


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
def test_written_file_reads_back_bit_for_bit(tmp_path, name):
    path = tmp_path / "new" / "folder" / name
    files.write(path, FLOATS, {"config.json": {"a": 1}})
    assert_equal(files.read(path), FLOATS)
    assert json.loads((path.parent / "config.json").read_text()) == {"a": 1}
    assert sorted(p.name for p in path.parent.iterdir()) == ["config.json", name]


def test_written_files_open_with_what_others_use(tmp_path):
    files.write(tmp_path / "x.npz", FLOATS, {})
    with np.load(tmp_path / "x.npz", allow_pickle=False) as opened:
        assert_equal(dict(opened), FLOATS)
    files.write(tmp_path / "x.safetensors", FLOATS, {})
    with safe_open(tmp_path / "x.safetensors", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}  # transformers asks for it


def test_what_was_there_is_replaced(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"old")
    (tmp_path / "config.json").write_text("old")
    files.write(tmp_path / "x.npz", FLOATS, {"config.json": {}})
    assert_equal(files.read(tmp_path / "x.npz"), FLOATS)
    assert (tmp_path / "config.json").read_text() == "{}\n"


def fails_to_write(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        files.write(path, FLOATS, {"config.json": {"a": 1}})
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("folder", ["/proc", "/dev/null", "file", "file/below"])
def test_folder_that_cannot_be_written_to(tmp_path, folder, suffix):
    (tmp_path / "file").write_text("")
    path = tmp_path / folder / f"x{suffix}"  # an absolute folder stays absolute
    assert f"cannot write {path}" in fails_to_write(path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path, suffix):
    (tmp_path / "config.json").write_text("old")
    taken = tmp_path / f"taken{suffix}"
    taken.mkdir()
    fails_to_write(taken)
    fails_to_write(tmp_path / f"{'x' * 300}{suffix}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", taken.name]
    assert (tmp_path / "config.json").read_text() == "old"


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
def test_interrupted_writing_leaves_what_was_there(tmp_path, name, monkeypatch):
    files.write(tmp_path / name, FLOATS, {"config.json": {"a": 1}})
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*args, **kwargs):
        (tmp_path / f".{name}.partial").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    monkeypatch.setattr(files, "save_file", full)
    said = fails_to_write(tmp_path / name)
    assert "No space left on device" in said
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
