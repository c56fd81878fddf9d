# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Two processes with a local tier each, whose folders are lost and damaged; as a program, one.

    python tier_pair.py INDEX HOST:PORT FOLDER rounds COUNT SEED
    python tier_pair.py INDEX HOST:PORT FOLDER training

Start from `rounds` and `training`.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from interrupted_runs import STEPS
from jax.sharding import NamedSharding, PartitionSpec
from test_train import QUICKSTART, run

from vit_jax import sharding
from vit_jax.checkpoints import local_tier
from vit_jax.config import frozen
from vit_jax.config import load as config_lib
from vit_jax.runtime import coordination
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.step.state import TrainState
from vit_jax.training import train

LOSSES = ("nothing", "folder", "both folders", "flip", "truncate", "no checksum", "cut short")


def near(folder, index):
    return folder / f"near{index}"


def placed(replica):
    """Returns what an array of two dimensions, and one of none, are placed by."""
    mesh = sharding.make_mesh(replica=replica, data=1, fsdp=-1, tensor=1)
    return NamedSharding(mesh, PartitionSpec("fsdp")), NamedSharding(mesh, PartitionSpec())


def numbers(tag):
    """Returns the arrays of a state: each number says when it was saved."""
    half = (np.arange(16 * 3).reshape(16, 3) + 100 * tag).astype(jnp.bfloat16)
    return np.int32(tag), {"a": np.full((16, 5), tag, np.float32), "b": half}


def state(tag, places):
    step, params = numbers(tag)

    def put(x, place):
        return jax.make_array_from_callback(x.shape, place, lambda index: x[index])

    params = {name: put(x, places[0]) for name, x in params.items()}
    return TrainState(put(np.asarray(step), places[1]), params, {}, None)


def assert_is(found, tag):
    """Checks that every part that this process holds is that of a state, bit for bit."""
    step, params = numbers(tag)
    pairs = [(found.step, np.asarray(step)), *((found.params[k], x) for k, x in params.items())]
    for array, expected in pairs:
        for shard in array.addressable_shards:
            np.testing.assert_array_equal(
                np.asarray(shard.data), expected[shard.index], strict=True
            )


def opened(folder, places):
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0, places)
    )
    path = str(near(folder, jax.process_index()))
    facts = {"seed": "1"}
    return local_tier.opened(path, folder, abstract, facts, every=1, every_minutes=0)


def lose(folder, loss, step, chance):
    """Loses something of the newest step, or whole folders; returns (folders, file) that it hit."""
    victim = chance.randrange(2)
    if loss in ("folder", "both folders"):
        victims = {0, 1} if loss == "both folders" else {victim}
        for index in victims:
            shutil.rmtree(near(folder, index), ignore_errors=True)
        return victims
    number = chance.randrange(2)
    for path in near(folder, victim).glob(f"*/{step}-*/{number}.arrays"):
        content = bytearray(path.read_bytes())
        if loss == "flip":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        elif loss == "truncate":
            del content[chance.randrange(len(content)) :]
        path.write_bytes(content)
        if loss in ("no checksum", "cut short"):
            path.with_suffix(".json").unlink()
        if loss == "cut short":
            path.unlink()
    return victim, number


def rounds(folder, count, seed, replica=1):
    """Saves, loses at random and restores; what is restored must be what the losses left.

    `disk` is told what was saved and lost, and looks at no file: step -> its tag, and
    {(folder, file)} that are whole.
    """
    chance, places = random.Random(seed), placed(replica)
    disk, step, seen = {}, 0, []
    everything = {(h, n) for h in range(2) for n in range(2) if replica == 1 or h == n}
    for number in range(count):
        with opened(folder, places) as tier:
            whole = [
                s for s, (_, files) in disk.items()
                if (len(files) > 0 if replica == 2 else {n for _, n in files} == {0, 1})
            ]  # fmt: skip
            expected = max(whole, default=None)
            tier.newest()
            found = tier.restore(-1)
            assert (found and found[1]) == expected, (number, found and found[1], expected, disk)
            if found:
                assert_is(found[0], disk[expected][0])
                step = expected
            kept = {expected: disk[expected]} if found else {}
            for h in range(2) if found else ():  # who lacked its own file has fetched one
                files = disk[expected][1]
                if not any(f[0] == h and (replica == 2 or f[1] == h) for f in files):
                    files.add((h, h if replica == 1 else 1 - h))
            for _ in range(chance.randint(1, 3)):
                step += 1
                tag = 1000 * step + number
                tier.save(step, state(tag, places))
                tier._writing.result()
                coordination.barrier("saved")
                kept = dict(list(kept.items())[-1:]) | {step: (tag, set(everything))}
            disk = kept
        loss = chance.choice(LOSSES)
        seen.append(loss)
        where = None
        coordination.barrier("closed")
        if coordination.is_first():
            where = lose(folder, loss, step, chance)
        where = coordination.share("loss", sorted(where) if isinstance(where, set) else where)
        chance.seed(f"{seed} {number}")  # process 0 has drawn more
        if loss in ("folder", "both folders"):
            for _, files in disk.values():
                files -= {f for f in files if f[0] in where}
        elif loss != "nothing":
            disk[step][1].discard(tuple(where))
    return seen


def patient(tier, step, state, save=local_tier.LocalTier.save):
    """Saves once the state before is written: on a busy machine, a run leaves states out."""
    if tier._writing:
        tier._writing.result()
        coordination.barrier("written")
    save(tier, step, state)
    if step == 3:  # its copies are with the peers before a process ends
        tier._writing.result()
        coordination.barrier("step 3 is written")


def training(folder):
    """Trains into FOLDER/whole; and into FOLDER/cut, where a host is lost with its folder."""
    given = (
        *STEPS, "--config.mesh.data=1", "--config.mesh.fsdp=-1",
        "--config.checkpoint.every=4 steps", "--config.accumulation=2",
        "--config.ema.decay=0.9", "--config.batch_size=64",
    )  # fmt: skip
    path = f"--config.checkpoint.local.path={near(folder, jax.process_index())}"
    tier = (path, "--config.checkpoint.local.every=1 steps")
    real = train.Window.add
    local_tier.LocalTier.save = patient

    def dies(self, step, metrics):
        real(self, step, metrics)
        if step == 4:  # step 3 is in the local tier, nothing is in the workdir
            raise KeyboardInterrupt

    assert run(folder / "whole", *given) == 0
    train.Window.add = dies
    try:
        run(folder / "cut", *given, *tier)
    except KeyboardInterrupt:
        train.Window.add = real
    coordination.barrier("cut")
    if coordination.is_first():
        shutil.rmtree(near(folder, 1))
    coordination.barrier("lost")
    assert run(folder / "cut", *given, *tier) == 0


if __name__ == "__main__":
    index, address, folder, what, *more = sys.argv[1:]
    who = ProcessIdentity(address, 2, int(index), "the test")
    waiting = frozen.arguments(config_lib.load(QUICKSTART).processes)
    with coordination.session(who, Path(folder), **waiting):
        if what == "training":
            training(Path(folder))
        else:
            seen = rounds(Path(folder), *map(int, more))
            if coordination.is_first():
                print(json.dumps(seen))
