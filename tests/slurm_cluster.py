# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A real Slurm cluster of two nodes on this machine, reached by loopback alone. Start from `serve`.

The programs are those of Debian's packages slurm-wlm and munge; no service manager is needed.
"""

import contextlib
import os
import pwd
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "setpriv")
GPUS = 8  # of each node, as far as the scheduler knows


def missing():
    """Why no cluster can be had here; "" if it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    gone = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if gone:
        return f"not installed: {', '.join(gone)} (Debian: slurm-wlm, munge)"
    return "" if os.getuid() == 0 else "a cluster is started by root"


def _ports(count):
    """Free ones, below those that the kernel gives to others in the meantime."""
    found = []
    for port in random.Random(os.getpid()).sample(range(20000, 32000), 1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def _configure(folder, host, munge):
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
AuthInfo=socket={munge}/socket
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


def _daemon(*words, **more):
    """A process that does not outlive this one."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], **quiet, **more)


def _munge(folder):
    """The daemon that says who one is; it does not run as root."""
    user = pwd.getpwnam("munge")
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o400)
    for path in (folder, folder / "key"):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    return _daemon(
        "munged", "--foreground", "--force", f"--socket={folder}/socket",
        f"--key-file={folder}/key", f"--pid-file={folder}/pid", f"--log-file={folder}/log",
        f"--seed-file={folder}/seed",
        user="munge", group="munge", extra_groups=[], env={"PATH": "/usr/sbin:/usr/bin"},
    )  # fmt: skip


@contextlib.contextmanager
def serve(folder):
    """A cluster of two nodes with its files in `folder`; yields the environment of its clients."""
    host = socket.gethostname()
    environment = dict(
        os.environ, SLURM_CONF=f"{folder}/slurm.conf", PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin"
    )
    with contextlib.ExitStack() as stack:
        # A folder of its own: munge is another user, and pytest's folders are closed to others.
        munge = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="munge_")))
        _configure(folder, host, munge)
        (folder / "state").mkdir()
        stack.enter_context(_ending(_munge(munge)))
        _until(lambda: (munge / "socket").exists(), 20, "munged does not answer")
        for words in (["slurmctld"], ["slurmd", "-N", host], ["slurmd", "-N", f"{host}-2"]):
            daemon = _daemon(*words, "-D", "-f", f"{folder}/slurm.conf", env=environment)
            stack.enter_context(_ending(daemon))
        _until(lambda: _idle(environment) == 2, 60, f"the nodes do not come; see {folder}")
        try:
            yield environment
        finally:
            _asked(environment, "scancel", "--user=root", "--signal=KILL", "--full")
            _asked(environment, "scancel", "--user=root")
            with contextlib.suppress(TimeoutError):
                _until(lambda: not _asked(environment, "squeue", "--noheader"), 30, "jobs stay")


@contextlib.contextmanager
def _ending(daemon):
    """Ends it after the block."""
    try:
        yield
    finally:
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(20)
        daemon.kill()
        daemon.wait()


def _asked(environment, *words):
    """Returns what a client prints; nothing if it does not end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
        return done.stdout
    return ""


def _idle(environment):
    return _asked(environment, "sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")


def _until(true, secs, what):
    end = time.monotonic() + secs
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
