# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Export formats, and the check of an export's arguments; needs neither jax nor TensorFlow.

Start from `check`.
"""

from pathlib import Path

from vit_jax.errors import BadInput, unknown

SUFFIX = {"npz": ".npz", "big_vision": ".npz", "timm": ".safetensors", "hf": ".safetensors"}
GRAPHS = ("stablehlo", "savedmodel")  # weights with the computation; others hold only weights
FORMATS = (*SUFFIX, *GRAPHS)
MARK = "saved_model.pb"  # marks a folder as a SavedModel


def check(name: str, out: Path, *, with_preprocess: bool) -> None:
    """Raises BadInput for arguments that cannot be right; reads no weights."""
    if name not in FORMATS:
        raise unknown("--format", name, FORMATS)
    if with_preprocess and name not in GRAPHS:
        raise BadInput(
            f"--with-preprocess: {name} holds weights alone and computes nothing; write "
            f"--format={' or '.join(GRAPHS)}, or leave it out."
        )
    try:
        bytes(out).decode()
    except UnicodeDecodeError as e:
        if name == "savedmodel":  # TensorFlow treats the path as text
            problem = "is not UTF-8, as the path of a SavedModel must be; rename it"
            raise BadInput(f"--out={str(out)!r} {problem}.") from e
    suffix = SUFFIX.get(name, out.suffix)
    if out.suffix != suffix:
        others = [other for other, its in SUFFIX.items() if its == out.suffix]
        hint = f"; --format={' or '.join(others)} to a {out.suffix} file" if others else ""
        raise BadInput(f"{out}: the {name} format is written to a {suffix} file{hint}.")
    if name != "savedmodel":
        if out.is_dir():
            raise BadInput(f"--out={out} is a folder, and {name} is a file; give its name.")
        if out.exists() and not out.is_file():  # the new file would replace the device
            raise BadInput(f"--out={out} is a device or a pipe; give the name of a file.")
    elif out.exists() and not (out / MARK).exists():
        if not out.is_dir() or any(out.iterdir()):
            raise BadInput(f"--out={out} exists and is not a SavedModel; give another folder.")
