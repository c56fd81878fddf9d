# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The options of a Vision Transformer beside its sizes, and what does not go together.

Start from `check`.
"""

from vit_jax.errors import BadInput
from vit_jax.models import settings
from vit_jax.models.settings import Settings

OPTIONS = ("class_token", "distillation", "rope", "rope_base", "rope_coordinates", "rope_grid")
OPTIONS += ("rope_jitter", "rope_rescale", "stem_bias", "stem_norm", "norm", "norm_at")
OPTIONS += ("final_norm", "parallel", "layer_scale", "qk_norm", "gate", "mlp_norm", "biases")
OPTIONS += ("patch_dropout", "merge", "window", "global_blocks", "naflex")
OPTIONS += ("naflex_filter", "naflex_square")
OPTIONS += ("pool_heads", "pool_mlp")


def _at_stem(wanted: Settings) -> bool:
    """Returns True if a token carries its position, so that tokens may be left out."""
    relative = wanted.posemb in ("relative", "relative2d")
    return wanted.posemb_at == "stem" and wanted.rope == "none" and not relative


def check(wanted: Settings, width: int, *, hybrid: bool) -> None:
    """Raises BadInput for options that do not go together, with a width or with a backbone."""
    if wanted.naflex:
        from vit_jax.models import naflex

        naflex.check(wanted, hybrid)
    if wanted.pool_heads and width % wanted.pool_heads:
        raise BadInput(
            f"model.pool_heads={wanted.pool_heads} do not divide the width {width}; give a number "
            "that does."
        )
    _check_together(wanted)


def _check_together(wanted: Settings) -> None:
    """Raises BadInput for options that do not go together."""
    rotary = [n for n in OPTIONS if n.startswith("rope_") and n in settings.changed(wanted)]
    one_class = not wanted.distillation and not wanted.registers
    has_gelu = wanted.gate != "silu" or wanted.pool == "map"
    clashes = {
        "class_token=True: pool=token and token+gap always have one": (
            wanted.class_token and wanted.pool in ("token", "token+gap")
        ),
        "distillation=True needs pool=token and representation=0": (
            wanted.distillation and (wanted.pool != "token" or wanted.representation > 0)
        ),
        "distillation=True has learned positions: posemb=learned1d or none": (
            wanted.distillation and wanted.posemb not in ("learned1d", "none")
        ),
        "posemb=relative2d has one class token or none, and no registers": (
            wanted.posemb == "relative2d" and not one_class
        ),
        f"{', '.join(rotary)} without rope": bool(rotary) and wanted.rope == "none",
        "rope_grid scales rope_coordinates=index, and these are unit": (
            wanted.rope_grid > 0 and wanted.rope_coordinates == "unit"
        ),
        "parallel=True needs norm_at=pre: both branches read one norm": (
            wanted.parallel and wanted.norm_at != "pre"
        ),
        "patch_dropout needs positions that the stem adds: posemb_at=stem, no relative ones, and "
        "no rope": wanted.patch_dropout > 0 and not _at_stem(wanted),
        "merge needs positions that the stem adds: posemb_at=stem, no relative ones, and no rope": (
            wanted.merge > 0 and not _at_stem(wanted)
        ),
        "merge comes between attention and MLP, which parallel=True computes at once": (
            wanted.merge > 0 and wanted.parallel
        ),
        "window needs every patch: patch_dropout=0 and merge=0": (
            wanted.window > 0 and (wanted.patch_dropout > 0 or wanted.merge > 0)
        ),
        f"window has positions of patches that the stem adds or rope, not posemb={wanted.posemb}": (
            wanted.window > 0 and wanted.posemb in ("relative", "relative2d")
        ),
        "pool_heads and pool_mlp are those of pool=map": (
            wanted.pool != "map" and max(wanted.pool_heads, wanted.pool_mlp) > 0
        ),
        "naflex_filter and naflex_square without naflex": (
            not wanted.naflex and (wanted.naflex_filter != "bilinear" or wanted.naflex_square)
        ),
        "global_blocks without window": wanted.global_blocks != 4 and not wanted.window,
        "final_norm=pooled: pool=map has a norm of its own after the tokens'": (
            wanted.final_norm == "pooled" and wanted.pool == "map"
        ),
        f"gelu={wanted.gelu} with gate=silu, which has no GELU": (
            wanted.gelu != "auto" and not has_gelu
        ),
    }
    if wrong := [reason for reason, clash in clashes.items() if clash]:
        raise BadInput(f"model {wanted.variant}: {wrong[0]}; leave one of them out.")
