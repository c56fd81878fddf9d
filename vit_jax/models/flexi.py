# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FlexiViT (arXiv:2212.08013): one ViT for many patch sizes.

The parameters are those of a ViT with patches of 32 x 32 pixels and a grid of 7 x 7. For another
patch size the model resizes the kernel on pixels by the pseudo-inverse of bilinear resizing
(section 3.4), and the position embeddings bilinearly; the result is an ordinary `vit.ViT`. Training
draws a size for each step. Start from `Flexi.__call__`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models import vit
from vit_jax.models.settings import Settings
from vit_jax.sharding import Axes, Rules

SIDE, GRID = 32, 7  # pixels and positions a side of the parameters; section 3.3
PATCHES = (8, 10, 12, 15, 16, 20, 24, 30, 40, 48)  # they tile 240 pixels; section 3.3


@dataclasses.dataclass(frozen=True)
class FlexiConfig(vit.ViTConfig):
    """The architecture of a FlexiViT; `patch` is the size that evaluation uses."""

    AXES: ClassVar[Axes] = vit.AXES | {r"posemb": (None, None, "embed")}  # tokens vary
    FAMILY: ClassVar[Any] = "flexi"
    RESIZES_KERNEL: ClassVar[bool] = True
    patches: tuple[int, ...] = PATCHES  # drawn in training, all equally often

    def at(self, patch: int) -> vit.ViTConfig:
        """Returns the ViT that this model is at a patch size."""
        names = [field.name for field in dataclasses.fields(vit.ViTConfig)]
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        values["patch"] = patch
        return vit.ViTConfig(**values)

    def at_patch(self, patch: int) -> Self:
        return dataclasses.replace(self, patch=patch, patches=(patch,))

    def for_tokens(self) -> Self:
        raise BadInput("a FlexiViT gives no tokens of masked images; use a ViT or a hybrid.")

    def parameter_grid(self, height: int, width: int) -> tuple[int, int]:
        return GRID, GRID

    def ordinary(
        self, params: dict[str, Any], height: int, width: int
    ) -> tuple[vit.ViTConfig, dict[str, Any]]:
        return self.at(self.patch), resize(params, self.patch, (height, width))

    @property
    def levels(self) -> int:
        return 0

    def make(self, rules: Rules | None) -> Any:
        """Makes the model."""
        return Flexi(self, rules)

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one image, as a mean over the patch sizes of training."""
        flops = [self.at(patch).forward_flops(height, width) for patch in self.patches]
        return round(sum(flops) / len(flops))

    def training_flops(self, height: int, width: int) -> int:
        flops = [self.at(patch).training_flops(height, width) for patch in self.patches]
        return round(sum(flops) / len(flops))

    def stream_size(self, height: int, width: int) -> int:
        sizes = [self.at(patch).stream_size(height, width) for patch in self.patches]
        return round(sum(sizes) / len(sizes))

    def check_image_size(self, height: int, width: int) -> None:
        """Raises BadInput unless every patch size tiles the image, in at least 2 x 2 patches."""
        sizes = sorted({self.patch, *self.patches})
        if bad := [p for p in sizes if any(s % p or s < 2 * p for s in (height, width))]:
            least = math.lcm(*sizes)
            least *= -(-2 * sizes[-1] // least)
            raise BadInput(
                f"patches with a side of {', '.join(map(str, bad))} do not tile an image of "
                f"{height} x {width} pixels in at least 2 x 2; use a multiple of {least} "
                "(--config.data.image_size), or other patches (model.variant and model.patches; "
                "--patch of a command)."
            )

    def in_words(self) -> str:
        return f"a FlexiViT, at one patch size {super().in_words()}"

    @property
    def predicts_patches(self) -> bool:
        return False


class Flexi(nn.Module):
    """A ViT that maps images to logits with patches of any size.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: FlexiConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> jax.Array:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C]; all patch sizes in use divide H and W.
          train: whether to draw the patch size, and to use dropout and stochastic depth.
          key: typed key, needed in training; the images of a call share the patch size.

        Returns:
          float32 [B, Y].
        """
        cfg = self.cfg
        if self.is_initializing():
            at_birth = vit.ViT(cfg.at(SIDE), parent=None)
            sides, channels = (SIDE * GRID, SIDE * GRID), images_BHWC.shape[-1]
            image = jnp.zeros((1, *sides, channels))
            fresh = at_birth.init(self.make_rng("params"), image)["params"]
            for name, value in fresh.items():
                self.param(name, lambda _, value=value: value)
            return jnp.zeros((len(images_BHWC), cfg.classes or cfg.width))
        params: Any = self.variables["params"]
        if not train:
            return self._at(cfg.patch, params, images_BHWC, None)
        assert key is not None, "training draws the patch size from a key"
        size_key, key = jax.random.split(key)
        sizes = [functools.partial(self._at, patch) for patch in cfg.patches]
        size = jax.random.randint(size_key, (), 0, len(sizes))
        return _one_of(sizes)(size, params, images_BHWC, key)

    def _at(
        self, patch: int, params: Any, images_BHWC: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        """Applies the ViT of one patch size; in training if there is a key."""
        model = vit.ViT(self.cfg.at(patch), self.rules, parent=None)
        resized = {"params": resize(params, patch, images_BHWC.shape[1:3])}
        return jnp.asarray(model.apply(resized, images_BHWC, train=key is not None, key=key))


def _one_of(functions: Sequence[Callable[..., jax.Array]]) -> Callable[..., jax.Array]:
    """Returns the function (number, params, images, key) -> that of the number.

    The backward pass computes the forward pass again. A plain `switch` keeps arrays for the
    backward pass of every function, and fills those of the others with zeros, which takes longer;
    docs/experiments.md has the figures.
    """

    @jax.custom_vjp
    def one(number: jax.Array, params: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        return jax.lax.switch(number, functions, params, images, key)

    def forward(*inputs: Any) -> tuple[jax.Array, Any]:
        return one(*inputs), inputs

    def gradient(function: Callable[..., jax.Array]) -> Callable[..., Any]:
        def pull(change: jax.Array, params: Any, images: jax.Array, key: jax.Array) -> Any:
            return jax.vjp(lambda *inputs: function(*inputs, key), params, images)[1](change)

        return pull

    def backward(inputs: Any, change: jax.Array) -> Any:
        number, *rest = inputs
        pulled = jax.lax.switch(number, [gradient(f) for f in functions], change, *rest)
        return None, *pulled, None

    one.defvjp(forward, backward)
    return one


# ---------------------------------------------------------------- resizing


def resize(params: Any, patch: int, image: tuple[int, ...]) -> dict[str, Any]:
    """Returns the parameters of the ViT with another patch size, for images of [H, W]; float32."""
    embedding = params["embedding"]
    kernel = resize_kernel(embedding["kernel"], (patch, patch))
    resized = {**params, "embedding": {**embedding, "kernel": kernel}}
    if "posemb" in params:
        grid = image[0] // patch, image[1] // patch
        resized["posemb"] = _positions(params["posemb"], grid)
    return resized


def resize_kernel(kernel_hwCD: jax.Array | np.ndarray, new: tuple[int, ...]) -> jax.Array:
    """Resizes a kernel on pixels so that it maps patches resized alike to the same tokens.

    A token is <x, w>. If B enlarges the patch x, the result (B^T)^+ w gives <Bx, (B^T)^+ w> =
    <x, w>. If B makes it smaller, it is the best approximation for white noise. Bilinear resizing
    treats rows and columns apart, and so does its pseudo-inverse.

    Args:
      kernel_hwCD: float [h, w, C, D].
      new: rows and columns of the result.
    """
    rows, columns = (pseudo_inverse(*s) for s in zip(kernel_hwCD.shape[:2], new, strict=True))
    kernel_hwCD = jnp.asarray(kernel_hwCD, jnp.float32)
    return jnp.einsum("ph,qw,hwcd->pqcd", rows, columns, kernel_hwCD, precision="highest")


@functools.cache
def pseudo_inverse(old: int, new: int) -> np.ndarray:
    """Returns the pseudo-inverse of B^T, float32 [new, old]; B resizes `old` pixels to `new`.

    B is bilinear between the centres of pixels, and takes no means where it makes images smaller,
    like `tf.image.resize`.
    """
    if old == new:
        return np.eye(old, dtype=np.float32)
    where = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(np.floor(where).astype(int), max(old - 2, 0))
    bilinear, rows = np.zeros((new, old)), np.arange(new)
    bilinear[rows, low] = 1 - (where - low)
    bilinear[rows, np.minimum(low + 1, old - 1)] += where - low
    return np.linalg.pinv(bilinear.T).astype(np.float32)


def _positions(posemb_1LD: jax.Array, grid: tuple[int, int]) -> jax.Array:
    """Resizes the rows of patches bilinearly to another grid; a row of a class token stays."""
    posemb_1LD = posemb_1LD.astype(jnp.float32)
    before = posemb_1LD.shape[1] - GRID * GRID
    width = posemb_1LD.shape[2]
    patches_hwD = posemb_1LD[0, before:].reshape(GRID, GRID, width)
    resized = jax.image.resize(
        patches_hwD, (*grid, width), "linear", precision=jax.lax.Precision.HIGHEST
    )
    return jnp.concatenate([posemb_1LD[:, :before], resized.reshape(1, -1, width)], axis=1)


# ---------------------------------------------------------------- configuration


def config(wanted: Settings, classes: int, size: str, patch: str) -> FlexiConfig:
    """Returns the configuration that settings describe, for `Flexi-SIZE/PATCH`.

    Raises:
      BadInput: a setting does not fit.
    """
    patches = wanted.patches or PATCHES
    if len(set(patches)) < len(patches):
        raise BadInput(f"model.patches={patches}: name each size once.")
    if wanted.posemb not in ("learned1d", "none") or wanted.posemb_at == "every":
        raise BadInput(
            f"model {wanted.variant} resizes one learned table of positions: it has posemb="
            f"learned1d or none, at the stem or shared, not {wanted.posemb} at {wanted.posemb_at}."
        )
    if wanted.naflex:
        raise BadInput(
            f"model.naflex={wanted.naflex}: {wanted.variant} draws patch sizes for square images; "
            "leave naflex out, or use a ViT."
        )
    cfg = vit.config(dataclasses.replace(wanted, patches=()), classes, None, size, patch)
    values = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
    return FlexiConfig(**values, patches=tuple(patches))
