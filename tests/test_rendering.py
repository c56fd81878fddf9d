# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax table`: every table in every format, the page of the documentation, what is refused."""

import csv
import io
import re
import shlex
import subprocess
import sys

import paper_runs
import pytest
import test_pages

from vit_jax.cli import main
from vit_jax.experiments.tables import filling, rendering, run_results
from vit_jax.experiments.tables.cells import TABLES, find


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a reproduction, something off, stand-ins, and what is broken."""
    root = tmp_path_factory.mktemp("runs")
    paper_runs.seeds(root / "a", [98.9, 98.95, 99.0])
    paper_runs.seeds(root / "b", [98.0, 98.1, 98.2], "model=B/32,dataset=cifar10",
                     init="imagenet21k/ViT-B_32.npz")  # fmt: skip
    paper_runs.transfer(root / "c", 97.0, "model=L/16,dataset=cifar10",
                        init="imagenet21k/ViT-L_16.npz",
                        data__source="synthetic:cifar10")  # fmt: skip
    paper_runs.pretrain(root / "d", "model=B/32,dataset=jft,fewshot=true",
                        {"fewshot_imagenet": {"5shot": 0.52}},
                        data__source="records:/jft/*", recipe__upstream="jft")  # fmt: skip
    (root / "broken").mkdir()
    (root / "broken" / "config.yaml").write_text("a: [")
    return root


@pytest.fixture(scope="module")
def filled(runs):
    with paper_runs.quick_yaml(), pytest.MonkeyPatch.context() as patch:
        found = run_results.read(runs)  # once for all tables
        patch.setattr(run_results, "read", lambda _: found)
        return {name: filling.fill(find(name), runs) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_markdown_has_aligned_columns_and_the_summary_last(filled, name):
    report = filled[name]
    lines = rendering.render_table(report, "md").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    bars = [[m.start() for m in re.finditer(r"(?<!\\)\|", line)] for line in table]
    assert all(one == bars[0] for one in bars)
    assert len(table) == len(report.cells) + 2
    assert lines[-1] == report.summary
    assert re.fullmatch(r"\d+ of \d+ public cells reproduced", lines[-1])


@pytest.mark.parametrize("name", TABLES)
def test_csv_has_a_row_a_cell_and_the_summary_last(filled, name):
    report = filled[name]
    header, *rows, last = csv.reader(io.StringIO(rendering.render_table(report, "csv")))
    assert header[-8:] == [
        "paper", "ours", "std", "difference", "seeds", "status", "fits also", "stand-in",
    ]  # fmt: skip
    assert len(rows) == len(report.cells)
    assert {len(row) for row in rows} == {len(header)}
    assert last == [report.summary]


@pytest.mark.parametrize("name", TABLES)
def test_html_is_one_whole_file_with_the_summary_last(filled, name):
    report = filled[name]
    text = rendering.render_table(report, "html")
    parsed = test_pages.check(text)
    rows = [tag for tag, _ in parsed.seen if tag == "tr"]
    assert len(rows) == len(report.cells) + 1
    assert [word for word in parsed.words if word.strip()][-1] == report.summary
    drawn = any(tag == "svg" for tag, _ in parsed.seen)
    assert drawn == (report.table.axes is not None or name in ("1", "5", "6", "figure13"))


def test_figure_draws_every_point_of_the_paper_and_ours(filled):
    page = test_pages.check(rendering.render_table(filled["figure4"], "html"))
    points = [a for tag, a in page.seen if tag == "use" and "#000000" not in a["style"]]
    legend = 6 + 1
    assert len(points) == 24 + 1 + legend  # 6 lines; ours is one point
    assert "ViT-B/32 (ours)" in page.all("text")
    panels = test_pages.check(rendering.render_table(filled["figure8"], "html"))
    assert [tag for tag, _ in panels.seen].count("svg") == 2


def test_row_shows_what_is_known(filled):
    rows = {tuple(row[:3]): row[3:] for row in csv.reader(
        io.StringIO(rendering.render_table(filled["5"], "csv")))}  # fmt: skip
    assert rows["ImageNet-21k", "CIFAR-10", "ViT-B/16"] == [
        "98.95", "98.95", "0.05", "+0.00", "3", "within tolerance",
        "ViT-B/32, ViT-L/16, ViT-L/32", "",
    ]  # fmt: skip
    assert rows["ImageNet-21k", "CIFAR-10", "ViT-B/32"] == [
        "98.79", "98.10", "0.10", "-0.69", "3", "off", "", "",
    ]  # fmt: skip
    assert rows["ImageNet-21k", "CIFAR-10", "ViT-L/16"] == [
        "99.16", "", "", "", "", "missing", "", "on synthetic:cifar10: 97.00 (1 run)",
    ]  # fmt: skip
    means = [row for row in csv.reader(io.StringIO(rendering.render_table(filled["9"], "csv")))
             if row[1:] and row[1].startswith("Mean")]  # fmt: skip
    assert {row[3] for row in means} == {"n/a"}


# ---------------------------------------------------------------- the command


def run(capsys, *args):
    code = main.main(["table", *map(str, args)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_command_prints_the_table_and_names_what_is_broken(capsys, runs):
    code, out, _ = run(capsys, 5, f"--runs={runs}")
    assert code == 0
    assert out.splitlines()[-1] == "1 of 54 public cells reproduced"
    assert f"not readable: {runs}/broken" in out
    code, out, err = run(capsys, 5, f"--runs={runs}", "--format=csv")
    assert out.splitlines()[-1] == "1 of 54 public cells reproduced"
    assert f"{runs}/broken" in err


def test_plan_as_a_script_is_a_command_a_line(capsys):
    code, out, _ = run(capsys, 5, "--plan", "--format=sh")
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert (code, len(lines)) == (0, 49)
    assert all(shlex.split(line)[:2] in (["vit_jax", "train"], ["vit_jax", "sweep"])
               for line in lines)  # fmt: skip
    code, out, _ = run(capsys, 5, "--plan", "--format=csv")
    rows = list(csv.reader(io.StringIO(out)))
    assert [row[0] for row in rows[1:]] == lines
    test_pages.check(run(capsys, 5, "--plan", "--format=html")[1])
    assert "49 commands" in run(capsys, 5, "--plan")[1]
    assert "No missing cell" in run(capsys, 7, "--plan")[1]


@pytest.mark.parametrize("form", ["md", "csv", "html"])
def test_protocol_without_a_name_lists_the_choices_with_their_evidence(capsys, form):
    code, out, _ = run(capsys, 5, "--protocol", f"--format={form}")
    assert code == 0
    if form == "html":
        out = " ".join(test_pages.check(out).words)
    for part in ("preprocess=released", "issue 53", "section 4.1", "dropout=0.1", "inference"):
        assert part in out


def test_protocol_without_a_name_takes_no_plan(capsys):
    code, _, said = run(capsys, 5, "--protocol", "--plan")
    assert (code, "leave out --plan and --runs" in said) == (2, True)


def test_table_names_protocol_and_dropout_and_what_it_does_not_tell_apart(filled):
    text = rendering.render_table(filled["5"], "md")
    assert "Protocol of the runs: released, dropout 0.1." in text
    assert (
        "Within tolerance, but not told apart: ViT-B/16 and ViT-B/32 (ImageNet-21k, CIFAR-10); "
        "ViT-B/16 and ViT-L/16 (ImageNet-21k, CIFAR-10); "
        "ViT-B/16 and ViT-L/32 (ImageNet-21k, CIFAR-10)."
    ) in text


@pytest.mark.parametrize(
    "args, parts",
    [
        (["rows"], ("unknown table 'rows'", "augreg3", "replication")),
        (["figure1", "--runs=."], ("figure1", "figure12")),
        (["5", "--runs=/no/such"], ("--runs=/no/such does not exist", "workdirs")),
        (["5", "--runs=/" + "x" * 5000], ("cannot be read (File name too long)", "workdirs")),
        (["5"], ("give --runs=DIR",)),
        (["5", "--runs="], ("give --runs=DIR",)),
        (["5", "--runs=.", "--format=pdf"], ("unknown --format 'pdf'", "md, csv, html")),
        (["5", "--runs=.", "--format=sh"], ("unknown --format 'sh'", "md, csv, html")),
    ],
)  # fmt: skip
def test_bad_input_says_what_to_do(capsys, args, parts):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert [part for part in parts if part not in err] == []
    assert "Traceback" not in err


def test_tables_of_settings_need_no_runs(capsys):
    code, out, _ = run(capsys, 4)
    assert (code, out.splitlines()[-1]) == (0, "54 of 54 public cells reproduced")


def test_commands_of_the_page_run(capsys, root, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```bash\n(.*?)```", (root / "docs/tables.md").read_text(), re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 5
    for command in commands:
        program, *args = shlex.split(command)
        assert program == "vit_jax"
        assert main.main(args) == 0


def test_page_explains_every_status(root):
    text = (root / "docs/tables.md").read_text()
    for status in (
        filling.MISSING, filling.RUNNING, *filling.FEW, filling.WITHIN, filling.OFF,
        filling.PRIVATE, filling.EXTERNAL, filling.ABSENT, filling.UNFILLABLE,
    ):  # fmt: skip
        assert f"`{status}`" in text


def test_help_and_the_room_import_neither_jax_nor_matplotlib():
    code = (
        "import sys; from vit_jax.cli import main; main.main(['table', '--help']); "
        "from vit_jax.experiments.tables import cells, rendering, filling; "
        "sys.exit(any(name in sys.modules for name in ('jax', 'tensorflow', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
