# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One process of a run that may lose others. It takes steps without training, so it is quick.

    python elastic_process.py INDEX COUNT FOLDER

Each group of processes that takes steps adds its size to FOLDER/groups.txt. Start from `main`.
"""

import itertools
import sys
import time
from pathlib import Path

from vit_jax.config import sections
from vit_jax.errors import Stopped
from vit_jax.runtime import coordinated_stop, elastic, recovery, rendezvous
from vit_jax.runtime.process_identity import ProcessIdentity

elastic.BEAT_SECS, elastic.GONE_SECS = 0.2, 10.0
SECS = 5  # below what a configuration may have


def take_steps(folder: Path, group: elastic.Group, members: int) -> None:
    """Takes steps until it is asked to stop; the first process notes the number of members."""
    for step in coordinated_stop.feed(itertools.count()):
        if step == 2 and not (isinstance(group.who, ProcessIdentity) and group.who.index):
            with open(folder / "groups.txt", "a", encoding="utf-8") as file:
                print(members, file=file)
        time.sleep(0.05)


def main(index: str, count: str, folder: str) -> int:
    """Returns the exit code 42 when it is asked to stop; the loss of a peer ends it with 43."""
    recovery.begin()
    who = ProcessIdentity("127.0.0.1:1", int(count), int(index), "the test")
    with (
        coordinated_stop.listening(),
        elastic.joined(Path(folder), who, sections.Elastic(SECS), Path(folder, "none")) as group,
    ):
        try:
            if not isinstance(group.who, ProcessIdentity):
                take_steps(Path(folder), group, 1)
                return 0
            now = group.who
            line = rendezvous.meet(now, now.address, {"code": "the test"}, 60)
            with coordinated_stop.including(line):
                try:
                    take_steps(Path(folder), group, now.count)
                finally:
                    line.gather("the end", "", 60)
                    line.close()
        except Stopped as e:
            return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
