# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws docs/protocol.svg, the messages between the processes of a run.

    python docs/draw_protocol.py

Time runs downwards. Numbers and exit codes come from the source. Start from `events`.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from vit_jax.config import load
from vit_jax.errors import BadInput, PeerLost, RunFailed, Stopped
from vit_jax.runtime import coordinated_stop, peer_links, signals, workdir_lock

PICTURE = Path(__file__).with_name("protocol.svg")
_X = {1: 190, 0: 500, 2: 810}  # process -> where it stands, in pixels
_WIDTH, _ROW, _TOP = 1000, 27, 250
_BLUE, _GREY, _RED, _DARK = "#1f5fa8", "#7a8594", "#b3261e", "#20262e"
_Row = tuple[str, Sequence[int], str]  # kind, processes, text


def events() -> list[_Row]:
    """Returns the rows of the sequence from top to bottom.

    A row is a `phase`, a `message` from one process to another, an `act` of processes, or the
    `end` of processes.
    """
    beat = load.load("configs/base.py").processes.heartbeat_secs
    ahead, due = coordinated_stop.AHEAD, 8 + coordinated_stop.AHEAD
    return [
        ("phase", (), "Rendezvous at the coordinator's port; then jax starts its service there"),
        ("message", (1, 0), "hello: number, count, host, code, packages"),
        ("message", (2, 0), "hello"),
        ("message", (0, 1), f"hosts; or an error with code {BadInput.exit_code} or "
                            f"{PeerLost.exit_code}"),
        ("message", (0, 2), "hosts"),
        ("act", (1, 0, 2), "jax.distributed.initialize"),
        ("phase", (), f"Training: silence for heartbeat_secs ({beat} s) is a loss"),
        ("message", (1, 0), f"alive, every {beat // 10} s"),
        ("message", (0, 1), f"alive, every {beat // 10} s"),
        ("phase", (), "A request to stop, at any process"),
        ("act", (2,), "SIGTERM"),
        ("message", (2, 0), "ask: stop"),
        ("message", (0, 1), "hold"),
        ("message", (0, 2), "hold"),
        ("act", (1, 2), "waits at its point"),
        ("message", (1, 0), "passed: 7 points"),
        ("message", (2, 0), "passed: 8 points"),
        ("message", (0, 1), f"due: point {due} = 8 + {ahead}"),
        ("message", (0, 2), f"due: point {due}"),
        ("act", (1, 0, 2), f"steps up to point {due}, saves, barrier"),
        ("message", (1, 0), "bye"),
        ("message", (0, 2), "bye"),
        ("end", (1, 0, 2), f"exit {Stopped.exit_code}"),
        ("phase", (), "A process is lost: its connection closes"),
        ("end", (1,), "killed"),
        ("message", (0, 2), f"code {PeerLost.exit_code}: process 1 is gone"),
        ("end", (2,), f"exit {PeerLost.exit_code}"),
        ("end", (0,), f"exit {PeerLost.exit_code}, last: waits up to {peer_links.LAST_SECS} s"),
        ("phase", (), "A process fails by itself"),
        ("act", (2,), "not finite, or a bug"),
        ("message", (2, 0), f"code {RunFailed.exit_code} and the reason"),
        ("message", (0, 1), f"code {RunFailed.exit_code} and the reason"),
        ("end", (1, 0, 2), f"exit {RunFailed.exit_code}, within {peer_links.GRACE_SECS} s"),
        ("phase", (), "A process hangs: its watchdog saw no progress for hang_secs"),
        ("message", (1, 0), f"code {PeerLost.exit_code}, hung"),
        ("message", (0, 2), f"code {PeerLost.exit_code}, hung"),
        ("act", (1, 0, 2), "writes WORKDIR/stacks"),
        ("end", (1, 0, 2), f"exit {PeerLost.exit_code}"),
    ]  # fmt: skip


