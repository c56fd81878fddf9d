# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes HTML pages from `templates/`: single files that need no network, no script, no other file.

Start from `render`. `templates/parts.html` has the elements that pages consist of.
"""

import base64
import functools
import math
from typing import Any

import jinja2


def render(template: str, title: str, **values: Any) -> str:
    """Returns a whole document; texts among the values stay texts, since templates escape them.

    Args:
      template: name of a file in `templates/`.
      title: the title of the page.
      **values: the variables of the template.
    """
    text = _environment().get_template(template).render(title=title, **values)
    return text.encode(errors="backslashreplace").decode()  # file names may be any bytes


def or_none(share: float) -> float | None:
    """Returns a share as JSON has it: None in place of nan."""
    return None if math.isnan(share) else float(share)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vit_jax.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    return environment
