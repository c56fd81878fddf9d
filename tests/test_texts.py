# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Texts: how they become tokens, which of several is taken, and the sources that have them."""

import csv
import io
import sys
import tarfile

import numpy as np
import pictures
import pytest
from opened_sources import message, opened

from vit_jax.data import splits, texts, tokenizers
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.python_reader.pipeline import PythonPipeline
from vit_jax.data.tensorflow import tf
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput

WORDS = [
    "A red bus, on the road!", "two dogs and a cat", "the cat sat on a mat", "An old house.",
    "blue sky over the sea", "a dog runs on the road", "the house is red", "a bus in the rain",
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The file of a small SentencePiece model with the special tokens of SigLIP's."""
    sentencepiece = pytest.importorskip("sentencepiece")
    prefix = tmp_path_factory.mktemp("spm") / "small"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([w.lower() for w in WORDS] * 4), model_prefix=str(prefix),
        vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    return f"{prefix}.model"


def test_bytes_come_back_as_the_text():
    found = Texts(length=16).tokens("a café")
    assert found.dtype == np.int32
    assert found.tolist()[7:] == [tokenizers.END] * 9
    assert bytes(t - 2 for t in found[:7]).decode() == "a café"
    assert Texts().vocabulary == 258


@pytest.mark.parametrize("rows, pad", [(258, -1), (258, 257), (0, 257), (300, 299)])
def test_tokens_that_the_text_tower_knows(rows, pad):
    Texts(rows=rows, pad=pad).check()


@pytest.mark.parametrize(
    "rows, pad, said",
    [
        (257, -1, "'bytes' makes 258 different tokens, but the text tower has a vocabulary of 257"),
        (300, 300, "with pad=300 makes 301 different tokens"), (0, 258, "vocabulary of 258;"),
    ],
)  # fmt: skip
def test_tokens_beyond_those_of_the_text_tower_are_refused(rows, pad, said):
    with pytest.raises(BadInput, match=said):
        Texts(rows=rows, pad=pad).check()


def test_name_that_is_not_utf8_becomes_tokens():
    name = b"\xe9a".decode(errors="surrogateescape")
    np.testing.assert_array_equal(Texts(length=8).tokens(name), Texts(length=8).tokens("?a"))


def test_extra_pieces_of_t5_are_no_tokens(model, tmp_path):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    with open(model, "rb") as file:
        proto.ParseFromString(file.read())
    size = len(proto.pieces)
    for number in (1, 0):
        proto.pieces.add(piece=f"▁<extra_id_{number}>", score=0, type=4)  # user defined
    path = tmp_path / "t5.model"
    path.write_bytes(proto.SerializeToString())
    how = Texts(str(path), length=6, rows=size)
    assert how.vocabulary == size
    how.check()
    assert how.tokens("a <extra_id_0>").max() < size


def test_sentencepiece_tokens_are_those_of_the_library(model):
    import sentencepiece

    library, how = sentencepiece.SentencePieceProcessor(model), Texts(model, length=24)
    assert how.vocabulary == library.GetPieceSize()
    for text in WORDS:
        found = how.tokens(text).tolist()
        ids = library.encode(text)
        assert found == [*ids, *[1] * (24 - len(ids))]
    plain = [text.lower() for text in WORDS]
    assert [library.decode([t for t in how.tokens(p).tolist() if t > 1]) for p in plain] == plain


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [99 + 2, 97 + 2, 116 + 2, 1, 1, 1]),
        ({"pad": 0}, [99 + 2, 97 + 2, 116 + 2, 1, 0, 0]),
        ({"length": 3}, [99 + 2, 97 + 2, 1]),  # cut, but the end stays
        ({"length": 4}, [99 + 2, 97 + 2, 116 + 2, 1]),
    ],
)
def test_text_is_cut_or_filled_up(options, expected):
    assert Texts(**{"length": 6} | options).tokens("cat").tolist() == expected


@pytest.mark.parametrize(
    "clean, expected",
    [("none", "A  red, bus!"), ("lower", "a  red, bus!"), ("canonical", "a red bus")],
)
def test_cleaning(clean, expected):
    assert texts.cleaned("A  red, bus!", clean) == expected


