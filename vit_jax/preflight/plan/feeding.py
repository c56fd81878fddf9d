# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Says how many CPUs of a host make the images that its chips take.

Start from `of_plan`.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.hardware.topology import Accelerator

# Images/s of a CPU: JPEGs of 500 x 375 pixels, read, cropped, resized and flipped as a batch of
# training is (docs/feeding.md has the command).
USUAL = 800.0


@dataclasses.dataclass(frozen=True)
class Feeding:
    """The images that a host must make.

    Attributes:
      images_per_sec: of one host, for the fastest step that the plan knows.
      rate: images/s that a CPU makes.
      cpus: CPUs of the host, as its system counts them; 0: not known.
    """

    images_per_sec: float
    rate: float
    cpus: int

    @property
    def needed(self) -> int:
        """Returns the CPUs that make these images."""
        return math.ceil(self.images_per_sec / self.rate)

    @property
    def is_short(self) -> bool:
        """Returns True if the host has too few CPUs."""
        return 0 < self.cpus < self.needed

    def to_json(self) -> dict[str, Any]:
        """Returns its part of what `vit_jax plan --json` prints."""
        return {
            "images_per_sec_per_host": self.images_per_sec,
            "images_per_sec_per_cpu": self.rate,
            "cpus_needed": self.needed,
            "cpus_per_host": self.cpus or None,
        }

    def in_words(self) -> str:
        """Returns a line for people."""
        have = f"of {self.cpus} " if self.cpus else ""
        line = (
            f"{self.images_per_sec:,.0f} images/s on each host: {self.needed:,} {have}CPUs at "
            f"{self.rate:,.0f} images/s each"
        )
        return f"{line}; TOO FEW, see docs/feeding.md" if self.is_short else line


def of_plan(accelerator: Accelerator, slices: int, images_per_sec: float, rate: float) -> Feeding:
    """Returns what a host must make so that no chip waits.

    Args:
      accelerator: one slice.
      slices: number of slices.
      images_per_sec: images that all chips take together.
      rate: images/s of a CPU.
    """
    per_host = images_per_sec / (accelerator.hosts * slices)
    return Feeding(per_host, rate, accelerator.cpus_per_host)


def rate_of(file: str) -> float:
    """Returns images/s per CPU from the file that `vit_jax data bench SOURCE --json` printed.

    Raises:
      BadInput: the file cannot be read, or is another one.
    """
    try:
        found = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        rate = float(found["pipelines"]["ours"]["images_per_sec_per_core"])
    except OSError as e:
        raise BadInput(f"--data_bench={file}: {e.strerror or e}.") from e
    except (ValueError, KeyError, TypeError) as e:
        raise BadInput(
            f"--data_bench={file} is not what data bench prints; give the output of `vit_jax data "
            "bench SOURCE --json`."
        ) from e
    if not 0 < rate < math.inf:
        raise BadInput(f"--data_bench={file} says {rate} images/s per core; measure again.")
    return rate
