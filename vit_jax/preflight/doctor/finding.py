# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a check has found: one line, and what to do where something is wrong."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor's.

    Attributes:
      check: what was looked at, a word.
      said: what was found.
      fix: what to do; empty where nothing is wrong.
    """

    check: str
    said: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.fix

    def line(self) -> str:
        """For a person: `ok   clock   ...` or `bad  clock   ...: what to do`."""
        said = f"{self.said}: {self.fix}" if self.fix else self.said
        return f"{'ok ' if self.ok else 'bad'}  {self.check:<12} {said}"
