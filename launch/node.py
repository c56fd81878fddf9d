# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the processes of a run on one machine as one; restarts them if their codes ask for it.

    python -m launch.node [--count=N] [--per_gpu] [--again] [--log=FILE] @JOB

`launch local` uses it, and so do machines with a process per GPU whose engine starts only one.
`vit_jax.runtime.process_identity` finds out which of several machines this is. Start from `run`.
"""

import argparse
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

from vit_jax.checkpoints import restart_limit, step_folders
from vit_jax.errors import SAVED, BadInput, runs_again
from vit_jax.runtime import job_file, process_exit, process_identity, recovery, signals
from vit_jax.runtime.process_identity import VARIABLES, ProcessIdentity
from vit_jax.storage import files as storage

GONE_SECS = 60  # from the end of one process until the others are killed
log = logging.getLogger("vit_jax")


def environments(count: int, per_gpu: bool, env: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the variables of each process of this machine.

    Args:
      count: number of processes on this machine, and on each other machine.
      per_gpu: whether each process gets one GPU.
      env: variables of this process, which tell its machine's index and the number of machines.

    Raises:
      BadInput: the machines cannot be told apart.
    """
    node = process_identity.resolve({}, env)
    if node == "tpu":
        raise BadInput("a TPU takes one process for each machine; leave out --procs_per_node.")
    if node is not None:
        process_identity.check(node)  # waits for host names that resolve late
    all_of_them = []
    for i in range(count):
        more = dict[str, str]()
        if isinstance(node, ProcessIdentity) or count > 1:
            nodes, index = (node.count, node.index) if isinstance(node, ProcessIdentity) else (1, 0)
            address = (
                node.coordinator
                if isinstance(node, ProcessIdentity)
                else f"127.0.0.1:{_free_port()}"
            )
            if i and not isinstance(node, ProcessIdentity):
                address = all_of_them[0][VARIABLES["coordinator"]]
            told = (address, str(nodes * count), str(index * count + i))
            more = dict(zip(VARIABLES.values(), told, strict=True))
        if per_gpu:
            visible = [d for d in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
            if visible and len(visible) < count:
                raise BadInput(
                    f"CUDA_VISIBLE_DEVICES={','.join(visible)} does not have {count} GPUs."
                )
            more["CUDA_VISIBLE_DEVICES"] = visible[i] if visible else str(i)
        all_of_them.append({**env, **more})
    return all_of_them


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(
    words: Sequence[str], environments: Sequence[Mapping[str, str]], received: Sequence[int],
    say: Callable[[int, bytes], None],
) -> int:  # fmt: skip
    """Starts a process for each environment, and waits for all of them.

    Args:
      words: command line of every process.
      environments: environment of each process.
      received: signals received so far; new ones are passed on.
      say: called with the index of a process and a line that it printed.

    Returns:
      The exit code of the first process that ended with a code other than 0 (a signal as in a
      shell).
    """
    children = [
        subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, process_group=0,
        )
        for env in environments
    ]  # fmt: skip
    readers = [threading.Thread(target=_read, args=(c, i, say)) for i, c in enumerate(children)]
    for reader in readers:
        reader.start()
    code, deadline, told = 0, float("inf"), 0
    left = list(children)
    try:
        while left:
            for number in received[told:]:
                told += 1
                for child in left:
                    child.kill() if told > 1 else child.send_signal(number)
            for child in [c for c in left if c.poll() is not None]:
                left.remove(child)
                if child.returncode and not code:
                    os.environ[recovery.ENDED] = str(time.time())  # for the next start
                    code, deadline = child.returncode, time.monotonic() + GONE_SECS
            if time.monotonic() > deadline:
                for child in left:
                    child.kill()
            time.sleep(0.05)
    finally:
        for child in left:  # only if this process fails
            child.kill()
    for reader in readers:
        reader.join()
    return code if code >= 0 else 128 - code


def _read(child: subprocess.Popen[bytes], index: int, say: Callable[[int, bytes], None]) -> None:
    assert child.stdout is not None
    with child.stdout as lines:
        for line in lines:
            say(index, line)


def run_until_done(
    start: Callable[[], int], newest: Callable[[], int], stopping: Callable[[], bool]
) -> int:
    """Restarts until the exit code asks for no restart, or five bring no new checkpoint.

    Args:
      start: runs the processes; returns their code.
      newest: returns the newest step that was saved.
      stopping: returns whether a person asked for an end.

    Returns:
      The last code; 1 if it gives up.
    """
    saved, tried = newest(), 0
    while True:
        code = start()
        if stopping() or not runs_again(code):
            return code
        now = newest()
        tried = 1 if now > saved else tried + 1
        saved = max(saved, now)
        if tried > restart_limit.MOST:
            log.error(
                "ended with code %d; given up after %d restarts without a new checkpoint",
                code, restart_limit.MOST,
            )  # fmt: skip
            return 1
        since = f"step {saved}" if saved >= 0 else "the beginning"
        log.info("ended with code %d; starts again from %s", code, since)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command above; returns its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.node", allow_abbrev=False)
    parser.add_argument("--count", type=int, default=1, help="processes of this machine")
    parser.add_argument("--per_gpu", action="store_true", help="each has one GPU")
    parser.add_argument("--again", action="store_true", help="restart if the exit code asks for it")
    parser.add_argument("--log", default="", help="file for the output")
    parser.add_argument("job", metavar="@JOB")
    args = parser.parse_args(argv)
    logging.basicConfig(format="launch: %(message)s", stream=sys.stderr, level=logging.INFO)
    words = [sys.executable, "-m", "vit_jax", args.job]
    try:
        workdir = _workdir(job_file.read(args.job.removeprefix("@")))
        with signals.collected() as received, _output(args.log, args.count) as say:

            def start() -> int:
                own = environments(args.count, args.per_gpu, os.environ)
                return run(words, own, received, say)

            if not args.again:
                return start()

            def newest() -> int:
                return step_folders.newest(storage.workdir(workdir))

            code = run_until_done(start, newest, lambda: bool(received))
            return SAVED if received and runs_again(code) else code
    except BadInput as e:
        print(f"launch: {e}", file=sys.stderr)
        return e.exit_code


def _workdir(job: job_file.JobFile) -> str:
    flag = "--workdir="
    return next((a[len(flag) :] for a in job.arguments if a.startswith(flag)), "")


@contextlib.contextmanager
def _output(file: str, count: int) -> Iterator[Callable[[int, bytes], None]]:
    """Yields a function for the lines of all processes: writes to standard output and to `file`."""
    lock = threading.Lock()
    with contextlib.ExitStack() as stack:
        outputs: list[BinaryIO] = [sys.stdout.buffer]
        if file:
            outputs.append(stack.enter_context(open(file, "ab")))

        def say(index: int, line: bytes) -> None:
            with lock:
                for output in list(outputs):
                    try:
                        output.write((b"%d: " % index if count > 1 else b"") + line)
                        output.flush()
                    except OSError:  # a closed terminal or a full disk must not end the run
                        outputs.remove(output)

        yield say


if __name__ == "__main__":
    process_exit.is_command = True
    sys.exit(process_exit.finish(main()))