def of_bytes(tokens):
    """The texts of rows of tokens."""
    return [bytes(t - 2 for t in row if t > 1).decode() for row in tokens.tolist()]


def of_batches(batches):
    return [text for batch in batches for text in of_bytes(batch["tokens"])]


def split(count=24, **fields):
    images = np.zeros((count, 4, 4, 3), np.uint8)
    labels = np.arange(count, dtype=np.int32)[:, None] % 2
    return splits.of_arrays("made", images, labels, **fields)


def pipeline(kind, how, given):
    fields = ("image", "labels", *(["text"] if how.field == "text" else []))
    return kind(given, preprocess.parse("k", "flip_lr", 4), 8, 3, (4, 4), 1, 1,
                fields=fields, texts=how)  # fmt: skip


@pytest.mark.parametrize("kind", [Pipeline, PythonPipeline])
def test_one_of_several_texts_is_drawn_in_training_and_the_first_taken_in_evaluation(kind):
    lines = np.array([f"first {k}\n\n second {k} \nthird {k}" for k in range(24)], object)
    how = Texts(length=16)
    batches = list(pipeline(kind, how, split(text=lines)).evaluation())
    assert [b["tokens"].dtype for b in batches] == [np.int32] * 3
    assert of_batches(batches) == [f"first {k}" for k in range(24)]
    drawn = Texts(length=16, drawn=True)
    found = of_batches(pipeline(kind, drawn, split(text=lines)).train(0, 6))
    counts = [sum(text.startswith(word) for text in found) for word in ("first", "second", "third")]
    assert sum(counts) == 48
    assert min(counts) > 5
    assert len({*found}) > 24  # an image has another text in another epoch


def test_both_readers_draw_the_same_texts():
    lines = np.array([f"a{k}\nb{k}\nc{k}\nd{k}" for k in range(24)], object)
    drawn = Texts(length=8, drawn=True)
    one, two = (
        [b["tokens"] for b in pipeline(kind, drawn, split(text=lines)).train(1, 5)]
        for kind in (Pipeline, PythonPipeline)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [Pipeline, PythonPipeline])
def test_texts_are_made_of_the_names_of_classes(kind):
    how = Texts(length=24, templates=("a photo of a {}.",), names=("red_car", "tree"))
    (batch, *_) = pipeline(kind, how, split()).evaluation()
    assert of_bytes(batch["tokens"])[:2] == ["a photo of a red car.", "a photo of a tree."]
    assert "text" not in batch


@pytest.mark.parametrize("kind", [Pipeline, PythonPipeline])
def test_missing_and_empty_texts_are_named(kind):
    with pytest.raises(BadInput, match=r"the examples have no text, only"):
        next(pipeline(kind, Texts(length=8), split()).evaluation())
    lines = np.array(["good"] * 3 + [" \n"] + ["good"] * 20, object)
    with pytest.raises(BadInput, match=r"made/0003.*text is empty"):
        list(pipeline(kind, Texts(length=8), split(text=lines)).evaluation())


def test_templates_come_from_a_text_or_a_file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a photo of a {}.\n\nart of the {}.\n")
    assert texts.templates("x {}") == ("x {}",)
    assert texts.templates("") == ()
    assert texts.templates(str(path)) == ("a photo of a {}.", "art of the {}.")
    path.write_text("a {}\nnothing\n")
    with pytest.raises(BadInput, match=r"'nothing' has no \{\}"):
        texts.templates(str(path))
    with pytest.raises(BadInput, match=r"has no \{\} for the name of a class, and no file"):
        texts.templates(str(tmp_path / "absent"))


def test_tokenizer_that_cannot_be_used(tmp_path, monkeypatch, model):
    with pytest.raises(BadInput, match=r"absent.model' cannot be read"):
        Texts(str(tmp_path / "absent.model")).tokens("x")
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(BadInput, match=r"bad.model' is not a SentencePiece model"):
        Texts(str(tmp_path / "bad.model")).tokens("x")
    tokenizers.opened.cache_clear()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(BadInput, match=r"pip install 'vit_jax\[text\]'"):
        Texts(model).tokens("x")


# ---------------------------------------------------------------- sources


