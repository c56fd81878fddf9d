# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the compiler is told, and that a compiler that knows nothing of it still works."""

import subprocess
import sys
import threading

import jax
import pytest

from vit_jax.hardware import topology
from vit_jax.preflight.bench import our_steps
from vit_jax.preflight.bench.interleaved import Asked
from vit_jax.runtime import compile_ahead

ASKED = Asked("Ti/8", 8, 16, "float32", ("--config.platform=cpu", "--config.model.depth=1"))


@pytest.fixture(autouse=True)
def fresh():
    compile_ahead.options.cache_clear()
    yield
    compile_ahead.options.cache_clear()


@pytest.mark.integration
def test_products_of_a_step_are_not_given_to_ynnpack():
    lowered = our_steps.make(ASKED).lower_step()
    text = lowered.compile().as_text()
    plain = lowered.compile(
        compiler_options=dict.fromkeys(compile_ahead.options("cpu"), "")
    ).as_text()
    products = [line for line in text.splitlines() if " dot(" in line and "ynn" in line]
    assert not products
    assert "__ynn_fusion" in text  # sums still are
    assert "__ynn_fusion" not in plain


def test_other_devices_have_the_defaults_of_their_compiler():
    assert compile_ahead.options("tpu") == {}


def test_products_on_a_gpu_are_not_given_to_triton():
    assert compile_ahead.options("gpu")["xla_gpu_enable_triton_gemm"] is False


def test_options_that_a_compiler_does_not_know_are_left_out(monkeypatch, caplog):
    monkeypatch.setitem(compile_ahead._OPTIONS, "cpu", {"xla_cpu_make_it_fast": "true"})
    caplog.set_level("INFO", "vit_jax")
    assert compile_ahead.options("cpu") == {}
    assert "xla_cpu_make_it_fast" in caplog.text


def test_only_the_options_that_a_compiler_does_not_know_are_left_out(monkeypatch):
    known = compile_ahead._OPTIONS["cpu"]
    monkeypatch.setitem(compile_ahead._OPTIONS, "cpu", {"xla_cpu_make_it_fast": True, **known})
    assert compile_ahead.options("cpu") == known


def test_options_that_a_compiler_refuses_together_are_left_out(monkeypatch):
    monkeypatch.setitem(compile_ahead._OPTIONS, "cpu", {"a": True, "b": True})
    monkeypatch.setattr(compile_ahead, "_refusal", lambda some, _: "no" * (len(some) > 1))
    assert compile_ahead.options("cpu") == {}


def test_a_value_that_a_compiler_does_not_know_is_left_out(monkeypatch):
    (option,) = compile_ahead._OPTIONS["cpu"]
    monkeypatch.setitem(compile_ahead._OPTIONS, "cpu", {option: "LIBRARY_FUSION_TYPE_MAGIC"})
    assert compile_ahead.options("cpu") == {}
    assert jax.jit(lambda x: x + 1, compiler_options=compile_ahead.options("cpu"))(1) == 2


def test_programs_on_several_devices_have_options_of_their_own(monkeypatch):
    option = {"xla_cpu_enable_fast_math": True}
    monkeypatch.setitem(compile_ahead._OF_SEVERAL, "cpu", option)
    alone = compile_ahead.options("cpu", tuple(jax.devices()[:1]))
    devices = tuple(jax.devices()[:2])
    several = compile_ahead.options("cpu", devices)
    assert alone == compile_ahead.options("cpu")
    assert several == alone | option
    generation = topology.GENERATIONS["v4"]
    monkeypatch.setattr(topology, "generation_of", lambda kind: generation)
    compile_ahead.options.cache_clear()
    assert compile_ahead.options("cpu", devices) == alone


def test_the_compiler_of_a_device_of_this_process_is_asked():
    class OfAnother:
        process_index, device_kind = jax.process_index() + 1, "cpu"

    assert compile_ahead.options("cpu", (OfAnother(), jax.devices()[0])) != {}


class Lowered:
    """A program that a compiler refuses with some words, unless sums are not fused."""

    def __init__(self, words):
        self.words, self.asked = words, []

    def compile(self, options=None):
        self.asked.append(options)
        if not options:
            raise jax.errors.JaxRuntimeError(self.words)
        return "compiled"


def test_sums_are_not_fused_where_fast_memory_does_not_suffice(caplog):
    caplog.set_level("INFO", "vit_jax")
    lowered = Lowered("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem.\nMore.")
    assert compile_ahead.compiled(lowered) == "compiled"
    otherwise = {option: not value for option, value in compile_ahead._FUSED_SUMS.items()}
    assert lowered.asked == [None, otherwise]
    assert caplog.messages == [
        "sums over devices are not fused with other work: "
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem."
    ]
    lowered = Lowered("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.")
    with pytest.raises(jax.errors.JaxRuntimeError, match="hbm"):
        compile_ahead.compiled(lowered)
    assert lowered.asked == [None]


# ---------------------------------------------------------------- in a thread


def test_a_thread_compiles_in_order_and_says_what_went_wrong():
    def who():
        return threading.current_thread().name

    def wrong():
        raise ValueError("no such shape")

    with compile_ahead.ahead() as submit:
        found = [submit(who), submit(wrong), submit(who)]
    assert [found[0].result(60), found[2].result(60)] == ["compile", "compile"]
    with pytest.raises(ValueError, match="no such shape"):
        found[1].result(60)


def test_what_has_not_begun_when_the_rest_fails_is_left():
    begun, go = threading.Event(), threading.Event()

    def first():
        begun.set()
        return go.wait(60)

    found = []

    def fails():
        with compile_ahead.ahead() as submit:
            found.extend([submit(first), submit(lambda: 2)])
            assert begun.wait(60)
            raise RuntimeError("an image")

    with pytest.raises(RuntimeError, match="an image"):
        fails()
    assert found[1].cancelled()
    go.set()
    assert found[0].result(60)


WAITING = """
import sys, threading
from vit_jax.runtime import compile_ahead as compiling, process_exit as ending
begun = threading.Event()
with compiling.ahead() as submit:
    submit(lambda: [begun.set(), threading.Event().wait()])
    begun.wait()
sys.exit(ending.finish(2))
"""


@pytest.mark.integration
def test_the_command_does_not_wait_for_a_compilation_at_exit():
    assert subprocess.run([sys.executable, "-c", WAITING], timeout=120).returncode == 2


@pytest.mark.integration
def test_another_program_waits_and_ends_as_it_would():
    program = WAITING.replace(".wait()])", ".wait(1), print('compiled')])").replace(
        "sys.exit(ending.finish(2))", "print('caught')"
    )
    found = subprocess.run([sys.executable, "-uc", program], capture_output=True, timeout=120)
    assert (found.returncode, found.stdout.split()) == (0, [b"caught", b"compiled"])
