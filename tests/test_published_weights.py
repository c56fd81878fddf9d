# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published weights: their names, their addresses and their download."""

import hashlib
import http.server
import json
import logging
import re
import socket
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

from vit_jax.errors import BadInput
from vit_jax.models import published
from vit_jax.models.published import CHECKPOINTS, url
from vit_jax.weights import download

# --- names and addresses ---


NAMES = [name for names in CHECKPOINTS.values() for name in names]
PRETRAINED = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"


@pytest.fixture(scope="module")
def tables(data_dir) -> dict:
    path = data_dir.parent / "paper" / "upstream_checkpoint_tables.json"
    if not path.is_file():
        pytest.skip(f"no tables of published checkpoints: {path}")
    return json.loads(path.read_text())


def path_in_bucket(address: str) -> tuple[str, str]:
    host, bucket, path = re.fullmatch(r"(https://[^/]+)/(\w+)/(.+)", address).groups()
    assert host == published.HOST
    return bucket, urllib.parse.unquote(path)


def test_every_listed_name_has_a_url_that_ends_in_it():
    assert len(NAMES) == len(set(NAMES)) > 70
    assert {path_in_bucket(url(name))[1] for name in NAMES} == set(NAMES)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("imagenet21k/ViT-B_16.npz", "vit_models/imagenet21k/ViT-B_16.npz"),
        ("imagenet21k/Mixer-B_16.npz", "mixer_models/imagenet21k/Mixer-B_16.npz"),
        ("sam/ViT-B_32.npz", "vit_models/sam/ViT-B_32.npz"),
        ("sam/Mixer-B_32.npz", "mixer_models/sam/Mixer-B_32.npz"),
        (
            "imagenet21k+imagenet2012/R50+ViT-B_16.npz",
            "vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
        ),
        (f"{PRETRAINED}.npz", f"vit_models/{PRETRAINED}.npz"),
        ("BiT-M-R50x1.npz", "bit_models/BiT-M-R50x1.npz"),
        ("distill/R152x2_T_384.npz", "bit_models/distill/R152x2_T_384.npz"),
    ],
)
def test_the_file_name_decides_the_bucket(name, expected):
    assert url(name) == f"{published.HOST}/{expected}"


def test_a_variant_and_its_files_name_the_same_model():
    for variant, names in CHECKPOINTS.items():
        assert re.fullmatch(r"((R(26|50)?\+)?(Ti|S|B|L|H)|Mixer-[SBL])/\d+|BiT-R\d+x\d", variant)
        letters = set(re.findall(r"\w+", variant.removeprefix("BiT-")))
        for name in names:
            assert letters <= set(re.split(r"[-_+/.]", name)), (variant, name)


