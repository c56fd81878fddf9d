# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The mesh and the placement of every array on it, on eight devices."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest
import tiny
from jax.sharding import PartitionSpec

from vit_jax import sharding, tree
from vit_jax.errors import BadInput
from vit_jax.models import vit
from vit_jax.optim import optimizers
from vit_jax.step import state, train_step
from vit_jax.step.classification import Classification
from vit_jax.step.objective import Network

TABLE = (
    ("act_batch", ("replica", "data", "fsdp")),
    ("act_heads", ("tensor",)),
    ("act_mlp", ("tensor",)),
    ("embed", ("fsdp",)),
    ("heads", ("tensor",)),
    ("mlp", ("tensor",)),
)


def rules(replica=1, data=-1, fsdp=1, tensor=1, table=TABLE):
    mesh = sharding.make_mesh(replica=replica, data=data, fsdp=fsdp, tensor=tensor)
    return sharding.Rules(mesh, table)


# --- mesh ---


@pytest.mark.parametrize(
    "sizes, shape",
    [
        ((1, -1, 1, 1), (1, 8, 1, 1)),
        ((1, -1, 2, 2), (1, 2, 2, 2)),
        ((2, 2, -1, 1), (2, 2, 2, 1)),
        ((-1, 1, 1, 8), (1, 1, 1, 8)),
        ((1, 2, 2, 2), (1, 2, 2, 2)),
    ],
)
def test_mesh_shape_fills_the_devices(sizes, shape):
    given = dict(zip(sharding.MESH_AXES, sizes, strict=True))
    assert sharding.mesh_shape(**given, devices=8) == shape
    assert tuple(sharding.make_mesh(**given).shape.items()) == tuple(
        zip(sharding.MESH_AXES, shape, strict=True)
    )


def test_mesh_over_some_of_the_devices():
    mesh = sharding.make_mesh(replica=1, data=-1, fsdp=1, tensor=2, devices=jax.devices()[:4])
    assert dict(mesh.shape) == {"replica": 1, "data": 2, "fsdp": 1, "tensor": 2}


@pytest.mark.parametrize(
    "sizes",
    [
        {"data": 3},
        {"data": 16},
        {"data": -1, "tensor": 3},
        {"data": 2, "fsdp": 2, "tensor": 4},
        {"data": 3, "fsdp": -1},
        {"data": -1, "fsdp": 16},
        {"replica": 3, "data": -1},
        {"replica": 3, "data": 1},
        {"replica": 2, "data": 4, "tensor": 3},
    ],
)
def test_mesh_that_does_not_fit_names_one_that_does(sizes):
    given = {"replica": 1, "data": 1, "fsdp": 1, "tensor": 1} | sizes
    with pytest.raises(BadInput) as caught:
        sharding.mesh_shape(**given, devices=8)
    assert "there are 8" in str(caught.value)
    (advice,) = re.findall(r"; (.*) fits\.", str(caught.value))
    changes = {name: int(size) for name, size in re.findall(r"(\w+)=(-?\d+)", advice)}
    assert changes
    assert np.prod(sharding.mesh_shape(**given | changes, devices=8)) == 8


def test_one_mesh_size_is_free():
    with pytest.raises(BadInput, match="at most one size is -1"):
        sharding.mesh_shape(replica=1, data=-1, fsdp=-1, tensor=1, devices=8)


# --- rules ---


def test_spec_joins_meaning_and_placement():
    ours = rules(data=2, fsdp=2, tensor=2)
    assert ours.spec(("embed", "heads", "head_dim"), (32, 4, 7)) == PartitionSpec(
        ("fsdp",), ("tensor",), None
    )
    assert ours.spec(("act_batch", None, None), (8, 5, 5)) == PartitionSpec(
        ("data", "fsdp"), None, None
    )
    assert ours.sharding(("embed",), (32,)).mesh == ours.mesh
    assert ours.batch_parts == 4
    assert ours.replicated.is_fully_replicated


