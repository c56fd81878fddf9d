# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Parses the notation of ops, plug-ins and `trainable`: a name, or a name with plain arguments.

Nothing is evaluated but Python literals. Start from `parse`.
"""

import ast
from typing import Any


def parse(text: str, *, words: bool = False) -> tuple[str, list[Any], dict[str, Any]]:
    """Parses `name`, `name(224)` or `name(224, key=3)`.

    Args:
      text: the text of one call.
      words: whether an argument may also be a bare word, or several as in `qkv+mlp`, which stand
        for the text itself.

    Returns:
      The name, the arguments, and the arguments by name.

    Raises:
      ValueError: the text has another form, or gives an argument twice.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(func=call, args=[], keywords=[])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("not a call")
        args = [_value(a, words) for a in call.args]
        named = {str(k.arg): _value(k.value, words) for k in call.keywords if k.arg}
    except (SyntaxError, TypeError, MemoryError, RecursionError) as e:
        raise ValueError(str(e)) from e
    if len(named) < len(call.keywords):
        raise ValueError("an argument twice, or **")
    return call.func.id, args, named


def _value(node: ast.expr, words: bool) -> Any:
    if words and isinstance(node, ast.Name):
        return node.id
    if words and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_value(side, words) for side in (node.left, node.right)]
        if all(isinstance(part, str) for part in parts):
            return "+".join(parts)
    return ast.literal_eval(node)
