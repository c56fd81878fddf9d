# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Only regular files are read whole; a list may also come through a pipe, and must end."""

import os
import threading

import hostile
import pytest

from vit_jax.storage import files as storage

pytestmark = pytest.mark.timeout(60)  # a pipe without a writer would wait for ever


def test_what_stands_under_a_name_is_seen_through_links(tmp_path):
    hostile.no_files(tmp_path)
    (tmp_path / "x").write_bytes(b"1")
    (tmp_path / "link").symlink_to("x")
    wanted = {
        "x": "file", "link": "file", ".": "folder", "pipe.jpg": "named pipe",
        "device.jpg": "device", "socket.jpg": "socket", "gone": "", "x/y": "", "\0": "",
    }  # fmt: skip
    assert {name: storage.kind(tmp_path / name) for name in wanted} == wanted
    assert storage.read(tmp_path / "link") == b"1"


@pytest.mark.parametrize("read", [storage.read, lambda place: storage.read_all([place])])
def test_what_may_never_end_is_not_read(tmp_path, read):
    for path in hostile.no_files(tmp_path):
        with pytest.raises(OSError, match=r"it is a (named pipe|device|socket), not a file"):
            read(path)


def test_a_list_comes_through_a_pipe_unless_it_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_BYTES", 10)
    (tmp_path / "long").write_bytes(bytes(11))
    assert len(storage.read_list(tmp_path / "long")) == 11  # a file has an end
    os.mkfifo(tmp_path / "pipe")

    def through(content):
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content])
        writer.start()
        try:
            return storage.read_list(tmp_path / "pipe")
        finally:
            writer.join()

    assert through(b"a\nb\n") == b"a\nb\n"
    with pytest.raises(OSError, match="named pipe that gives more than"):
        through(bytes(11))