@pytest.mark.parametrize(
    "variant, name",
    [
        ("B/16", "imagenet21k+imagenet2012/ViT-B_16-224.npz"),
        ("R50+B/16", "imagenet21k/R50+ViT-B_16.npz"),
        (
            "R26+S/32",
            "augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        ("R+Ti/16", "augreg/R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0.npz"),
        ("Mixer-B/16", "imagenet1k/Mixer-B_16.npz"),
        ("BiT-R50x1", "BiT-M-R50x1-ILSVRC2012.npz"),
        ("BiT-R50x1", "distill/R50x1_224.npz"),
    ],
)
def test_files_stand_under_their_variant(variant, name):
    assert name in CHECKPOINTS[variant]


def test_the_listed_folders_are_those_of_the_tables(tables):
    expected = {
        f"{folder.removeprefix('gs://')}{stem}.npz"
        for folder, stems in tables["checkpoint_files"]["buckets"].items()
        for stem in stems
    }
    listed = {"/".join(path_in_bucket(url(name))) for name in NAMES}
    others = [x for x in listed if not re.match("bit_models|vit_models/augreg", x)]
    assert set(others) == expected


def test_the_listed_augreg_files_are_the_recommended_ones(tables):
    found = tables["augreg_recommended"]
    rows = [*found["rows"], *found["extra"]]
    assert len(rows) == 10
    for row in rows:
        if "pretrained" in row:
            names = [f"augreg/{row[key]}.npz" for key in ("pretrained", "finetuned")]
        else:
            keys = ("pretrained_checkpoint", "finetuned_checkpoint")
            names = [row[key].removeprefix("gs://vit_models/") for key in keys]
        listed = [name for name in CHECKPOINTS[row["model"]] if name.startswith("augreg/")]
        assert listed == names


def test_every_adaptation_of_the_tables_is_in_the_scheme(tables):
    steps = {500: "0k", 2500: "2k", 10000: "10k", 20000: "20k"}
    names = [
        f"{PRETRAINED}--{data}-steps_{steps[n]}-lr_{lr}-res_{side}.npz"
        for data, grid in tables["naming_scheme"]["augreg_adapt_grid"].items()
        for n in grid["steps"]
        for lr in grid["lr"]
        for side in (224, 384)
    ]
    assert len(names) == tables["naming_scheme"]["augreg_adaptations_per_pretrained_checkpoint"]
    assert all(url(name) for name in names)


def test_the_scheme_has_as_many_pretrainings_as_were_published(tables):
    values = tables["naming_scheme"]["augreg_values"]
    names = [
        f"augreg/{model}-{data}ep-lr_0.001-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}.npz"
        for model in values["MODEL"]
        for data in ("i1k-300", "i21k-300", "i21k-30")
        for aug in values["AUG"]
        for wd in values["WD"]
        for do in values["DO"]
        for sd in values["SD"]
    ]
    known = [name for name in names if url(name) and "/B_8-" not in name]
    assert len(known) + 3 == tables["naming_scheme"]["index"]["pretrained_checkpoints"]


@pytest.mark.parametrize(
    "name",
    [
        "BiT-S-R50x1.npz",
        "BiT-M-R101x3-ILSVRC2012.npz",
        "vtab/BiT-M-R152x4-run2-smallnorb-azimuth.npz",
        "vtab/BiT-M-R50x1-run0-caltech101.npz",
    ],
)
def test_files_of_the_bit_scheme(name):
    assert path_in_bucket(url(name)) == ("bit_models", name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "imagenet21k/ViT-B_16",
        "imagenet21k/ViT-B_17.npz",
        "imagenet1k/ViT-B_16.npz",
        "vit_models/imagenet21k/ViT-B_16.npz",
        "./imagenet21k/ViT-B_16.npz",
        PRETRAINED,
        f"{PRETRAINED}.npz.npz",
        f"x{PRETRAINED}.npz",
        PRETRAINED.replace("medium1", "medium3") + ".npz",
        PRETRAINED.replace("i21k-300", "i1k-30") + ".npz",
        PRETRAINED.replace("sd_0.0", "sd_0.1") + ".npz",
        PRETRAINED.replace("0.001", "0x001") + ".npz",
        f"{PRETRAINED}--imagenet2012-steps_10k-lr_0.03-res_384.npz",
        f"{PRETRAINED}--imagenet2012-steps_20k-lr_0.001-res_384.npz",
        f"{PRETRAINED}--cifar10-steps_10k-lr_0.03-res_384.npz",
        f"{PRETRAINED}--cifar100-steps_10k-lr_0.03-res_512.npz",
        "BiT-L-R50x1.npz",
        "BiT-M-R50x2.npz",
        "BiT-S-R50x1-ILSVRC2012.npz",
        "vtab/BiT-S-R50x1-run0-dtd.npz",
        "vtab/BiT-M-R50x1-run3-dtd.npz",
    ],
)
def test_near_misses_are_not_names(name):
    assert url(name) is None


# --- downloads ---


