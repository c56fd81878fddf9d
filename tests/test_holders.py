# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on who holds an accelerator: fake folders of processes, links and locks."""

import os

import pytest

from vit_jax.preflight.doctor import device_users


def process(root, pid, links, command="python\0train.py\0", name="python"):
    fd = root / "proc" / str(pid) / "fd"
    fd.mkdir(parents=True)
    for number, link in enumerate(links):
        (fd / str(number)).symlink_to(link)
    (fd.parent / "cmdline").write_text(command)
    (fd.parent / "comm").write_text(f"{name}\n")


def lock(root, pid):
    (root / "tmp").mkdir()
    file = root / "tmp/libtpu_lockfile"
    file.touch()
    stat = file.stat()
    where = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}"
    (root / "proc/locks").write_text(
        f"1: FLOCK ADVISORY WRITE 77 {where}:{stat.st_ino + 1} 0 EOF\n"
        f"2: POSIX ADVISORY WRITE {pid} {where}:{stat.st_ino} 0 EOF\n"
    )


@pytest.mark.parametrize(
    "present, device",
    [("gpu", "/dev/nvidia0"), ("tpu", "/dev/accel3"), ("tpu", "/dev/vfio/1")],
)
def test_holder_is_named_with_its_command(tmp_path, present, device):
    process(tmp_path, 41, ["/dev/null", device, device])
    process(tmp_path, 42, ["/dev/null", "/dev/nvidiactl", "/dev/vfio/vfio", "socket:[1]"])
    process(tmp_path, 43, [device])
    [found] = device_users.check([present], tmp_path, own=43)
    assert found.said == f"process 41 (python train.py) holds {device}"
    assert found.fix.endswith("kill 41")


def test_what_only_watches_gpus_and_devices_of_another_kind_do_not_count(tmp_path):
    process(tmp_path, 41, ["/dev/nvidia0"], name="nvidia-persiste")
    process(tmp_path, 42, ["/dev/vfio/1"], command="qemu\0")
    [found] = device_users.check(["gpu"], tmp_path)
    assert found.line() == "ok   holders      no other process holds the GPU"


def test_owner_of_the_lock_of_libtpu_is_named(tmp_path):
    process(tmp_path, 41, [])
    lock(tmp_path, 41)
    [found] = device_users.check(["tpu"], tmp_path)
    assert found.said == "process 41 (python train.py) holds /tmp/libtpu_lockfile"
    (tmp_path / "proc/locks").write_text("")
    [found] = device_users.check(["tpu"], tmp_path)  # it stays when nobody holds it
    assert found.ok


def test_lock_of_another_user_is_to_be_removed(tmp_path, monkeypatch):
    process(tmp_path, 41, [])
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/libtpu_lockfile").touch()
    monkeypatch.setattr(device_users.os, "access", lambda path, mode: False)
    [found] = device_users.check(["tpu"], tmp_path)
    assert found.fix == "sudo rm /tmp/libtpu_lockfile"


def test_processes_that_cannot_be_looked_into_are_counted(tmp_path, monkeypatch):
    process(tmp_path, 41, ["/dev/nvidia0"])

    def refuse(path):
        raise PermissionError

    monkeypatch.setattr(device_users.os, "readlink", refuse)
    [found] = device_users.check(["gpu"], tmp_path)
    assert "1 processes of others cannot be looked into (sudo can)" in found.said


def test_nothing_is_held_where_nothing_is(tmp_path):
    process(tmp_path, 41, ["/dev/vfio/1"])
    [found] = device_users.check([], tmp_path)
    assert found.ok
