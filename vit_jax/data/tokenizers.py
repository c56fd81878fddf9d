# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens tokenizers: UTF-8 bytes, SentencePiece models, and BERT's vocabularies of WordPieces.

Start from `opened`.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

BYTES = "bytes"
PAD, END, _FIRST = 0, 1, 2  # tokens of `bytes`: to fill up, the end of a text, the byte 0
_WORDPIECES = ".txt"  # suffix of a vocabulary, as of LiT and BERT
_LONGEST = 100  # bytes of a word that is looked up


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """What turns texts into tokens.

    Attributes:
      size: the number of tokens that there are.
      encode: text -> its tokens, without those of its start and end.
      start: tokens before a text.
      end: tokens after a text, however long it is.
      fill: the token that fills up a text.
    """

    size: int
    encode: Callable[[str], Sequence[int]]
    start: tuple[int, ...]
    end: tuple[int, ...]
    fill: int


@functools.cache
def opened(tokenizer: str) -> Tokenizer:
    """Opens a tokenizer: `bytes`, or a file; one that ends in .txt holds WordPieces.

    Raises:
      BadInput: a package is not installed, the file is missing, or it is not what its name says.
    """
    if tokenizer == BYTES:
        size = _FIRST + 256
        return Tokenizer(size, lambda text: [_FIRST + b for b in text.encode()], (), (END,), END)
    try:
        content = storage.read_all([storage.path(tokenizer)])[0]
    except OSError as e:
        raise BadInput(
            f"tokenizer={tokenizer!r} cannot be read: {e.strerror or e}; give the file of a "
            "SentencePiece model or of a vocabulary of WordPieces, or tokenizer='bytes'."
        ) from e
    name = "tokenizers" if tokenizer.endswith(_WORDPIECES) else "sentencepiece"
    try:
        return (_wordpieces if name == "tokenizers" else _sentencepiece)(tokenizer, content)
    except ModuleNotFoundError as e:
        raise BadInput(
            f"tokenizer={tokenizer!r} needs the package {name}: pip install 'vit_jax[text]'."
        ) from e


def _sentencepiece(tokenizer: str, content: bytes) -> Tokenizer:
    """Opens a SentencePiece model."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(content)
    except RuntimeError as e:
        raise BadInput(
            f"tokenizer={tokenizer!r} is not a SentencePiece model; give its file, often called "
            "spiece.model, tokenizer.model or sentencepiece.model."
        ) from e
    if model.eos_id() < 0:
        raise BadInput(
            f"tokenizer={tokenizer!r} has no token for the end of a text; train it with eos_id=1."
        )
    size = model.GetPieceSize()
    # T5's models end with pieces that stand for no text, and SigLIP's towers have no rows for them.
    while size and re.fullmatch(r"▁?<extra_id_\d+>", model.IdToPiece(size - 1)):
        size -= 1

    def encode(text: str) -> list[int]:
        return [token if token < size else model.unk_id() for token in model.EncodeAsIds(text)]

    return Tokenizer(size, encode, (), (model.eos_id(),), model.eos_id())


def _wordpieces(tokenizer: str, content: bytes) -> Tokenizer:
    """Opens a vocabulary of BERT: a text starts with [CLS], has no end, and 0 fills it up.

    Words are those of tensorflow_text's BertTokenizer(lower_case=True), which LiT was trained with.
    They differ from those of BERT's own in rare characters, so the library's is not used.
    """
    from tokenizers import Regex, models, normalizers, pre_tokenizers

    lines = content.decode(errors="replace").removesuffix("\n").split("\n")
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    if lacking := [name for name in ("[CLS]", "[UNK]") if name not in vocabulary]:
        raise BadInput(
            f"tokenizer={tokenizer!r} has no line {' and no line '.join(lacking)}, so it is not a "
            "vocabulary of BERT; give its file, often called vocab.txt."
        )
    pieces = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_LONGEST)
    unknown = vocabulary["[UNK]"]
    plain: Any = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(r"\p{Default_Ignorable_Code_Point}"), ""),
            normalizers.NFD(),
            normalizers.Replace(Regex(r"\p{Mn}"), ""),
            normalizers.Replace(Regex(r"[\p{Cc}\p{Cf}]"), " "),
        ]
    )
    split: Any = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "removed"),  # tabs and the like are spaces by now
            pre_tokenizers.Split(Regex(_ALONE), "isolated"),
        ]
    )

    def encode(text: str) -> list[int]:
        found = list[int]()
        for word, _ in split.pre_tokenize_str(
            plain.normalize_str(unicodedata.normalize("NFKC", text).casefold())
        ):
            known = len(word.encode()) <= _LONGEST
            found += [piece.id for piece in pieces.tokenize(word)] if known else [unknown]
        return found

    return Tokenizer(len(lines), encode, (vocabulary["[CLS]"],), (), 0)


# Characters that are words of their own: punctuation, and those of Chinese.
_ALONE = (
    r"[!-/:-@\[-`{-~\p{P}\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}"
    r"\x{2F800}-\x{2FA1F}]"
)
