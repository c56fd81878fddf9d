# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sends files of `shard_files` to another process and fetches them back, over HTTP.

Each process serves its folder on a port of its own. Files are streams of gigabytes, for which the
peer links, which carry lines of JSON through process 0, are not made; a collective of jax would
need a place among the device programs of all processes, and could not run beside training. A
secret of the run must come with each request. Start from `Server`.
"""

import hmac
import http.client
import re
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vit_jax.checkpoints import shard_files

_NAME = re.compile(r"/([0-9]+-[0-9a-f]+)/([0-9]+)")  # folder of a step, number of a process
_SECS = 60.0  # without a byte, after which a connection is given up
Address = tuple[str, int]


class Server(ThreadingHTTPServer):
    """Serves the folder of a run, in threads, until `stop`.

    Args:
      folder: holds one folder for each step.
      host: the address of this host.
      secret: must come with each request.
      identity: see `shard_files.store`.
    """

    daemon_threads, block_on_close = True, False

    def __init__(self, folder: Path, host: str, secret: str, identity: str):
        self.folder, self.secret, self.identity = folder, secret, identity
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Handler)
        self.address: Address = self.server_address[0], self.server_address[1]  # type: ignore[assignment]
        threading.Thread(target=self.serve_forever, name="peer copies", daemon=True).start()

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # the class above looks up a name, which can wait

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: the other side reports a connection that broke."""

    def stop(self) -> None:
        """Closes the port."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SECS

    def do_PUT(self) -> None:
        """Stores a file."""
        if (place := self._place()) is None:
            return
        expected = self.headers.get("Sha256", "")
        chunks = _chunks(self.rfile, int(self.headers.get("Content-Length", 0)))
        try:
            shard_files.store(*place, chunks, self.server.identity, expected)
        except OSError as e:
            self.close_connection = True
            for _ in chunks:  # who still sends would read no answer
                pass
            self._answer(507, (e.strerror or str(e)).encode())
        else:
            self._answer(200)

    def do_GET(self) -> None:
        """Answers with a file."""
        if (place := self._place()) is None:
            return
        folder, process = place
        try:
            file = open(folder / f"{process}.arrays", "rb")
        except OSError as e:
            self._answer(404, str(e.strerror).encode())
            return
        with file:
            self.send_response(200)
            self.send_header("Content-Length", str(file.seek(0, 2)))
            self.send_header("Sha256", shard_files.described(folder, process).get("sha256", "-"))
            self.end_headers()
            file.seek(0)
            shutil.copyfileobj(file, self.wfile, shard_files.CHUNK_BYTES)

    def _place(self) -> tuple[Path, int] | None:
        """Returns the folder and the number that were asked for; refuses strangers."""
        name = _NAME.fullmatch(self.path)
        if name and hmac.compare_digest(self.headers.get("Secret", ""), self.server.secret):
            return self.server.folder / name[1], int(name[2])
        self.close_connection = True
        self._answer(403)
        return None

    def _answer(self, code: int, text: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _chunks(stream: Any, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = stream.read(min(size, shard_files.CHUNK_BYTES))
        if not chunk:
            raise OSError("the connection ended early")
        size -= len(chunk)
        yield chunk


def send(address: Address, secret: str, folder: Path, process: int) -> None:
    """Sends the file of a process in the folder of a step to the same place of another process.

    Raises:
      OSError: the other process cannot be reached, or cannot store the file.
    """
    place = folder / f"{process}.arrays"
    sha256 = shard_files.described(folder, process).get("sha256", "-")
    headers = {"Secret": secret, "Sha256": sha256, "Content-Length": str(place.stat().st_size)}
    with open(place, "rb") as file:
        connection = _connection(address)
        try:
            connection.request("PUT", f"/{folder.name}/{process}", file, headers)
            _check(connection.getresponse())
        except http.client.HTTPException as e:
            raise OSError(f"its answer cannot be read ({e!r})") from e
        finally:
            connection.close()


def fetch(address: Address, secret: str, folder: Path, process: int, identity: str) -> None:
    """Fetches the file of a process from another process, and stores it in the folder of a step.

    Raises:
      OSError: the other process cannot be reached or has no such file, the file is damaged, or
        there is no room for it.
    """
    connection = _connection(address)
    try:
        connection.request("GET", f"/{folder.name}/{process}", headers={"Secret": secret})
        answer = _check(connection.getresponse())
        chunks = _chunks(answer, int(answer.headers["Content-Length"]))
        shard_files.store(folder, process, chunks, identity, answer.headers["Sha256"])
    except http.client.HTTPException as e:
        raise OSError(f"its answer cannot be read ({e!r})") from e
    finally:
        connection.close()


def _connection(address: Address) -> http.client.HTTPConnection:
    host, port = address
    return http.client.HTTPConnection(host, port, timeout=_SECS, blocksize=shard_files.CHUNK_BYTES)


def _check(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    if answer.status != 200:
        raise OSError(answer.read(1000).decode(errors="replace") or f"it answers {answer.status}")
    return answer