def read_texts(one):
    """The texts of a split by both readers, which must agree; only TensorFlow's if it has one."""
    read = tf.function(one.fields_reader())
    rows = [read(tf.constant(i, tf.int64)) for i in range(len(one))]
    found = [row["text"].numpy().decode() for row in rows]
    if one.table.numpy_reader:
        again = [one.numpy_reader()(i)["text"] for i in range(len(one))]
        again = [text.decode() if isinstance(text, bytes) else text for text in again]
        assert again == found
    return found


def table(folder, rows):
    for name in {row[0] for row in rows[1:]}:
        (folder / name).write_bytes(pictures.encode(np.zeros((4, 4, 3), np.uint8)))
    with (folder / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return f"csv:{folder / 'x.csv'}"


def test_csv_with_texts_alone(tmp_path):
    rows = [["path", "text", "split"], ["a.png", "a cat, asleep", "train"],
            ["b.png", "two\nlines", "train"], ["a.png", "again", "val"]]  # fmt: skip
    source = opened(table(tmp_path, rows))
    assert source.classes == ()
    assert read_texts(source.splits["train"]) == ["a cat, asleep", "two\nlines"]
    assert source.splits["train"].table.labels().tolist() == [[-1]] * 3


def test_csv_with_labels_and_captions(tmp_path):
    rows = [["path", "label", "caption"], ["a.png", "cat", "one"], ["b.png", "dog", "two"]]
    source = opened(table(tmp_path, rows))
    assert source.classes == ("cat", "dog")
    assert read_texts(source.splits["train"]) == ["one", "two"]


def test_csv_row_without_a_text(tmp_path):
    said = message(table(tmp_path, [["path", "text"], ["a.png", "one"], ["b.png", " "]]))
    assert "row 2 is ['b.png', ' '], which has no text; expected rows of path,text[,split]" in said


def packed(folder, **members):
    path = folder / "x-000.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return f"tar:{path}"


PNG = pictures.encode(np.zeros((4, 4, 3), np.uint8))


def test_tar_with_texts_beside_images(tmp_path):
    spec = packed(tmp_path, a__png=PNG, a__txt=b"a cat", b__png=PNG, b__txt="zwölf".encode())
    source = opened(spec, text_key="txt")
    assert source.classes == ()
    assert read_texts(source.splits["train"]) == ["a cat", "zwölf"]
    assert opened(spec).classes == ("a cat", "zwölf")  # without the key they are labels


def test_tar_with_texts_and_labels(tmp_path):
    members = {"a__png": PNG, "a__txt": b"one", "a__cls": b"0"}
    members |= {"b__png": PNG, "b__txt": b"two", "b__cls": b"1"}
    source = opened(packed(tmp_path, **members), text_key="txt")
    assert source.classes == ("0", "1")
    assert read_texts(source.splits["train"]) == ["one", "two"]


def test_tar_with_an_image_without_a_text(tmp_path):
    spec = packed(tmp_path, a__png=PNG, a__txt=b"a cat", b__png=PNG)
    assert "b.png has no text; expected it in a member b.txt" in message(spec, text_key="txt")


def records(folder, *texts_of):
    with tf.io.TFRecordWriter(str(folder / "x.tfrecord")) as writer:
        for number, lines in enumerate(texts_of):
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[PNG])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
                "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=lines)),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    (folder / "labels.txt").write_text("a\nb\n")
    return f"records:{folder}"


def test_records_with_texts(tmp_path):
    spec = records(tmp_path, [b"one", b"other"], [b"two"])
    assert read_texts(opened(spec, text_key="words").splits["train"]) == ["one\nother", "two"]
    assert "text_key" in message(spec, text_key="absent")


def test_mixture_of_sources_with_texts(tmp_path):
    (tmp_path / "a").mkdir()
    one = table(tmp_path / "a", [["path", "text"], ["a.png", "one"], ["b.png", "two"]])
    rows = [["path", "label", "text"], ["c.png", "x", "three"], ["d.png", "y", "four"]]
    two = table(tmp_path, rows)
    source = opened(f"mix:1*{one},1*{two}")
    assert source.classes == ("x", "y")
    assert read_texts(source.splits["train"]) == ["one", "two", "three", "four"]
    assert source.splits["train"].table.labels().tolist() == [[-1], [-1], [0], [1]]
