# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""WordPieces, and tokens of odd texts against the tokenizers of transformers."""

import random
import sys

import pytest

from vit_jax.data import tokenizers
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput

PIECES = (
    "[PAD] [UNK] [CLS] [SEP] a photo cat ##s cafe strasse 日 本 , . ! ' un ##happy naive fi ##sh "
    "3 $ k ##m 😀 [ ]"
).split()


@pytest.fixture
def vocabulary(tmp_path):
    """The file of a small vocabulary of WordPieces."""
    pytest.importorskip("tokenizers")
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("A photo, a Cats!", "a photo , a cat ##s !"),
        ("", ""),
        (" \t\n ", ""),
        ("Naïve CAFÉ", "naive cafe"),
        ("Straße STRASSE", "strasse strasse"),
        ("日本 cat日", "日 本 cat 日"),
        ("unhappy unsad", "un ##happy [UNK]"),
        ("ﬁsh $3km", "fi ##sh $ [UNK]"),
        ("a\u00a0b\u200bcat ca\u00adt", "a [UNK] cat"),
        ("[CLS] [SEP]", "[ [UNK] ] [ [UNK] ]"),
        ("cat\u2028cat", "[UNK]"),
        ("cat's 😀", "cat ' [UNK] 😀"),
        ("本本本" + "é" * 60, "本 本 本 [UNK]"),
        ("x" * 101 + " cat", "[UNK] cat"),
        ("a " * 20, "a " * 11),
    ],
)
def test_wordpieces_are_those_of_tensorflow_text(vocabulary, text, wanted):
    """BertTokenizer(lower_case=True) of tensorflow_text 2.21.1 printed the expected ones."""
    found = [PIECES[token] for token in Texts(vocabulary, length=12).tokens(text)]
    assert found == (["[CLS]", *wanted.split()] + ["[PAD]"] * 12)[:12]


def test_a_vocabulary_has_a_row_for_each_line(vocabulary):
    assert Texts(vocabulary).vocabulary == len(PIECES)
    Texts(vocabulary, rows=len(PIECES)).check()
    with pytest.raises(BadInput, match=f"makes {len(PIECES)} different tokens"):
        Texts(vocabulary, rows=len(PIECES) - 1).check()


def test_text_that_is_not_a_vocabulary(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    path = tmp_path / "notes.txt"
    path.write_text("[CLS]\nsome text\n")
    with pytest.raises(BadInput, match=r"notes.txt' has no line \[UNK\], so it is not"):
        tokenizers.opened(str(path))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BadInput, match=r"needs the package tokenizers: pip install 'vit_jax\[text"):
        tokenizers.opened(str(path))


# ---------------------------------------------------------------- transformers

_WORDS = "a red bus dog Cats the House running photo sea".split()
_RANGES = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x5D0, 0x6FF), (0xE00, 0xE7F), (0x2000, 0x206F),
    (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x300, 0x36F),
    (0, 0x1F), (0x2F800, 0x2FA1F),
)  # fmt: skip
_ODD = [
    "", " ", "A photo of a Cat.", "naïve café", "İstanbul STRASSE ẞ ß", "Ωμέγα ΣΑΣ", "a\tb\nc",
    "a\u00a0b\u3000c\u200bd\u00add", "1,000.5% & $3 + 4 = ^7~|`", "\u0000null\u0007", "▁under ▁ it",
    "👨‍👩‍👧 👍🏽", "<0x41> <unused1>",
]  # fmt: skip


def odd_texts(count, seed):
    """Returns texts of words, of letters of many scripts, and of both, empty and long ones too."""
    draws, found = random.Random(seed), [*_ODD]

    def letters(most, ranges=_RANGES):
        return "".join(
            chr(draws.randint(*draws.choice(ranges))) for _ in range(draws.randint(1, most))
        )

    while len(found) < count:
        kind = draws.randrange(4)
        if kind == 0:
            found.append(" ".join(draws.choices(_WORDS, k=draws.randrange(90))))
        elif kind == 1:
            found.append(letters(60))
        elif kind == 2:
            joins = [" ", "  ", ",", ". ", "!", "-", "_", "'"]
            found.append("".join(draws.choices(_WORDS + joins, k=draws.randint(1, 40))))
        else:
            found.append(" ".join(letters(8, _RANGES[:4]) for _ in range(draws.randint(1, 12))))
    return found


def trained(folder, **options):
    """Trains a SentencePiece model; returns its file."""
    sentencepiece = pytest.importorskip("sentencepiece")
    texts = [text.lower().replace("\0", " ").replace("\n", " ") for text in odd_texts(600, 9)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in texts if text.strip()]), vocab_size=3000,
        model_prefix=str(folder / "small"), pad_id=0, eos_id=1, minloglevel=2,
        character_coverage=0.98, hard_vocab_limit=False, **options,
    )  # fmt: skip
    return str(folder / "small.model")


def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def differences(how, peer):
    """Returns the odd texts whose tokens are not those of the peer."""
    found = []
    for text in odd_texts(1000, 0):
        said = {"padding": "max_length", "max_length": how.length, "truncation": True}
        if peer(text, **said)["input_ids"] != how.tokens(text).tolist():
            found.append(text)
    return found


@pytest.mark.integration
@pytest.mark.parametrize("length", [64, 7])
def test_tokens_of_siglip_2_are_those_of_transformers(tmp_path, length):
    """A small model with the options of Gemma's: BPE, bytes, no normalisation, the same specials.

    A text with the name of a special token is the exception: transformers reads `<eos>` in a text
    as the end of the text, SentencePiece as five letters.
    """
    peers = transformers()
    import sentencepiece
    from transformers import convert_slow_tokenizer

    path = trained(
        tmp_path, model_type="bpe", bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>",
        bos_piece="<bos>", byte_fallback=True, add_dummy_prefix=False, split_digits=True,
        remove_extra_whitespaces=False, normalization_rule_name="identity",
        allow_whitespace_only_pieces=True, user_defined_symbols=["<mask>"],
    )  # fmt: skip
    reader = convert_slow_tokenizer.GemmaSentencePieceExtractor.__new__(
        convert_slow_tokenizer.GemmaSentencePieceExtractor
    )
    reader.sp = sentencepiece.SentencePieceProcessor(path)
    vocab, merges = reader.extract()
    peer = peers.Siglip2Tokenizer(
        vocab=vocab, merges=merges, add_bos_token=False, add_eos_token=True, padding_side="right"
    )
    how = Texts(path, length=length, clean="lower", pad=0)
    assert (peer.pad_token_id, peer.eos_token_id) == (0, 1)
    assert differences(how, peer) == []
    assert how.tokens("")[:3].tolist() == [1, 0, 0]
    assert how.tokens("a red bus " * 40)[-1] == 1


@pytest.mark.integration
def test_tokens_of_siglip_are_those_of_transformers(tmp_path):
    """A small unigram model with the special tokens of SigLIP's."""
    path = trained(tmp_path, model_type="unigram", unk_id=2, bos_id=-1)
    peer = transformers().SiglipTokenizer(path)
    how = Texts(path, length=64, clean="canonical")
    assert differences(how, peer) == []


@pytest.mark.integration
def test_wordpieces_of_plain_texts_are_those_of_transformers(vocabulary):
    peer = transformers().BertTokenizer(vocabulary)
    how = Texts(vocabulary, length=16)
    for text in ("A photo, a Cats!", "Naïve CAFÉ", "日本 cat日", "unhappy unsad", "cat's 😀"):
        start, *ids, _end = peer(text)["input_ids"]
        assert how.tokens(text).tolist() == [start, *ids] + [0] * (15 - len(ids))
