# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A small object store on loopback that answers as the JSON API of Google Cloud Storage does.

As much of it as gcsfs, google-cloud-storage and tensorstore ask for: whole and resumable uploads,
reads of ranges, lists with prefix, delimiter and pages, deletes, preconditions on generations.
Strongly consistent, as the original. No append, no rename. Start from `serve`.
"""

import collections
import contextlib
import datetime
import email.parser
import http.server
import json
import os
import re
import threading
import time
import urllib.parse


class Store:
    """Objects of buckets, what was asked, and what goes wrong.

    Attributes:
      objects: (bucket, name) -> (content, generation: when it was written, in microseconds).
      asked: (method, what) of all requests: `get`, `read`, `list`, `write`, `delete`, `bucket`.
      sent: bytes of content that reads were answered with.
      fail_every: of so many requests one is answered with 503; 0: none.
      forbidden: names that begin so are answered with 403.
      delay_secs: before each answer.
    """

    def __init__(self, *buckets):
        self.buckets, self.objects, self.sessions = set(buckets), {}, {}
        self.asked, self.fail_every, self.forbidden, self.delay_secs = [], 0, None, 0.0
        self.sent = 0
        self.lock, self.newest = threading.Lock(), 0

    def reset(self):
        """Empty, and everything works."""
        with self.lock:
            self.objects.clear(), self.asked.clear(), self.sessions.clear()
        self.fail_every, self.forbidden, self.delay_secs = 0, None, 0.0

    def counted(self):
        """How often each kind of request was asked."""
        return dict(collections.Counter(what for what, _ in self.asked))

    def names(self, prefix=""):
        """`bucket/name` of all objects, sorted."""
        return sorted(n for n in ("/".join(key) for key in self.objects) if n.startswith(prefix))

    def put(self, bucket, name, content, match=None):
        """Replaces an object; None where its generation is not the expected one."""
        with self.lock:
            now = self.objects.get((bucket, name), (b"", 0))[1]
            if match is not None and int(match) != now:
                return None
            self.newest = max(self.newest + 1, time.time_ns() // 1000)
            self.objects[bucket, name] = (bytes(content), self.newest)
            return self.meta(bucket, name)

    def meta(self, bucket, name):
        content, generation = self.objects[bucket, name]
        written = datetime.datetime.fromtimestamp(generation / 1e6, datetime.UTC)
        stamp = written.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(content)),
            "generation": str(generation), "metageneration": "1", "updated": stamp,
            "timeCreated": stamp, "contentType": "application/octet-stream",
        }  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Store

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def error(self, status, message):
        self.answer(status, {"error": {"code": status, "message": message}})

    def handle_one(self):
        url = urllib.parse.urlsplit(self.path)
        self.args = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self.body = self.received()
        self.move, path = None, url.path
        if move := re.fullmatch(r"(.+/o/[^/]+)/moveTo/o/([^/]+)", path):
            path, self.move = move[1], urllib.parse.unquote(move[2])
        place = re.fullmatch(r"(?:/(upload|download))?/storage/v1/b(?:/([^/]+))?(/o(?:/(.+))?)?",
                             path)  # fmt: skip
        if place is None:
            return self.error(501, f"not in the fake: {self.command} {self.path}")
        upload, bucket, objects, name = place.groups()
        bucket, name = (urllib.parse.unquote(x) if x else x for x in (bucket, name))
        what = self.what(upload, objects, name)
        name = name or self.args.get("name") or self.args.get("prefix") or self.named()
        with self.store.lock:
            self.store.asked.append((what, f"{bucket}/{name}"))
            number = len(self.store.asked)
        time.sleep(self.store.delay_secs)
        if self.store.fail_every and number % self.store.fail_every == 0:
            return self.error(503, "try again")
        if self.store.forbidden is not None and f"{bucket}/{name}".startswith(self.store.forbidden):
            return self.error(403, "the caller does not have access")
        if bucket not in self.store.buckets:
            return self.error(404, "The specified bucket does not exist.")
        return getattr(self, what)(bucket, name)

    def named(self):
        """Returns the name that an upload says in its body."""
        if "upload_id" in self.args:
            return self.store.sessions[self.args["upload_id"]][1]
        found = re.search(rb'"name": *("(?:[^"\\]|\\.)*")', self.body[:4096])
        return json.loads(found[1]) if found else ""

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def received(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def what(self, upload, objects, name):
        if not objects:
            return "bucket"
        if upload == "upload":
            return "write"
        if self.command == "DELETE":
            return "delete"
        if name is None:
            return "list"
        if self.move:
            return "moved"
        return "read" if self.args.get("alt") == "media" or upload == "download" else "get"

    def bucket(self, bucket, _):
        self.answer(200, {"kind": "storage#bucket", "name": bucket, "id": bucket})

    def get(self, bucket, name):
        if (bucket, name) not in self.store.objects:
            return self.error(404, f"No such object: {bucket}/{name}")
        return self.answer(200, self.store.meta(bucket, name))

    def moved(self, bucket, name):
        if (bucket, name) not in self.store.objects:
            return self.error(404, f"No such object: {bucket}/{name}")
        meta = self.store.put(bucket, self.move, self.store.objects[bucket, name][0])
        del self.store.objects[bucket, name]
        return self.answer(200, meta)

    def read(self, bucket, name):
        if (bucket, name) not in self.store.objects:
            return self.error(404, f"No such object: {bucket}/{name}")
        content, generation = self.store.objects[bucket, name]
        if self.args.get("ifGenerationNotMatch") == str(generation):
            return self.answer(304)
        if self.args.get("ifGenerationMatch", str(generation)) != str(generation):
            return self.error(412, "conditionNotMet")
        headers = {"x_goog_generation": str(generation), "x_goog_stored_content_length":
                   str(len(content))}  # fmt: skip
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self.store.sent += len(content)
            return self.answer(200, content, **headers)
        first, last = wanted.groups()
        if first == "":
            begin, end = max(len(content) - int(last), 0), len(content)
        else:
            begin, end = int(first), min(int(last) + 1 if last else len(content), len(content))
        if begin >= end:
            return self.answer(416, b"", Content_Range=f"bytes */{len(content)}")
        self.store.sent += end - begin
        span = f"bytes {begin}-{end - 1}/{len(content)}"
        return self.answer(206, content[begin:end], Content_Range=span, **headers)

    def list(self, bucket, _):
        prefix, delimiter = self.args.get("prefix", ""), self.args.get("delimiter", "")
        begin, end = self.args.get("startOffset", ""), self.args.get("endOffset", "")
        after = self.args.get("pageToken", "")
        most = int(self.args.get("maxResults", 1000))
        items, prefixes, token = [], [], None
        with self.store.lock:
            found = sorted(n for b, n in self.store.objects if b == bucket and n.startswith(prefix))
        for name in found:
            tail = name[len(prefix) :]
            folder = bool(delimiter) and delimiter in tail
            shown = prefix + tail.split(delimiter)[0] + delimiter if folder else name
            if shown <= after or name < begin or (end and name >= end) or shown in prefixes:
                continue
            if len(items) + len(prefixes) == most:
                token = max([*prefixes, *(i["name"] for i in items)])
                break
            if folder:
                prefixes.append(shown)
            else:
                items.append(self.store.meta(bucket, name))
        page = {"kind": "storage#objects", "items": items, "prefixes": prefixes}
        self.answer(200, page | ({"nextPageToken": token} if token else {}))

    def write(self, bucket, name):
        kind, match = self.args.get("uploadType"), self.args.get("ifGenerationMatch")
        if "upload_id" in self.args:
            return self.resume(self.args["upload_id"])
        if kind == "resumable":
            name = self.args.get("name") or json.loads(self.body)["name"]
            session = f"s{len(self.store.sessions)}"
            self.store.sessions[session] = (bucket, name, match, bytearray())
            host = self.headers["Host"]
            place = f"http://{host}/upload/storage/v1/b/{bucket}/o?upload_id={session}"
            return self.answer(200, b"", Location=place)
        if kind == "multipart":
            said, content = self.parts()
            name = said.get("name") or name
        else:
            content = self.body
        return self.stored(self.store.put(bucket, name, content, match))

    def parts(self):
        """Returns what an upload in two parts says of the object, and its content, byte for byte.

        Clients end lines by either \\n or \\r\\n; a content may end with any of these bytes itself.
        """
        head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
        mark = b"--" + email.parser.BytesParser().parsebytes(head).get_boundary().encode()
        line = b"\r\n" if self.body.startswith(mark + b"\r\n") else b"\n"
        _, first, second, _ = (line + self.body).split(line + mark)
        said, content = (part.split(2 * line, maxsplit=1)[1] for part in (first, second))
        return json.loads(said), content

    def resume(self, session):
        bucket, name, match, content = self.store.sessions[session]
        if self.command == "DELETE":
            del self.store.sessions[session]
            return self.answer(499)
        content += self.body
        total = re.fullmatch(r"bytes .*/(\d+)", self.headers.get("Content-Range", ""))
        if total is None or len(content) < int(total[1]):
            return self.answer(308, b"", Range=f"bytes=0-{len(content) - 1}")
        return self.stored(self.store.put(bucket, name, content, match))

    def stored(self, meta):
        return self.error(412, "conditionNotMet") if meta is None else self.answer(200, meta)

    def delete(self, bucket, name):
        with self.store.lock:
            found = self.store.objects.get((bucket, name))
            if found is None:
                return self.error(404, f"No such object: {bucket}/{name}")
            if self.args.get("ifGenerationMatch", str(found[1])) != str(found[1]):
                return self.error(412, "conditionNotMet")
            del self.store.objects[bucket, name]
        return self.answer(204)


class Server(http.server.ThreadingHTTPServer):
    """Loopback only; a client that goes away in the middle is nothing to speak of."""

    request_queue_size = 128

    def handle_error(self, *_):
        pass


def environment(port):
    """Returns variables that send gcsfs, google-cloud-storage and tensorstore to the store."""
    here = f"http://127.0.0.1:{port}"
    return {
        "STORAGE_EMULATOR_HOST": here,
        "TENSORSTORE_GCS_HTTP_URL": here,
        "GOOGLE_CLOUD_PROJECT": "test",
        "NO_GCE_CHECK": "true",
        "GCE_METADATA_ROOT": "127.0.0.1:1",
        "no_proxy": ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1"])),
    }


@contextlib.contextmanager
def serve(*buckets):
    """A store with empty buckets, and the environment that leads to it."""
    store = Store(*buckets)
    handler = type("Bound", (Handler,), {"store": store})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield store, environment(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
