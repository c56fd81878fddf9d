# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""People see the sentence of an error of TensorFlow and nothing else."""

import numpy as np
import pytest

from vit_jax.data.ops.decode import BadImage, in_python
from vit_jax.data.tensorflow import one_line, plain, tf


def refused(content):
    raise BadImage("no image at all; it starts with b'<html>'")


def crop(image):
    return tf.image.random_crop(image, [8, 8, 3])


def center(image):
    return tf.image.crop_to_bounding_box(image, tf.shape(image)[0] - 8, 0, 8, 8)


def compared(image):
    tf.debugging.assert_equal(tf.shape(image), [9, 9, 3], "size after the chain")
    return image


FUNCTIONS = {
    "Need value.shape >= size": (crop, np.zeros([5, 9, 3])),
    "offset_height must be >= 0": (center, np.zeros([5, 9, 3])),
    "size after the chain": (compared, np.zeros([5, 9, 3])),
    "no image at all; it starts with b'<html>'": (
        lambda content: in_python(refused, content, tf.uint8, []),
        b"x",
    ),
    "/nowhere/x.png; No such file or directory": (tf.io.read_file, "/nowhere/x.png"),
}
WAYS = {
    "eager": lambda function, x: function(x),
    "graph": lambda function, x: tf.function(
        function, [tf.TensorSpec(None if x.shape.rank else [], x.dtype)], autograph=False
    )(x),
    "dataset": lambda function, x: list(
        tf.data.Dataset.from_tensors(x).map(tf.function(function, autograph=False))
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("said", FUNCTIONS)
def test_what_is_left_is_the_sentence(said, way):
    function, value = FUNCTIONS[said]
    with pytest.raises((tf.errors.OpError, BadImage)) as caught:
        WAYS[way](function, tf.constant(value))
    assert plain(caught.value) == said


LONG = """Graph execution error:

Detected at node cond/Assert/Assert defined at (most recent call last):
  File "/home/x/train.py", line 12, in <module>
    main()
  File "/home/x/data.py", line 7, in read

Detected at node EnsureShape defined at (most recent call last):
<stack traces unavailable>
{{function_node __inference_read_12}} Data loss: a record is damaged.
\t [[{{node ReadRecord}}]] [Op:IteratorGetNext] name: """
TWO = """{{function_node __wrapped__X}} 2 root error(s) found.
  (0) INVALID_ARGUMENT: Invalid PNG data, size 60
\t [[{{node cond/DecodePng}}]]
\t [[cond/Switch/_9]]
  (1) INVALID_ARGUMENT: Invalid PNG data, size 60
\t [[{{node cond/DecodePng}}]]
0 successful operations. [Op:__inference_f_9]"""


@pytest.mark.parametrize(
    "text, said",
    [
        (LONG, "Data loss: a record is damaged"),
        (TWO, "Invalid PNG data, size 60"),
        ("words.", "words"),
        ("of 3 [a] images", "of 3 [a] images"),
        ("x" * 500, "x" * 200),
    ],
)
def test_texts(text, said):
    assert plain(tf.errors.DataLossError(None, None, text)) == said


def test_an_error_that_quotes_a_damaged_record_is_read_all_the_same():
    error = UnicodeDecodeError("utf-8", b"{{node X}} bad record \xff", 22, 23, "invalid")
    assert plain(error) == "bad record \ufffd"


def test_other_errors_are_one_line_that_ends():
    assert one_line(ValueError("a\n  b\t c")) == "a b c"
    assert one_line(ValueError("x" * 300)) == "x" * 300
    assert one_line(ValueError("x" * 301)) == "x" * 300 + "..."