def _text(x: int, y: int, text: str, color: str = _DARK, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" {more}>{escape(text)}</text>'


def _connections() -> list[str]:
    """Draws the upper part: who connects to whom."""
    parts = [_text(20, 30, "Who connects to whom", more='font-size="17" font-weight="bold"')]
    for process, x in _X.items():
        hub = process == 0
        parts += [
            f'<rect x="{x - 75}" y="130" width="150" height="60" rx="6" '
            f'fill="{"#dbe7f5" if hub else "#f1f4f8"}" stroke="{_BLUE}"/>',
            _text(x, 156, f"process {process}", more='text-anchor="middle" font-weight="bold"'),
            _text(x, 176, "coordinator" if hub else "watchdog, signals", _GREY,
                  'text-anchor="middle" font-size="12"'),
        ]  # fmt: skip
    for a, b in ((265, 425), (735, 575)):
        middle = (a + b) // 2
        parts += [
            f'<line x1="{a}" y1="150" x2="{b}" y2="150" stroke="{_BLUE}" stroke-width="2" '
            'marker-end="url(#blue)"/>',
            _text(middle, 143, "peer link (TCP)", _BLUE, 'text-anchor="middle" font-size="12"'),
            f'<line x1="{a}" y1="172" x2="{b}" y2="172" stroke="{_GREY}" stroke-width="2" '
            'stroke-dasharray="5 4" marker-end="url(#grey)"/>',
            _text(middle, 188, "jax coordination", _GREY, 'text-anchor="middle" font-size="12"'),
        ]
    beat, poll = workdir_lock.BEAT_SECS, signals.POLL_SECS
    parts += [
        f'<rect x="330" y="50" width="340" height="42" rx="6" fill="#fbf6e9" stroke="{_GREY}"/>',
        _text(500, 68, f"WORKDIR: rewrites lock.json every {beat:g} s,",
              more='text-anchor="middle" font-size="12"'),
        _text(500, 84, f"looks for STOP every {poll:g} s, writes metrics and results",
              more='text-anchor="middle" font-size="12"'),
        f'<line x1="500" y1="130" x2="500" y2="94" stroke="{_GREY}" stroke-width="2" '
        'marker-end="url(#grey)"/>',
    ]  # fmt: skip
    return parts


def _row(y: int, kind: str, processes: Sequence[int], text: str) -> list[str]:
    """Draws one row of the sequence."""
    if kind == "phase":
        return [
            f'<rect x="0" y="{y - 18}" width="{_WIDTH}" height="{_ROW}" fill="#eef1f5"/>',
            _text(20, y, text, more='font-weight="bold"'),
        ]
    if kind == "message":
        a, b = (_X[process] for process in processes)
        end = b - 5 if b > a else b + 5
        label = _text((a + b) // 2, y - 3, text, _BLUE, 'text-anchor="middle"')
        line = f'<line x1="{a}" y1="{y + 3}" x2="{end}" y2="{y + 3}" stroke="{_BLUE}" '
        return [f'{line}stroke-width="1.5" marker-end="url(#blue)"/>', label]
    color = _RED if kind == "end" else _DARK
    parts = []
    for process in processes:
        x, width = _X[process], 8 * len(text) + 16
        parts += [
            f'<rect x="{x - width // 2}" y="{y - 16}" width="{width}" height="22" rx="4" '
            f'fill="white" stroke="{color}"/>',
            _text(x, y, text, color, 'text-anchor="middle"'),
        ]
    return parts


def picture() -> str:
    """Returns the picture as the text of an SVG file."""
    rows = events()
    height = _TOP + _ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>The messages between the processes of a run</title>",
        "<defs>",
        *(f'<marker id="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
          f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker>'
          for name, color in (("blue", _BLUE), ("grey", _GREY))),
        "</defs>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *_connections(),
    ]  # fmt: skip
    parts += [
        f'<line x1="{x}" y1="190" x2="{x}" y2="{height - 10}" stroke="#c3cad4"/>'
        for x in _X.values()
    ]
    for i, row in enumerate(rows):
        parts += _row(_TOP + i * _ROW, *row)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
