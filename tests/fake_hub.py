# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A small Hugging Face hub on loopback: as much of its API as huggingface_hub asks for.

Downloads with ETag and X-Repo-Commit, and uploads by preupload, LFS (transfer `basic`) and commit.
Errors carry the X-Error-Code of the hub. Start from `serve`.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading

COMMIT = "a" * 40  # the commit of `main` of every repository
TOKEN = "hf_of_a_test"


class Hub:
    """Repositories and requests.

    Attributes:
      files: (repository, path) -> content at `COMMIT`.
      gated: repositories that ask for consent.
      read_only: repositories that the token may not change.
      asked: (method, path) of all requests.
      created: what was asked about repositories to make.
    """

    def __init__(self):
        self.files, self.gated, self.read_only, self.asked, self.large = {}, set(), set(), [], {}
        self.messages, self.created = [], []

    def fetched(self):
        """The paths whose contents were sent."""
        return [path for method, path in self.asked if method == "GET" and "/resolve/" in path]


def _handler(hub):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, content=b"", **headers):
            if isinstance(content, dict | list):
                content = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def refuse(self, status, code):
            self.answer(status, {"error": code}, X_Error_Code=code)

        def body(self):
            if self.headers.get("Transfer-Encoding") == "chunked":
                content = b""
                while size := int(self.rfile.readline(), 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return content
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def handle_any(self):
            hub.asked.append((self.command, self.path))
            content = self.body()
            if match := re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", self.path):
                return self.resolve(*match.groups())
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" and "/lfs/" not in self.path:
                return self.answer(401, {"error": "Invalid username or password."})
            return self.change(content)

        do_GET = do_HEAD = do_POST = do_PUT = handle_any

        def resolve(self, repository, revision, path):
            if repository in hub.gated:
                return self.refuse(403, "GatedRepo")
            if not any(name == repository for name, _ in hub.files):
                return self.refuse(401, "RepoNotFound")
            if revision not in ("main", COMMIT):
                return self.refuse(404, "RevisionNotFound")
            content = hub.files.get((repository, path))
            if content is None:
                return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self.answer(200, content, ETag=etag, X_Repo_Commit=COMMIT)

        def change(self, content):
            api = re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/(preupload|commit)/main", self.path)
            if self.path == "/api/repos/create":
                asked = json.loads(content)
                hub.created.append(asked)
                name = f"{asked.get('organization')}/{asked['name']}"
                return self.answer(200, {"url": f"http://{self.headers['Host']}/{name}"})
            if self.path == "/api/validate-yaml":
                return self.answer(200, {"errors": [], "warnings": []})
            if self.path.endswith(".git/info/lfs/objects/batch"):
                objects = json.loads(content)["objects"]
                for one in objects:
                    there = f"http://{self.headers['Host']}/lfs/{one['oid']}"
                    one["actions"] = {"upload": {"href": there}}
                return self.answer(200, {"transfer": "basic", "objects": objects})
            if self.path.startswith("/lfs/"):
                assert hashlib.sha256(content).hexdigest() == self.path.removeprefix("/lfs/")
                hub.large[self.path.removeprefix("/lfs/")] = content
                return self.answer(200)
            if api and api[1] in hub.read_only:
                return self.refuse(403, "Forbidden")
            if api and api[2] == "preupload":
                modes = [
                    {
                        "path": file["path"], "shouldIgnore": False,
                        "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    }
                    for file in json.loads(content)["files"]
                ]  # fmt: skip
                return self.answer(200, {"files": modes})
            if api:
                return self.commit(api[1], [json.loads(line) for line in content.splitlines()])
            return self.answer(404, {"error": self.path})

        def commit(self, repository, lines):
            for line in lines:
                value = line["value"]
                if line["key"] == "header":
                    hub.messages.append(value["summary"])
                elif line["key"] == "lfsFile":
                    hub.files[repository, value["path"]] = hub.large[value["oid"]]
                elif line["key"] == "file":
                    hub.files[repository, value["path"]] = base64.b64decode(value["content"])
            there = f"http://{self.headers['Host']}/{repository}/commit/{COMMIT}"
            self.answer(200, {"commitUrl": there, "commitOid": COMMIT})

    return Handler


@contextlib.contextmanager
def serve():
    """Yields a `Hub` and its address."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
