# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The parts that models share: dropout, norm, MLP, rematerialisation and a stack of equal blocks.

Axes: B batch, L tokens, D width, F mlp width, S layers. Norms are computed in float32.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vit_jax.config.model_section import Gate, Gelu, Norm
from vit_jax.errors import unknown
from vit_jax.models import added, products, unrolled_blocks
from vit_jax.sharding import Axes, Rules, constrain

Remat = str  # a key of REMATS, or comma-separated names of activations to keep

# Pattern of a parameter's path -> logical axes; see sharding.param_axes.
STEM_AXES: Axes = {
    r"embedding/kernel": ("patch", "patch", None, "embed"),
    r"embedding/bias": ("embed",),
}
HEAD_AXES: Axes = {
    r"(patch_|dist_)?head/kernel": ("embed", "classes"),
    r"(patch_|dist_)?head/bias": ("classes",),
}
MLP_AXES: Axes = {
    r"mlp/up/kernel": ("embed", "mlp"),
    r"mlp/up/bias": ("mlp",),
    r"mlp/gate/kernel": ("embed", "mlp"),
    r"mlp/gate/bias": ("mlp",),
    r"mlp/norm/(scale|bias)": ("mlp",),
    r"mlp/down/kernel": ("mlp", "embed"),
    r"mlp/down/bias": ("embed",),
}
NORM_AXES: Axes = {r"[a-z_]*norm/(scale|bias)": ("embed",)}


def dropout(
    x: jax.Array, rate: float | jax.Array, key: jax.Array | None, *, per_example: bool = False
) -> jax.Array:
    """Zeroes entries with probability `rate` and divides the rest by 1 - rate.

    Args:
      x: array [B, ...].
      rate: dropout rate in [0, 1).
      key: typed key; None means evaluation, which leaves x unchanged.
      per_example: whether to draw once per example, as stochastic depth does (arXiv:1603.09382).
    """
    if key is None or (isinstance(rate, float) and rate == 0.0):
        return x
    shape = (x.shape[0],) + (1,) * (x.ndim - 1) if per_example else x.shape
    keep = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(keep, x / jnp.asarray(1.0 - rate, x.dtype), 0).astype(x.dtype)


def layer_norm(name: str, epsilon: float, dtype: Any) -> nn.LayerNorm:
    """Makes a LayerNorm over the last axis that computes in float32 and returns `dtype`."""
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, name=name)


def norm(name: str, kind: Norm, epsilon: float, dtype: Any) -> nn.LayerNorm | nn.RMSNorm:
    """Makes a LayerNorm or an RMSNorm (arXiv:1910.07467), otherwise as `layer_norm`."""
    if kind == "rms":
        return nn.RMSNorm(epsilon=epsilon, dtype=dtype, name=name)
    return layer_norm(name, epsilon, dtype)


