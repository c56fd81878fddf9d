# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A real Slurm cluster of two nodes on this machine, reached by loopback alone. Start from `serve`.

The programs are those of Debian's packages slurm-wlm and munge; no service manager is needed.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
GPUS = 8  # of each node, as far as the scheduler knows


def missing():
    """Why no cluster can be had here; "" if it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    gone = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if gone:
        return f"not installed: {', '.join(gone)} (Debian: slurm-wlm, munge)"
    return "" if os.getuid() == 0 else "a cluster is started by root"


def _ports(count):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in found]


def _configure(folder, host):
    control, first, second = _ports(3)
    node = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs=128 RealMemory=1000 Gres=gpu:{GPUS}"
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={control}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName={host} Port={first} {node}
NodeName={host}-2 Port={second} {node}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")


def _munge(folder):
    """The daemon that says who one is; it does not run as root."""
    user = pwd.getpwnam("munge")
    folder.mkdir()
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o400)
    for path in (folder, folder / "key"):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    return subprocess.Popen(
        ["munged", "--foreground", "--force", f"--socket={folder}/socket",
         f"--key-file={folder}/key", f"--pid-file={folder}/pid", f"--log-file={folder}/log",
         f"--seed-file={folder}/seed"],
        user="munge", group="munge", extra_groups=[], env={"PATH": "/usr/sbin:/usr/bin"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextlib.contextmanager
def serve(folder):
    """A cluster of two nodes with its files in `folder`; yields the environment of its clients.

    The folder must be one that everybody may enter: munge is another user.
    """
    host = socket.gethostname()
    _configure(folder, host)
    (folder / "state").mkdir()
    environment = dict(
        os.environ, SLURM_CONF=f"{folder}/slurm.conf", PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin"
    )
    daemons = []
    try:
        daemons.append(_munge(folder / "munge"))
        _until(lambda: (folder / "munge/socket").exists(), 20, "munged does not answer")
        for words in (["slurmctld"], ["slurmd", "-N", host], ["slurmd", "-N", f"{host}-2"]):
            daemons.append(
                subprocess.Popen(
                    [*words, "-D", "-f", f"{folder}/slurm.conf"], env=environment,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
        _until(lambda: _idle(environment) == 2, 60, f"the nodes do not come; see {folder}")
        yield environment
    finally:
        subprocess.run(["scancel", "--user=root"], env=environment, stderr=subprocess.DEVNULL)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
            daemon.wait()


def _idle(environment):
    asked = ["sinfo", "--noheader", "--Node", "--format=%t"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True)
    return done.stdout.split().count("idle")


def _until(true, secs, what):
    end = time.monotonic() + secs
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
