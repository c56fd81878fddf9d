# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns the text of an example into tokens, int32 [L], on the host.

A text of several lines holds several texts of its image. Training draws one of them by the
example's own seed, everything else takes the first. Where a template is given, the texts are made
from the name of the example's class. Start from `Texts`.
"""

import dataclasses
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.splits import order
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.data.tokenizers import BYTES, opened
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

Clean = Literal["none", "lower", "canonical"]
CLEANS = ("none", "lower", "canonical")


@dataclasses.dataclass(frozen=True)
class Texts:
    """How texts become tokens.

    Attributes:
      tokenizer: `bytes`: the UTF-8 bytes; otherwise the file of a SentencePiece model, or of
        BERT's WordPieces.
      length: L. Longer texts are cut, and keep the token of the end, if the tokenizer has one.
      clean: what happens to a text first. `lower` makes it lower-case, as transformers does for
        SigLIP 2, and big_vision for ASCII letters before it trains; `canonical` also takes out
        punctuation and repeated spaces, as transformers does for SigLIP, and big_vision for
        zero-shot prompts.
      pad: the token that fills up; -1: the end again, as for SigLIP, and 0 after WordPieces.
        SigLIP 2 has 0.
      templates: texts with {} for the name of the class; (): examples have texts of their own.
      names: the names of the classes, by label.
      drawn: whether one of several texts is drawn, or the first taken.
      rows: the number of tokens that the text tower knows; 0: those of the tokenizer.
    """

    tokenizer: str = BYTES
    length: int = 64
    clean: Clean = "none"
    pad: int = -1
    templates: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    drawn: bool = False
    rows: int = 0

    @property
    def vocabulary(self) -> int:
        """Returns the number of tokens that there are; reads the file of the model."""
        return opened(self.tokenizer).size

    def check(self) -> None:
        """Raises BadInput for a tokenizer that cannot be used, or has tokens beyond `rows`."""
        rows, needed = self.rows or self.vocabulary, max(self.vocabulary, self.pad + 1)
        if needed > rows:
            pad = f" with pad={self.pad}" if needed > self.vocabulary else ""
            raise BadInput(
                f"tokenizer={self.tokenizer!r}{pad} makes {needed:,} different tokens, but the "
                f"text tower has a vocabulary of {rows:,}; give the tokenizer that belongs to "
                f"its weights, or train with vocabulary={needed}."
            )

    @property
    def field(self) -> str:
        """Returns the field of an example that tokens are made from."""
        return "labels" if self.templates else "text"

    def of_example(self, content: bytes | str | np.ndarray, seed: Seed) -> np.ndarray:
        """Returns the tokens of an example, int32 [L].

        Args:
          content: its field `self.field`.
          seed: the seed of the example.

        Raises:
          ValueError: it has no text, or no class.
        """
        if isinstance(content, np.ndarray):
            known = content[content >= 0]
            if not len(known):
                raise ValueError("it has no class to make a text of")
            lines = self.of_class(self.names[known[0]])
        else:
            text = content.decode(errors="replace") if isinstance(content, bytes) else content
            lines = separate(text)
        if not lines:
            raise ValueError("its text is empty")
        if not self.drawn or len(lines) == 1:
            return self.tokens(lines[0])
        from vit_jax.data.numpy_ops import draws

        own = order.numpy_stream_of(seed, "text", 0)
        return self.tokens(lines[draws.integers(own, 1, len(lines))[0]])

    def in_graph(self, example: Mapping[str, Tensor], seed: Tensor) -> dict[str, Tensor]:
        """Returns an example with `tokens` in place of its text, as a graph function."""

        def of_example(content: Any, seed: np.ndarray) -> np.ndarray:
            return self.of_example(content, (int(seed[0]), int(seed[1])))

        content = [example[self.field], seed]
        tokens = tf.numpy_function(of_example, content, tf.int32, stateful=False)
        rest = {key: x for key, x in example.items() if key != "text"}
        return rest | {"tokens": tf.ensure_shape(tokens, [self.length])}

    def of_class(self, name: str) -> list[str]:
        """Returns a text for each template; an underscore in the name of a class is a space."""
        return [template.replace("{}", name.replace("_", " ")) for template in self.templates]

    def tokens(self, text: str) -> np.ndarray:
        """Returns the tokens of one text, int32 [L]."""
        text = text.encode(errors="replace").decode()  # names of files may not be UTF-8
        model, text = opened(self.tokenizer), cleaned(text, self.clean)
        room = self.length - len(model.start) - len(model.end)
        found = [*model.start, *model.encode(text)[:room], *model.end]
        filled = np.full(self.length, model.fill if self.pad < 0 else self.pad, np.int32)
        filled[: len(found)] = found
        return filled


def separate(text: str) -> list[str]:
    """Returns the texts that one text of several lines holds."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def of_split(split: Split) -> list[list[str]]:
    """Returns the texts of each image of a split.

    Raises:
      BadInput: the images have no texts.
    """
    read = split.numpy_reader() if split.table.numpy_reader else _tensorflow_reader(split)
    if "text" not in read(0):
        raise BadInput(
            f"the images, such as {split.name(0)}, have no texts; give a source with texts, see "
            "docs/siglip.md."
        )
    found = []
    for index in range(len(split)):
        one = read(index)["text"]
        found.append(separate(one.decode(errors="replace") if isinstance(one, bytes) else one))
    return found


def _tensorflow_reader(split: Split) -> Callable[[int], dict[str, Any]]:
    """Returns a function, index in a split -> its text, if there is one."""
    fields = split.fields_reader()

    def read(index: int) -> dict[str, Any]:
        found = fields(tf.constant(index, tf.int64))
        return {key: x.numpy() for key, x in found.items() if key == "text"}

    return read


def cleaned(text: str, how: Clean) -> str:
    """Returns a text as `Texts.clean` describes it."""
    if how == "lower":  # each character alone: a sigma that ends a word is not another letter
        return "".join(letter.lower() for letter in text)
    if how == "canonical":
        text = text.lower().translate(str.maketrans("", "", string.punctuation))
        text = re.sub(r"\s+", " ", text).strip()
    return text


def templates(text: str) -> tuple[str, ...]:
    """Returns the templates of a text: itself, or the lines of the file that it names.

    Raises:
      BadInput: there are none, or one has no {}; the message names it.
    """
    if not text:
        return ()
    lines = [text]
    if "{}" not in text:
        try:
            lines = separate(storage.read_all([storage.path(text)])[0].decode("utf-8-sig"))
        except (OSError, ValueError) as e:
            reason = getattr(e, "strerror", None) or e
            raise BadInput(
                f"template={text!r} has no {{}} for the name of a class, and no file of that name "
                f"can be read ({reason}); give 'a photo of a {{}}.', or a file of such lines."
            ) from e
    wrong = [line for line in lines if "{}" not in line]
    if wrong or not lines:
        problem = f"the line {wrong[0]!r} has no {{}}" if wrong else "it has no lines"
        raise BadInput(f"template={text!r}: {problem}; write {{}} where the name of a class goes.")
    return tuple(lines)