def unit(x: jax.Array, axis: int) -> jax.Array:
    """Returns vectors along an axis, divided by their lengths."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=axis, keepdims=True) + 1e-12)


def activation(kind: Gelu) -> Callable[[jax.Array], jax.Array]:
    """Returns a form of GELU; `quick` is x sigmoid(1.702 x), as in CLIP."""
    if kind == "quick":
        return lambda x: x * jax.nn.sigmoid(1.702 * x)
    return functools.partial(nn.gelu, approximate=kind == "tanh")


class Mlp(nn.Module):
    """Dense, GELU, dropout, Dense, dropout: D -> F -> D.

    With a gate (arXiv:2002.05202) the hidden layer is act(gate x) * (up x) instead of GELU(up x).

    Attributes:
      hidden: F.
      gelu: exact GELU (`erf`), its `tanh` approximation (they differ by up to 5e-4), or `quick`.
      dropout: dropout rate after both layers.
      dtype: dtype of the computation, or `model.dtype`.
      rules: placement of activations.
      kernel_init: initialiser of both kernels.
      bias_init: initialiser of both biases.
      gate: activation of a gate, if any.
      bias: whether the layers have biases.
      norm: norm of the hidden layer (EVA-02, arXiv:2303.11331), or "".
      epsilon: epsilon of that norm.
    """

    hidden: int
    gelu: Gelu
    dropout: float
    dtype: Any
    rules: Rules | None
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_uniform()
    bias_init: nn.initializers.Initializer = nn.initializers.normal(1e-6)
    gate: Gate = "none"
    bias: bool = True
    norm: Literal["", "layer", "rms"] = ""
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x_BLD: jax.Array, key: jax.Array | None) -> jax.Array:
        """Maps [B, L, D] to [B, L, D]."""

        def dense(features: int, name: str) -> nn.Dense:
            return nn.Dense(
                features,
                use_bias=self.bias,
                dtype=products.stream(self.dtype),
                kernel_init=self.kernel_init,
                bias_init=self.bias_init,
                dot_general=products.product(self.rules, self.dtype),
                name=name,
            )

        up_key, down_key = (None, None) if key is None else jax.random.split(key)
        hidden_BLF = dense(self.hidden, "up")(x_BLD)
        hidden_BLF = constrain(hidden_BLF, ("act_batch", "act_tokens", "act_mlp"), self.rules)
        hidden_BLF = checkpoint_name(hidden_BLF, "mlp_up")
        act = nn.silu if self.gate == "silu" else activation(self.gelu)
        act = _from_input(act, self.rules)
        if self.gate == "none":
            hidden_BLF = act(hidden_BLF)
        else:
            gate_BLF = dense(self.hidden, "gate")(x_BLD)
            gate_BLF = constrain(gate_BLF, ("act_batch", "act_tokens", "act_mlp"), self.rules)
            hidden_BLF *= act(checkpoint_name(gate_BLF, "mlp_gate"))
        if self.norm:
            hidden_BLF = norm("norm", self.norm, self.epsilon, products.stream(self.dtype))(
                hidden_BLF
            )
        hidden_BLF = dropout(hidden_BLF, self.dropout, up_key)
        out_BLD = checkpoint_name(dense(x_BLD.shape[-1], "down")(hidden_BLF), "mlp_down")
        return dropout(out_BLD, self.dropout, down_key)


def _from_input(
    act: Callable[[jax.Array], jax.Array], rules: Rules | None
) -> Callable[[jax.Array], jax.Array]:
    """Returns an activation that keeps its input, not the five arrays that make up its gradient.

    With `jax.checkpoint` XLA still finds the tanh of the forward pass in the gradient, and a GPU
    stores it. There the gradient is taken at x + 0 grad, which XLA does not find, and there is no
    forward-mode derivative.
    """
    if not products.on_gpu(rules):
        return jax.checkpoint(act, prevent_cse=False)

    def backward(x: jax.Array, grad: jax.Array) -> tuple[jax.Array]:
        return jax.vjp(act, x + 0 * grad)[1](grad)

    kept = jax.custom_vjp(act)
    kept.defvjp(lambda x: (act(x), x), backward)
    return kept


def _is_product(prim: Any, *args: Any, **params: Any) -> bool:
    """Returns True if a primitive multiplies with weights.

    These are convolutions, and products without batch dimensions.
    """
    if prim is jax.lax.conv_general_dilated_p:
        return True
    return jax.checkpoint_policies.dots_with_no_batch_dims_saveable(prim, *args, **params)


# Value of `remat` other than names -> policy of what to keep; None keeps everything.
REMATS: dict[str, Callable[..., bool] | None] = {
    "none": None,
    "dots": _is_product,
    "full": jax.checkpoint_policies.nothing_saveable,
}


# Names inside an MLP that `remat` can keep; each module with such names has this list.
KEEPABLE = ("mlp_up", "mlp_down")
GATE_KEEPABLE = ("mlp_gate",)


def check_remat(remat: str, names: tuple[str, ...]) -> None:
    """Raises BadInput unless `remat` is auto, a policy or a comma-separated list of `names`."""
    for name in () if remat in ("auto", *REMATS) else remat.split(","):
        if name not in names:
            options = ["auto", *REMATS, *names, "or several names with commas between"]
            raise unknown("model.remat", name, options)


def rematerialised(module: type[nn.Module], remat: Remat, *, inside_scan: bool) -> type[nn.Module]:
    """Wraps a module so that its backward pass recomputes what `remat` does not keep.

    Args:
      module: a block or a unit; its inputs are always kept.
      remat: `none` keeps everything, `dots` keeps products with weights (attention scores are not
        among them), `full` keeps nothing. Otherwise the comma-separated names of `checkpoint_name`
        calls in the module.
      inside_scan: whether the module is inside `nn.scan`.
    """
    if remat == "none":
        return module
    if remat in REMATS:
        policy = REMATS[remat]
    else:
        policy = jax.checkpoint_policies.save_only_these_names(*remat.split(","))
    return nn.remat(module, policy=policy, prevent_cse=not inside_scan)


class Deep(Protocol):
    """The fields of a model's configuration that `apply_blocks` reads."""

    @property
    def depth(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def drop_path(self) -> float: ...
    @property
    def scan(self) -> bool: ...
    @property
    def unrolled(self) -> bool: ...
    @property
    def remat(self) -> Remat: ...
    @property
    def maps(self) -> tuple[int, ...]: ...
    @property
    def shrinks(self) -> bool: ...


Layer = tuple[jax.Array, jax.Array] | None  # drop-path rate and key of a layer; None in evaluation
_NO_ATTRIBUTES: Mapping[int, Mapping[str, Any]] = {}


def apply_blocks(
    model: nn.Module,
    block: type[nn.Module],
    attributes: tuple[Any, ...],
    x_BLD: Any,
    cfg: Deep,
    key: jax.Array | None,
    shared: Any = None,
    own: Mapping[int, Mapping[str, Any]] = _NO_ATTRIBUTES,
) -> tuple[Any, list[Any]]:
    """Applies S equal blocks one after another, with or without a scan; both draw the same numbers.

    Without the scan, each block is a module with its own parameters. With `unrolled`, `maps`,
    `shrinks` or attributes of single blocks, the blocks use the stacked parameters of the scan, but
    avoid its stacked arrays of kept activations, and may change the number of tokens.
    Call this inside a compact method. A block maps (x, `Layer`, shared) to (x, None). Dense layers
    and modules with what fine-tuning adds are those of `added`.

    Args:
      model: the module that owns the blocks.
      block: the class of the blocks; with `ROUNDS_KERNELS = True` its parameters named `kernel` are
        only used in the dtype of the configuration, and may come in it.
      attributes: the attributes of every block.
      x_BLD: [B, L, D], or what else the blocks map.
      cfg: configuration with depth, drop path, scan, unrolled, remat, maps and shrinks.
      key: typed key; None in evaluation.
      shared: an argument that every block receives.
      own: number of a block, from 0 on -> its further attributes, which no parameter depends on.

    Returns:
      The output of the last block, and the output of each block that `cfg.maps` counts from 1.
    """
    layers_S: Layer = None
    if key is not None:
        layers_S = (jnp.linspace(0.0, cfg.drop_path, cfg.depth), jax.random.split(key, cfg.depth))
    unrolled = cfg.unrolled or cfg.maps or cfg.shrinks or own
    unrolled = unrolled and not model.is_initializing()
    asked = model.is_mutable_collection("intermediates")
    rows = products.as_rows(getattr(model, "rules", None))
    with added.to_layers(factors=products.factors(cfg.dtype), rows=rows):
        if cfg.scan and (not unrolled or (asked and not own)):
            blocks = nn.scan(
                rematerialised(block, cfg.remat, inside_scan=True),
                variable_axes={"params": 0, "intermediates": 0},
                split_rngs={"params": True},
                in_axes=(0, nn.broadcast),  # type: ignore[arg-type]
                length=cfg.depth,
            )
            x_BLD = blocks(*attributes, name="blocks")(x_BLD, layers_S, shared)[0]
            return x_BLD, [x_BLD] * len(cfg.maps)  # `maps` is only here to make the parameters

        alone = rematerialised(block, cfg.remat, inside_scan=False)

        def made(i: int, **options: Any) -> Any:
            return alone(*attributes, **own.get(i, {}), **options)

        rounds = getattr(block, "ROUNDS_KERNELS", False)
        outputs = unrolled_blocks.one_by_one(model, made, rounds, x_BLD, cfg, layers_S, shared)
        return [x_BLD, *outputs][-1], [outputs[level - 1] for level in cfg.maps]


def maps(tokens_BLD: Sequence[jax.Array], grid: tuple[int, ...]) -> tuple[jax.Array, ...]:
    """Returns tokens of patches as feature maps, float32 [B, rows, columns, D] each."""
    return tuple(x.reshape(x.shape[0], *grid, -1).astype(jnp.float32) for x in tokens_BLD)


def head(x_BD: jax.Array, classes: int, bias: float, name: str = "head") -> jax.Array:
    """Maps float32 [..., D] to logits [..., Y].

    The kernel starts at zero and the bias at a constant.

    With 0 classes the model has no head and returns the representation.
    """
    if not classes:
        return x_BD
    return nn.Dense(
        classes,
        kernel_init=nn.initializers.zeros,
        bias_init=nn.initializers.constant(bias),
        name=name,
    )(x_BD)