def test_mesh_axes_of_size_one_split_nothing():
    assert rules().spec(("embed", "mlp"), (31, 47)) == PartitionSpec(None, None)


@pytest.mark.parametrize("size, fits", [(33, "32 or 34"), (1, "of 2.")])
def test_indivisible_dimension_names_the_nearest_sizes(size, fits):
    with pytest.raises(BadInput) as caught:
        rules(fsdp=2).spec(("mlp", "embed"), (48, size), "blocks/mlp/down/kernel")
    for word in ("blocks/mlp/down/kernel", "dimension 1 (embed)", f"size {size}", "fsdp=2", fits):
        assert word in str(caught.value)


def test_indivisible_batch_names_all_axes_it_is_split_over():
    with pytest.raises(BadInput, match=r"data\*fsdp=4; data\*fsdp=3 would fit, or sizes of 4 or 8"):
        rules(data=2, fsdp=2, tensor=2).spec(("act_batch",), (6,))


def test_mesh_axis_used_twice_names_the_array():
    table = (("embed", ("tensor",)), ("mlp", ("tensor",)))
    with pytest.raises(BadInput, match=r"w/kernel: mesh axis 'tensor' is used twice"):
        rules(tensor=2, table=table).spec(("embed", "mlp"), (32, 48), "w/kernel")


def test_mesh_axis_used_twice_for_one_dimension_is_bad_input():
    with pytest.raises(BadInput, match="tensor"):
        rules(tensor=2, table=(("mlp", ("tensor", "tensor")),)).sharding(("mlp",), (48,))


@pytest.mark.parametrize(
    "entry, words",
    [
        (("embd", ("fsdp",)), ["'embd'", "embed, heads"]),
        (("embed", ("fdsp",)), ["fdsp", "replica, data, fsdp, tensor"]),
    ],
)
def test_unknown_axes_in_the_table_are_listed(entry, words):
    with pytest.raises(BadInput) as caught:
        rules(table=(entry,))
    for word in words:
        assert word in str(caught.value)


def test_number_of_axes_must_be_that_of_dimensions():
    with pytest.raises(ValueError, match=r"head/bias: 2 logical axes"):
        rules().spec(("embed", "mlp"), (32,), "head/bias")


def test_rules_can_be_compared_and_hashed():
    assert rules() == rules()
    assert hash(rules()) == hash(rules())
    assert rules() != rules(fsdp=2)


# --- parameters ---


def test_models_use_known_axes_only():
    used = {axis for axes in vit.AXES.values() for axis in axes if axis is not None}
    assert used <= set(sharding.LOGICAL_AXES)


def test_parameter_without_a_rule_raises():
    params = {"head": {"kernel": np.zeros((2, 3)), "temperature": np.zeros(1)}}
    with pytest.raises(ValueError, match=r"head/temperature \(1,\) has no logical axes"):
        sharding.param_axes(params, vit.AXES)


def test_parameter_with_other_dimensions_than_its_rule_raises():
    with pytest.raises(ValueError, match=r"head/kernel has shape \(2, 3, 4\)"):
        sharding.param_axes({"head": {"kernel": np.zeros((2, 3, 4))}}, vit.AXES)


def test_stacked_parameters_have_a_layer_axis_in_front():
    shapes = {"mlp": {"up": {"kernel": np.zeros((2, 3, 4))}}}
    found = sharding.param_axes({"blocks": shapes}, vit.AXES)
    assert found == {"blocks/mlp/up/kernel": ("layers", "embed", "mlp")}


