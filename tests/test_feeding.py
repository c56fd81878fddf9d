# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The CPUs that a plan says a host needs, and the page on feeding."""

import json
import math
import re
from pathlib import Path

import pytest

from vit_jax.cli import main
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.models import variants
from vit_jax.preflight.plan import feeding

PAGE = (Path(__file__).parent.parent / "docs" / "feeding.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name, hosts, cpus", [
    ("v3-8", 1, 96), ("v3-32", 4, 96), ("v4-8", 1, 240), ("v4-256", 32, 240),
    ("v5litepod-1", 1, 28), ("v5litepod-4", 1, 112), ("v5litepod-8", 1, 224),
    ("v5litepod-16", 4, 112), ("v5p-8", 1, 208), ("v6e-8", 1, 180), ("v6e-16", 4, 180),
    ("tpu7x-8", 1, 224), ("h100-8", 1, 208), ("h100-16", 2, 208), ("h100-1", 1, 26),
    ("a100-80gb-8", 1, 96), ("cpu-2", 1, 0),
])  # fmt: skip
def test_hosts_have_the_cpus_of_their_machine_type(name, hosts, cpus):
    accelerator = topology.find(name)
    assert (accelerator.hosts, accelerator.cpus_per_host) == (hosts, cpus)


def test_every_host_has_its_share_of_the_images():
    found = feeding.of_plan(topology.find("h100-16"), 1, 320_000, 800.0)
    assert (found.images_per_sec, found.needed, found.is_short) == (160_000, 200, False)
    assert feeding.of_plan(topology.find("v4-256"), 2, 64_000, 800.0).images_per_sec == 1000
    short = feeding.of_plan(topology.find("h100-16"), 1, 320_000, 750.0)
    assert (short.needed, short.is_short) == (214, True)
    assert short.in_words().endswith("214 of 208 CPUs at 750 images/s each; TOO FEW, see "
                                     "docs/feeding.md")  # fmt: skip
    assert not feeding.of_plan(topology.find("cpu-2"), 1, 1e9, 1.0).is_short  # not known


PLAN = ["plan", "--config=configs/base.py", "--accelerator=h100-8", "--config.batch_size=64",
        "--config.model.depth=1"]  # fmt: skip


@pytest.mark.integration
def test_a_plan_takes_the_rate_that_was_measured(tmp_path, capsys):
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"pipelines": {"ours": {"images_per_sec_per_core": 2.5}}}))
    assert main.main([*PLAN, "--json", f"--data_bench={file}"]) == 0
    found = json.loads(capsys.readouterr().out)
    of_input = found["input"]
    assert of_input["images_per_sec_per_host"] == pytest.approx(found["images_per_sec"])
    assert of_input["cpus_needed"] == math.ceil(found["images_per_sec"] / 2.5)
    assert (of_input["images_per_sec_per_cpu"], of_input["cpus_per_host"]) == (2.5, 208)


@pytest.mark.integration
def test_each_view_of_a_plan_is_an_image(capsys):
    small = [word.replace("base.py", "contrastive.py") for word in PLAN]
    assert main.main([*small, "--json", "--config.data.source=digits"]) == 0
    assert json.loads(capsys.readouterr().out)["input"]["images_per_sec_per_cpu"] == 800 / 2


@pytest.mark.parametrize("content, part", [
    (None, "No such file"), ("{", "is not what data bench prints"),
    ('{"pipelines": {}}', "is not what data bench prints"), ("[1]", "is not what data bench"),
    ('{"pipelines": {"ours": {"images_per_sec_per_core": 0}}}', "measure again"),
])  # fmt: skip
def test_another_file_is_refused(tmp_path, content, part):
    file = tmp_path / "bench.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadInput, match=part):
        feeding.rate_of(str(file))


def test_the_page_has_the_numbers_of_the_table_of_accelerators():
    rows = re.findall(r"^\| (\w+) \| (\d) \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == ["v4", "v5e", "v5p", "v6e", "h100"]
    for name, chips, cpus, cells in rows:
        size = int(chips) * topology.GENERATIONS[name].per_chip
        accelerator = topology.find(f"{name}-{size}")
        assert (accelerator.chips, accelerator.hosts) == (int(chips), 1)
        assert accelerator.cpus_per_host == int(cpus)
        numbers = [int(cell.replace(",", "")) for cell in cells.split(" | ")]
        for variant, images, needed in zip(
            ("S/16", "B/16", "L/16"), numbers[::2], numbers[1::2], strict=True
        ):
            flops = variants.config(variant=variant, classes=1000).forward_flops(224, 224)
            rate = 0.45 * accelerator.generation.flops * accelerator.devices / (3 * flops)
            assert images == round(rate)
            assert needed == math.ceil(rate / feeding.USUAL)


@pytest.mark.integration
def test_commands_of_the_page_run_one_after_the_other(tmp_path, image_folder, capsys):
    text, *_ = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    measure, plan = text.replace("/path/to/images", str(image_folder)).splitlines()
    file = tmp_path / "bench.json"
    assert main.main(measure.partition(" > ")[0].split()[1:]) == 0
    file.write_text(capsys.readouterr().out)
    words = plan.replace("=bench.json", f"={file}").split()[1:]
    assert main.main(words) == 0
    (line,) = re.findall(r"^input .*$", capsys.readouterr().out, re.MULTILINE)
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    images = re.search(r"[\d,]+ images/s on each host: ", shown)[0]
    assert images in line
    assert f"at {feeding.rate_of(str(file)):,.0f} images/s each" in line