BODY = bytes(range(256)) * 5000  # 1.28 MB, more than one chunk
SHA = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` (path to body), `wrong` (path to body and Content-Length), counts requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.files, self.wrong = [], {"/a/w.npz": BODY}, {}
        self.host = f"127.0.0.1:{self.server_port}"
        self.root = f"http://{self.host}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        body, length = self.server.wrong.get(self.path, (self.server.files.get(self.path), None))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "vit_jax"


def logged(caplog) -> str:
    return "\n".join(caplog.messages)


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_a_file_is_downloaded_once(server, cache, caplog):
    caplog.set_level(logging.INFO, "vit_jax")
    first = download.local(f"{server.root}/a/w.npz")
    assert first == cache / server.host / "a" / "w.npz"
    assert first.read_bytes() == BODY
    for expected in (f"{server.root}/a/w.npz", str(first), SHA, f"{len(BODY)} bytes"):
        assert expected in logged(caplog)
    assert (first.parent / "w.npz.sha256").read_text() == f"{SHA}  w.npz\n"

    caplog.clear()
    assert download.local(f"{server.root}/a/w.npz") == first
    assert server.asked == ["/a/w.npz"]
    assert "using the cached" in logged(caplog)
    assert SHA in logged(caplog)
    assert files(cache) == ["w.npz", "w.npz.sha256"]
    assert [p.name for p in first.parent.iterdir() if p.is_dir()] == []


def test_a_published_name_is_downloaded_unless_a_file_has_that_name(server, monkeypatch, tmp_path):
    name = "imagenet21k/ViT-B_16.npz"
    monkeypatch.setattr(published, "HOST", server.root)
    server.files[f"/vit_models/{name}"] = b"published"
    assert download.local(name).read_bytes() == b"published"
    (tmp_path / "imagenet21k").mkdir()
    (tmp_path / name).write_bytes(b"local")
    assert download.local(name) == Path(name)


@pytest.mark.parametrize(
    "text",
    ["w.npz", "/no/such/w.npz", "augreg/B_16-i21k.npz", "ftp://host/w.npz", ".", "runs/a@best"],
)
def test_what_is_not_remote_is_a_path(text, cache):
    assert download.local(text) == Path(text)
    assert not cache.exists()


def test_the_home_folder_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.local("~/w.npz") == tmp_path / "w.npz"
    assert download.local("~nobody_of_that_name/w.npz") == Path("~nobody_of_that_name/w.npz")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("gs://bucket/a/w.npz", "https://storage.googleapis.com/bucket/a/w.npz"),
        ("gs://bucket/a+b/c d?#%.npz", "https://storage.googleapis.com/bucket/a%2Bb/c%20d%3F%23%25.npz"),
        ("http://h/a b+ü.npz?x=1", "http://h/a%20b+%C3%BC.npz?x=1"),
        ("https://h/a%20b.npz", "https://h/a%20b.npz"),
        ("imagenet21k/ViT-B_16.npz", "https://storage.googleapis.com/vit_models/imagenet21k/ViT-B_16.npz"),
        ("imagenet21k/ViT-B_17.npz", None),
        ("/a/w.npz", None),
        ("s3://bucket/w.npz", None),
    ],
)  # fmt: skip
def test_urls(text, expected):
    assert download.url(text) == expected


def test_what_differs_in_host_path_or_query_lies_apart():
    texts = [
        "http://h/w", "http://g/w", "http://h:81/w", "http://h/a/w", "http://h/a%2Fw", "http://h/w?b",
        "http://h/w?c", "http://h/%3Fb/w", "http://h/b/w", "http://h/w%FF", "http://h/w%FE",
    ]  # fmt: skip
    assert len({download.cache_path(text) for text in texts}) == len(texts)
    assert download.cache_path("http://h/a b") == download.cache_path("http://H/a%20b#top")


def test_the_default_cache_is_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.cache_path("https://h/a/w.npz") == tmp_path / ".cache/vit_jax/h/a/w.npz"


@pytest.mark.parametrize(
    "text",
    ["http://h", "http://h/", "http://h/a/", "http://h/../../w", "http://h/%2e%2e/w", "http:///w",
     "http://../w", "gs://bucket", "gs://bucket/", "gs:///w", "http://[h/w"],
)  # fmt: skip
def test_a_url_must_name_a_file_of_its_own(text, cache):
    with pytest.raises(BadInput, match="expected https://HOST/PATH/FILE"):
        download.local(text)
    assert not cache.exists()


def test_special_characters_in_paths(server, cache):
    server.files["/a%20b+c/%C3%BC+1.npz"] = b"special"
    path = download.local(f"{server.root}/a b+c/ü+1.npz")
    assert path.read_bytes() == b"special"
    assert path.parent == cache / server.host / "a%20b+c"


def test_a_body_that_ends_too_soon(server, cache):
    server.wrong["/w.npz"] = BODY, len(BODY) + 7
    with pytest.raises(BadInput) as error:
        download.local(f"{server.root}/w.npz")
    assert f"{len(BODY)} of {len(BODY) + 7} bytes" in str(error.value)
    assert files(cache) == []
    server.wrong.clear()
    server.files["/w.npz"] = BODY
    assert download.local(f"{server.root}/w.npz").read_bytes() == BODY


def test_an_interruption_leaves_nothing(server, cache, monkeypatch):
    def stop(self, chunk):
        raise KeyboardInterrupt

    class Digest:
        update = stop

    monkeypatch.setattr(download.hashlib, "sha256", Digest)
    with pytest.raises(KeyboardInterrupt):
        download.local(f"{server.root}/a/w.npz")
    assert files(cache) == []


def test_404_names_url_error_and_the_place_for_the_file(server, cache):
    with pytest.raises(BadInput) as error:
        download.local(f"{server.root}/none.npz")
    for expected in (f"{server.root}/none.npz", "404", str(cache / server.host / "none.npz")):
        assert expected in str(error.value)
    assert files(cache) == []


def test_no_connection(cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(BadInput) as error:
            download.local(f"http://{host}/w.npz")
    for expected in (f"http://{host}/w.npz", "refused", str(cache / host / "w.npz")):
        assert expected in str(error.value)
    assert "urlopen error" not in str(error.value)


@pytest.fixture
def patience():
    """A limit for what forgets to set its own."""
    socket.setdefaulttimeout(3)
    yield
    socket.setdefaulttimeout(None)


def test_a_server_that_says_nothing_is_given_up(monkeypatch, patience):
    monkeypatch.setattr(download, "TIMEOUT_SECS", 0.2)
    begin = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(BadInput, match="timed out"):
            download.local(f"http://127.0.0.1:{silent.getsockname()[1]}/w.npz")
    assert time.monotonic() - begin < 2


def test_a_file_put_by_hand_is_taken(cache, caplog):
    caplog.set_level(logging.INFO, "vit_jax")
    path = download.cache_path("https://nowhere.invalid/a/w.npz")
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    assert download.local("https://nowhere.invalid/a/w.npz") == path
    assert "by hand" in logged(caplog)
    assert SHA in logged(caplog)
    assert (path.parent / "w.npz.sha256").read_text() == f"{SHA}  w.npz\n"


@pytest.mark.parametrize("changed", [BODY[:-1], b"x" + BODY[1:], BODY + b"x", b""])
def test_a_cached_file_that_changed_is_refused(server, changed):
    path = download.local(f"{server.root}/a/w.npz")
    path.write_bytes(changed)
    with pytest.raises(BadInput) as error:
        download.local(f"{server.root}/a/w.npz")
    for expected in (str(path), "w.npz.sha256", f"{len(changed)} bytes", SHA, "Delete both"):
        assert expected in str(error.value)
    assert server.asked == ["/a/w.npz"]
    path.unlink()
    assert download.local(f"{server.root}/a/w.npz").read_bytes() == BODY


def test_a_damaged_checksum_is_refused(server):
    path = download.local(f"{server.root}/a/w.npz")
    path.with_name("w.npz.sha256").write_bytes(b"\xff")
    with pytest.raises(BadInput, match="Delete both"):
        download.local(f"{server.root}/a/w.npz")


def test_a_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BadInput, match=r"cannot be used: .*Not a directory.*XDG_CACHE_HOME"):
        download.local(f"{server.root}/a/w.npz")
    assert server.asked == []


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(server, monkeypatch, capsys, terminal):
    monkeypatch.setattr(download, "PROGRESS_SECS", 0)
    monkeypatch.setattr(download.sys.stderr, "isatty", lambda: terminal)
    download.local(f"{server.root}/a/w.npz")
    lines = capsys.readouterr().err.splitlines()
    assert lines == (["w.npz: 1 of 1 MiB"] * 2 if terminal else [])


def test_a_quick_download_says_nothing(server, monkeypatch, capsys):
    monkeypatch.setattr(download.sys.stderr, "isatty", lambda: True)
    download.local(f"{server.root}/a/w.npz")
    assert capsys.readouterr().err == ""


def test_what_lies_beside_a_remote_file_is_fetched_once_or_done_without(server, cache, caplog):
    caplog.set_level(logging.INFO, "vit_jax")
    server.files |= {"/m/model.safetensors": b"weights", "/m/config.json": b"{}"}
    text = f"{server.root}/m/model.safetensors"
    assert download.local(text).is_file()
    for _ in range(2):
        download.beside(text, ("config.json", "preprocessor_config.json"))
    assert (cache / server.host / "m" / "config.json").read_bytes() == b"{}"
    assert server.asked.count("/m/config.json") == 1
    assert "without preprocessor_config.json" in logged(caplog)


def test_nothing_is_fetched_beside_a_local_file(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    download.beside("model.safetensors", ("config.json",))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