OPTIONS = {
    "adamw": {"b1": 0.9, "b2": 0.99, "eps": 1e-8, "mu_dtype": "bfloat16"},
    "sgd": {"momentum": 0.9, "nesterov": False, "accumulator_dtype": "bfloat16"},
    "adafactor": {
        "momentum": 0.9,
        "beta2_cap": 0.999,
        "min_factored": 16,
        "accumulator_dtype": "bfloat16",
    },
    "lamb": {"b1": 0.9, "b2": 0.99, "eps": 1e-6},
    "lion": {"b1": 0.9, "b2": 0.99, "mu_dtype": "bfloat16"},
    "muon": {
        "momentum": 0.95,
        "iterations": 5,
        "rms": 0.2,
        "b1": 0.9,
        "b2": 0.95,
        "eps": 1e-8,
        "mu_dtype": "bfloat16",
    },
}


def abstract_state(cfg, name, ema=True):
    params = tiny.shapes(cfg)
    tx = optimizers.make_optimizer(
        params, lambda _: 0.1, name=name, weight_decay=0.1, **OPTIONS[name]
    )
    return tx, jax.eval_shape(lambda p: state.from_params(p, tx, ema=ema), params)


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_moments_and_average_are_placed_as_their_parameters(name, scan):
    cfg = tiny.config(scan=scan, pool="map", representation=8)
    ours = rules(data=2, fsdp=2, tensor=2)
    _, abstract = abstract_state(cfg, name)
    axes = sharding.param_axes(abstract.params, vit.AXES)
    places = sharding.place(abstract, axes, ours)
    of_params = dict(tree.leaves_with_paths(places.params))
    shapes = dict(tree.leaves_with_paths(abstract.params))
    assert dict(tree.leaves_with_paths(places.ema)) == of_params
    assert len({place.spec for place in of_params.values()}) > 4
    seen = 0
    for (path, leaf), (_, place) in zip(
        tree.leaves_with_paths(abstract.opt_state),
        tree.leaves_with_paths(places.opt_state),
        strict=True,
    ):
        owners = [p for p in shapes if path.endswith("/" + p) and shapes[p].shape == leaf.shape]
        if owners:
            seen += 1
            assert place == of_params[max(owners, key=len)], path
            continue
        factored = [
            p for p in shapes if leaf.ndim and path.endswith("/" + p) and min(leaf.shape) > 1
        ]
        if factored:  # rows or columns of a matrix
            spec = list(of_params[max(factored, key=len)].spec)
            assert list(place.spec) in [spec[:k] + spec[k + 1 :] for k in range(len(spec))], path
        else:
            assert place.is_fully_replicated, path
    full_copies = 2 if name in ("adamw", "lamb") else 1
    assert seen >= full_copies * len(shapes)


def test_state_is_created_in_its_places():
    cfg, ours = tiny.config(), rules(data=2, fsdp=2, tensor=2)
    tx, abstract = abstract_state(cfg, "adamw")
    places = sharding.place(abstract, sharding.param_axes(abstract.params, vit.AXES), ours)
    init = jax.jit(lambda p: state.from_params(p, tx, ema=True), out_shardings=places)
    made = init(tiny.params(cfg))
    leaves = dict(tree.leaves_with_paths(made))
    kernels = [x for path, x in leaves.items() if path.endswith("blocks/mlp/up/kernel")]
    assert len(kernels) == 4  # parameter, two moments, average
    for kernel in kernels:
        assert kernel.shape == (3, 32, 48)
        assert {s.data.shape for s in kernel.addressable_shards} == {(3, 16, 24)}
    assert made.step.sharding.is_fully_replicated


def test_tensor_size_that_does_not_divide_heads_names_the_parameter():
    _, abstract = abstract_state(tiny.config(heads=1), "sgd")
    axes = sharding.param_axes(abstract.params, vit.AXES)
    with pytest.raises(BadInput, match=r"attn/\w+/\w+: dimension \d \(heads\) of size 1"):
        sharding.place(abstract, axes, rules(tensor=2))


# --- activations ---


def test_constrain_without_rules_is_identity():
    x = np.zeros((3, 5))
    assert sharding.constrain(x, ("act_batch", "act_embed"), None) is x


