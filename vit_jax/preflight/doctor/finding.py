# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The finding of a check: one line, and a fix if something is wrong."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
      check: the subject, in a word.
      said: the finding.
      fix: what to do; empty if nothing is wrong.
    """

    check: str
    said: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.fix

    def line(self) -> str:
        """Returns the line for people: `ok   clock   ...` or `bad  clock   ...: what to do`."""
        said = f"{self.said}: {self.fix}" if self.fix else self.said
        return f"{'ok ' if self.ok else 'bad'}  {self.check:<12} {said}"
