# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes images smaller before they are written, so that training decodes fewer pixels.

Start from `Packing.packed`.
"""

import dataclasses
import io

from PIL import Image

from vit_jax.data.ops.decode import Decode

_ORIENTATION = 0x0112  # tag of Exif


@dataclasses.dataclass(frozen=True)
class Packing:
    """How images are made smaller.

    Attributes:
      size: the shorter side in pixels afterwards.
      quality: of JPEG, 1 to 100.
    """

    size: int
    quality: int

    def name(self, dataset: str) -> str:
        """Returns the name of a dataset of packed images, so that none is taken for the other."""
        return f"{dataset}_{self.size}_q{self.quality}"

    def packed(self, content: bytes) -> bytes:
        """Returns the file of a smaller image as JPEG; a small one is returned as it is.

        Pixels are those that training decodes. They are resized by cubic interpolation with
        averaging; the aspect ratio stays. The orientation that a camera states is kept.

        Raises:
          BadImage: the file cannot be decoded.
        """
        pixels_HWC = Decode().in_python(content)
        height, width = pixels_HWC.shape[:2]
        shorter = min(height, width)
        if shorter <= self.size:
            return content
        sides = [max(1, round(side * self.size / shorter)) for side in (width, height)]
        small = Image.fromarray(pixels_HWC).resize((sides[0], sides[1]), Image.Resampling.BICUBIC)
        with Image.open(io.BytesIO(content)) as original:
            stated = original.getexif().get(_ORIENTATION)
        exif = Image.Exif()
        if stated is not None:
            exif[_ORIENTATION] = stated
        file = io.BytesIO()
        small.save(file, "JPEG", quality=self.quality, subsampling="4:2:0", exif=exif)
        return file.getvalue()
