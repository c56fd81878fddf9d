# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Some errors are kept quiet, others not; test_damaged_checkpoints has a process on a full disk."""

import asyncio
import gc
import subprocess
import sys

import pytest

from vit_jax.checkpoints import orbax_workarounds


@pytest.mark.parametrize("file, told", [("orbax/checkpoint/x.py", False), ("mine.py", True)])
def test_errors_of_orbax_beside_the_one_it_raises_are_not_told(caplog, file, told):
    orbax_workarounds.silence()
    found = {}
    text = "async def write():\n  raise ValueError('no space left')\n"
    exec(compile(text, file, "exec"), found)

    async def save():
        await asyncio.wait([asyncio.ensure_future(found["write"]())])  # whose error nobody takes

    asyncio.run(save())
    gc.collect()
    assert ("exception was never retrieved" in caplog.text) == told


def test_errors_that_compiled_code_leaves_behind_are_not_told(caplog):
    orbax_workarounds.silence()

    async def save():
        asyncio.get_running_loop().create_future().set_exception(ValueError("no space left"))

    asyncio.run(save())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_only_answers_that_come_from_no_object_are_dropped():
    told = []
    closed, other = RuntimeError("Event loop is closed"), RuntimeError("another")

    class Found:
        def __init__(self, error, at):
            self.exc_value, self.object = error, at

    for error, at in ((closed, None), (closed, "a destructor"), (other, None)):
        orbax_workarounds._report_unraisable(told.append, Found(error, at))
    assert [(found.exc_value, found.object) for found in told] == [
        (closed, "a destructor"),
        (other, None),
    ]


def test_the_hook_is_set_once_and_asks_the_one_before():
    code = (
        "import sys; before = sys.unraisablehook; "
        "from vit_jax.checkpoints import orbax_workarounds; orbax_workarounds.silence(); "
        "orbax_workarounds.silence(); assert sys.unraisablehook.args == (before,)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
