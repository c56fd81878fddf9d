# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Accelerators as sold. Owns their published peaks; imports nothing of ours.

Start from `peak_flops`.
"""

import re

# Dense bfloat16 peak in FLOP/s of one jax device, by a lower-case part of `device_kind`, the most
# specific first. TPU figures: "TPU system architecture" pages of the Google Cloud documentation
# (v2 and v3 per core, since each core is a device; later ones per chip). GPU figures: the vendor's
# data sheets, without sparsity.
_PEAKS = (
    ("tpu v2", 45e12 / 2),
    ("tpu v3", 123e12 / 2),
    ("tpu v4 lite", 138e12),
    ("tpu v4", 275e12),
    ("tpu v5 lite", 197e12),
    ("tpu v5e", 197e12),
    ("tpu v5p", 459e12),
    ("tpu v5", 459e12),
    ("tpu v6 lite", 918e12),
    ("tpu v6e", 918e12),
    ("h200", 989e12),
    ("h100 pcie", 756e12),
    ("h100", 989e12),
    ("a100", 312e12),
    ("a10g", 70e12),
    ("l40s", 362e12),
    ("l40", 181e12),
    ("l4", 121e12),
    ("v100", 125e12),
    ("t4", 65e12),
)


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 (V100, T4: float16) peak of a device in FLOP/s; None where it is not known."""
    kind = device_kind.lower()  # whole words: an L40 is not an L4; but a GH200 has an H200's GPU
    return next((peak for name, peak in _PEAKS if re.search(rf"\bg?{name}\b", kind)), None)