def constraints(text: str) -> list[str]:
    return re.findall(r"sharding_constraint %\S+ <@\w+, (\[.*?\])>", text)


def lowered_step(cfg, ours):
    tx, abstract = abstract_state(cfg, "sgd", ema=False)
    model = vit.ViT(cfg, ours)
    network = Network(
        lambda p, x, *, train, key: model.apply({"params": p}, x, train=train, key=key),
        (0.5,) * 3,
        (0.5,) * 3,
    )
    step = train_step.make_train_step(Classification(cfg.classes), network, tx)
    batch = {
        "image": jax.ShapeDtypeStruct((8, tiny.HEIGHT, tiny.WIDTH, 3), np.uint8),
        "labels": jax.ShapeDtypeStruct((8, 1), np.int32),
        "_mask": jax.ShapeDtypeStruct((8,), np.bool_),
    }
    return jax.jit(step).lower(abstract, batch, jax.random.key(0)).as_text()


@pytest.mark.parametrize("pool, of_pool", [("gap", 0), ("map", 4)])
def test_lowered_step_contains_every_constraint(pool, of_pool):
    cfg = tiny.config(scan=False, pool=pool)
    found = constraints(lowered_step(cfg, rules(data=2, fsdp=2, tensor=2)))
    # Stem, and for each block query, key, value, hidden layer and result; more in the gradient.
    assert len(found) >= 1 + 5 * cfg.depth + of_pool
    kinds = set(found)
    assert '[{"data", "fsdp"}, {}, {}]' in kinds  # tokens
    assert '[{"data", "fsdp"}, {}, {"tensor"}, {}]' in kinds  # heads
    assert '[{"data", "fsdp"}, {}, {"tensor"}]' in kinds  # hidden layer of the MLP


def test_scanned_step_contains_the_constraints_of_one_block():
    assert len(constraints(lowered_step(tiny.config(), rules(data=2, fsdp=2, tensor=2)))) >= 6


def test_step_without_rules_contains_no_constraint():
    cfg = dataclasses.replace(tiny.config(), depth=1)
    assert "sharding_constraint" not in lowered_step(cfg, None)


# --- several slices ---


def in_slices(count: int, platform: str = "like a TPU") -> list[types.SimpleNamespace]:
    """Eight devices of another platform that come in slices."""

    class Device(types.SimpleNamespace):
        def __hash__(self):
            return self.id

    return [
        Device(
            id=i, platform=platform, device_kind="x", process_index=0, slice_index=i * count // 8
        )
        for i in range(8)
    ]


def test_replica_is_the_slice_and_the_other_axes_stay_inside():
    mesh = sharding.make_mesh(replica=2, data=2, fsdp=2, tensor=1, devices=in_slices(2))
    slices = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert mesh.axis_names == sharding.MESH_AXES
    assert mesh.devices.shape == (2, 2, 2, 1)
    assert (slices[0] == 0).all()
    assert (slices[1] == 1).all()


@pytest.mark.parametrize("replica, slices", [(1, 2), (2, 1), (4, 2)])
def test_another_number_of_slices_names_the_right_one(replica, slices):
    with pytest.raises(BadInput, match=rf"replica={replica}.*replica={slices}\."):
        sharding.make_mesh(replica=replica, data=-1, fsdp=1, tensor=1, devices=in_slices(slices))


def test_hosts_with_gpus_are_no_slices():
    """XLA gives the GPUs of each host a slice_index of their own; fsdp may cross hosts."""
    devices = in_slices(2, "gpu")
    mesh = sharding.make_mesh(replica=0, data=1, fsdp=8, tensor=1, devices=devices)
    assert mesh.devices.shape == (1, 1, 8, 1)
    with pytest.raises(BadInput, match="1 slice"):
        sharding.make_mesh(replica=2, data=-1, fsdp=1, tensor=1, devices=devices)
