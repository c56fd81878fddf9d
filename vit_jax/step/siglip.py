# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of telling which texts belong to which images of a batch, with two towers.

SigLIP (arXiv:2303.15343), and LiT (arXiv:2111.07991), whose image tower is frozen by
`trainable=head`. Pairs are those of the global batch, on any mesh, with any accumulation. Axes: B
batch, L tokens of a text, E embedding, A micro-batches. Start from `Siglip.sums`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.data import texts as texts_lib
from vit_jax.data.tokenizers import BYTES
from vit_jax.models import text as text_lib
from vit_jax.models import variants
from vit_jax.sharding import Axes, Rules
from vit_jax.step import pairs
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, PyTree, Sums

_WIDE = (0, 2**16)
_LIMITS: dict[str, tuple[float, float]] = {
    "text_width": _WIDE, "text_depth": (0, 1000), "text_mlp": (0, 2**20), "text_heads": (0, 1024),
    "embedding": _WIDE, "vocabulary": (0, 2**24), "length": (2, 2**14), "pad": (-1, 2**24),
    "temperature": (1e-3, 1e4), "bias": (-1e4, 1e4),
}  # fmt: skip


class InRun(NamedTuple):
    """The image model of the run."""

    model: Any = None


@dataclasses.dataclass(frozen=True)
class Siglip(Objective):
    """The objective for images with texts; it ignores labels, unless texts are made of them.

    Attributes:
      tokenizer: `bytes`, or the file of a SentencePiece model or of a vocabulary of WordPieces.
      length: L; longer texts are cut.
      clean: what happens to a text first: none, lower or canonical; see `data.texts.Texts`.
      pad: the token that fills up a text; -1: that of the end, or 0 after WordPieces.
      template: text for the name of a class, with {}, or a file of such lines; "": texts come from
        the source.
      vocabulary: number of tokens; 0: those of the tokenizer.
      text: size of the text tower, such as B, or custom.
      text_width: its width; 0: that of the size.
      text_depth: its layers, likewise.
      text_mlp: width of its MLPs, likewise.
      text_heads: its heads, likewise.
      blocks: the layers of the text tower: vit, or bert, which does not read the token 0.
      pool: what stands for a text: the last token, the first, or attention pooling (map).
      embedding: E; 0: the width of the image tower, which then has no projection.
      loss: sigmoid, or the softmax over images and texts of CLIP and LiT.
      temperature: initial factor of the cosines.
      bias: initial bias of the sigmoid loss.
      keep_text: whether text tower, projection, temperature and bias come from `init`.
      run: left out; the run sets it.
    """

    tokenizer: str = BYTES
    length: int = 64
    clean: texts_lib.Clean = "none"
    pad: int = -1
    template: str = ""
    vocabulary: int = 0
    text: str = "B"
    text_width: int = 0
    text_depth: int = 0
    text_mlp: int = 0
    text_heads: int = 0
    blocks: text_lib.Blocks = "vit"
    pool: text_lib.Pool = "last"
    embedding: int = 0
    loss: pairs.Kind = "sigmoid"
    temperature: float = 10.0
    bias: float = -10.0
    keep_text: bool = False
    run: InRun = InRun()  # noqa: RUF009 - it is immutable

    METRICS = ("loss", "text_found", "image_found", "scale")
    EVALUATED = ("text_found", "image_found", "loss")
    SHOWN = ("text_found",)
    ANY_SHAPE = True
    AXES: ClassVar[Axes] = {
        **{f"{PARAMETERS}/{path}": axes for path, axes in text_lib.AXES.items()},
        f"{PARAMETERS}/projection/kernel": ("embed", None),
        f"{PARAMETERS}/projection/bias": (None,),
        f"{PARAMETERS}/(temperature|bias)": (),
    }

    def __post_init__(self) -> None:
        self.check_numbers(_LIMITS)
        choices = {"clean": texts_lib.CLEANS, "pool": text_lib.POOLS, "loss": pairs.KINDS}
        self.check_choices(choices | {"blocks": text_lib.BLOCKS})
        for name in ("tokenizer", "template", "text"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r}; give a text.")
        self._tower(vocabulary=1, outputs=1)  # raises for sizes that do not go together

    @functools.cached_property
    def texts(self) -> texts_lib.Texts:
        return texts_lib.Texts(
            self.tokenizer, self.length, self.clean, self.pad, texts_lib.templates(self.template),
            rows=self.vocabulary,
        )  # fmt: skip

    @functools.cached_property
    def _tower(self) -> Callable[..., text_lib.TextConfig]:
        """Returns vocabulary and outputs -> the text tower."""
        return functools.partial(
            text_lib.config, self.text, length=self.length, pool=self.pool, like=self.run.model,
            width=self.text_width, depth=self.text_depth, mlp=self.text_mlp, heads=self.text_heads,
            kind=self.blocks,
        )  # fmt: skip

    def in_run(self, cfg: Any, in_steps: Callable[[str], int]) -> "Siglip":
        return self.computed(cfg)

    def computed(self, cfg: Any) -> "Siglip":
        return dataclasses.replace(self, run=InRun(cfg))

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        tokens = jax.ShapeDtypeStruct((self.length,), jnp.int32)
        return super().batch(height, width, channels) | {"tokens": tokens}

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        """Returns the FLOPs of an example, without the scores of pairs; see `Objective`."""
        return super().step_flops(cfg, height, width) + self.own_flops(cfg, height, width)

    def own_flops(self, cfg: Any, height: int, width: int) -> int:
        features = _features(cfg, height, width)
        tower = self._tower(vocabulary=1, outputs=self.embedding or features)
        return 3 * (tower.flops() + 2 * features * self.embedding)

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        first, second = jax.random.split(key)
        features = output.shape[-1]
        tower = self._tower(
            vocabulary=self.vocabulary or self.texts.vocabulary, outputs=self.embedding or features
        )
        tokens = jnp.zeros((1, self.length), jnp.int32)
        own = {
            "text": text_lib.TextTower(tower).init(first, tokens)["params"],
            "temperature": jnp.asarray(math.log(self.temperature), jnp.float32),
        }
        if self.loss == "sigmoid":
            own["bias"] = jnp.asarray(self.bias, jnp.float32)
        if self.embedding:
            kernel = jax.nn.initializers.lecun_normal()(second, (features, self.embedding))
            own["projection"] = {"kernel": kernel, "bias": jnp.zeros(self.embedding)}
        return own

    def inherits(self, path: str) -> bool:
        return self.keep_text and path.startswith(f"{PARAMETERS}/")

    # ------------------------------------------------------------ vectors

    def image_vectors(self, params: PyTree, features_BD: jax.Array) -> jax.Array:
        """Maps what the image tower gives to unit vectors, float32 [B, E]."""
        own = params[PARAMETERS]
        if "projection" in own:
            features_BD = (
                features_BD @ own["projection"]["kernel"] + own["projection"]["bias"][None]
            )
        return _unit(features_BD)

    def text_vectors(
        self, params: PyTree, tokens_BL: jax.Array, rules: Rules | None = None
    ) -> jax.Array:
        """Maps the tokens of texts, int32 [B, L], to unit vectors, float32 [B, E]."""
        own = params[PARAMETERS]["text"]
        outputs = own["projection"]["bias"].shape[0]
        tower = self._tower(vocabulary=own["tokens"].shape[0], outputs=outputs)
        return _unit(
            jnp.asarray(text_lib.TextTower(tower, rules).apply({"params": own}, tokens_BL))
        )

    def scale_and_bias(self, params: PyTree) -> tuple[jax.Array, jax.Array]:
        """Returns the factor of cosines and what is added to them, float32 []."""
        own = params[PARAMETERS]
        return jnp.exp(own["temperature"]), own.get("bias", jnp.zeros(()))

    def _embed(
        self, network: Network, params: PyTree, batch: Batch, *, train: bool, key: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the unit vectors of images and texts, float32 [B, E] each."""
        images = network.input_of(batch)
        features_BD = network.apply(params, images, train=train, key=key)
        texts_BE = self.text_vectors(params, batch["tokens"], network.rules)
        return self.image_vectors(params, features_BD), texts_BE

    # ------------------------------------------------------------ a training step

    def relate(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, keys: jax.Array
    ) -> Batch:
        """Adds the gradient of the whole batch's loss by all vectors (arXiv:2101.06983)."""

        def embed(micro: tuple[Batch, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return self._embed(network, params, micro[0], train=True, key=micro[1])

        vectors, parts = jax.lax.map(embed, (batch, keys)), len(keys)
        prints, real = (
            _joined(x) for x in (jax.vmap(pairs.fingerprints)(batch["tokens"]), batch["_mask"])
        )

        def loss(vectors: Any, scaling: Any) -> tuple[jax.Array, pairs.Compared]:
            (images_BE, texts_BE), (scale, bias) = map(_joined, vectors), scaling
            found = pairs.compared(
                images_BE, texts_BE, prints, real, scale, bias,
                kind=self.loss, rules=network.rules,
            )  # fmt: skip
            return jnp.sum(found.loss), found

        at = (vectors, self.scale_and_bias(params))
        gradients, found = jax.grad(loss, argnums=(0, 1), has_aux=True)(*at)
        shares = jax.tree.map(lambda x: jnp.full(parts, x / parts), gradients[1])
        measured = {name: _parted(x, parts) for name, x in found._asdict().items()}
        return batch | {"gradients": (gradients[0], shares), "measured": measured}

    def sums(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, drawn: None, key: Any
    ) -> Sums:
        vectors = self._embed(network, params, batch, train=True, key=key)
        scaling = self.scale_and_bias(params)
        examples = jnp.sum(batch["_mask"], dtype=jnp.float32)
        scale = {"scale": jax.lax.stop_gradient(scaling[0]) * examples}
        if "gradients" not in batch:
            return self._compared(network, batch, vectors, scaling) | scale
        products = jax.tree.map(jnp.vdot, (vectors, scaling), batch["gradients"])
        share = sum(jax.tree.leaves(products))  # has the gradient, but not the value
        summed = {name: jnp.sum(x) for name, x in batch["measured"].items()} | scale
        return summed | {"loss": summed["loss"] + share - jax.lax.stop_gradient(share)}

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        vectors = self._embed(network, params, batch, train=False, key=None)
        found = self._compared(network, batch, vectors, self.scale_and_bias(params))
        return found | {"examples": jnp.sum(batch["_mask"], dtype=jnp.int32)}

    def _compared(self, network: Network, batch: Batch, vectors: Any, scaling: Any) -> Sums:
        images_BE, texts_BE = vectors
        prints_B, (scale, bias) = pairs.fingerprints(batch["tokens"]), scaling
        found = pairs.compared(
            images_BE, texts_BE, prints_B, batch["_mask"], scale, bias,
            kind=self.loss, rules=network.rules,
        )  # fmt: skip
        return {name: jnp.sum(x) for name, x in found._asdict().items()}


def _unit(x_BE: jax.Array) -> jax.Array:
    return x_BE * jax.lax.rsqrt(jnp.sum(x_BE * x_BE, axis=-1, keepdims=True) + 1e-12)


def _joined(x: jax.Array) -> jax.Array:
    """Maps [A, B/A, ...] to [B, ...]; each row stays on its device, see `micro_batches`."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])


def _parted(x: jax.Array, parts: int) -> jax.Array:
    """Maps [B, ...] to [A, B/A, ...], the inverse of `_joined`."""
    return jnp.swapaxes(x.reshape(len(x) // parts, parts, *x.shape[1:]), 0, 1)


@functools.cache
def _features(cfg: Any, height: int, width: int) -> int:
    """Returns the width of what an image tower gives for an RGB image."""
    image = jax.ShapeDtypeStruct((1, height, width, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    output, _ = jax.eval_shape(variants.make(cfg).init_with_output, key, image)
    return output.shape[-1]
