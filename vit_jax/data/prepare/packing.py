# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes images smaller before they are written, so that training decodes fewer pixels.

Start from `Packing.packed`.
"""

import dataclasses
import io

import numpy as np
from PIL import Image

from vit_jax.data.ops import pixmap
from vit_jax.data.ops.decode import ORIENTATION, Decode, opened, orientation


@dataclasses.dataclass(frozen=True)
class Packing:
    """How images are made smaller.

    Attributes:
      size: the shorter side in pixels afterwards.
      quality: of JPEG, 1 to 100; None: plain pixels, which training does not have to decode.
    """

    size: int
    quality: int | None

    def name(self, dataset: str) -> str:
        """Returns the name of a dataset of packed images, so that none is taken for the other."""
        how = f"q{self.quality}" if self.quality else "lossless"
        return f"{dataset}_{self.size}_{how}"

    def bytes_of(self, stored: int) -> int:
        """Returns an estimate, for photographs, of the bytes of a file of `stored` bytes."""
        if self.quality:
            return stored
        photograph = self.size * self.size * 4  # three bytes, sides of 4 to 3
        return min(photograph, 30 * stored)  # few images were compressed by more

    def packed(self, content: bytes) -> bytes:
        """Returns the file of a smaller image as JPEG, or as plain pixels.

        Pixels are those that training decodes. They are resized by cubic interpolation with
        averaging; the aspect ratio stays. The orientation that a camera states is kept: without
        loss, an image that is not upright becomes PNG, since plain pixels cannot say it. A small
        image keeps its size, and its file if the others become JPEG.

        Raises:
          BadImage: the file cannot be decoded.
        """
        pixels_HWC = Decode().in_python(content)
        height, width = pixels_HWC.shape[:2]
        shorter = min(height, width)
        if shorter <= self.size and self.quality:
            return content
        small = Image.fromarray(pixels_HWC)
        if shorter > self.size:
            sides = [max(1, round(side * self.size / shorter)) for side in (width, height)]
            small = small.resize((sides[0], sides[1]), Image.Resampling.BICUBIC)
        with opened(content) as original:
            stated = orientation(original)
        if not self.quality and stated == 1:
            return pixmap.encoded(np.asarray(small))
        exif = Image.Exif()
        if stated != 1:
            exif[ORIENTATION] = stated
        file = io.BytesIO()
        if self.quality:
            small.save(file, "JPEG", quality=self.quality, subsampling="4:2:0", exif=exif)
        else:
            small.save(file, "PNG", exif=exif)
        return file.getvalue()
