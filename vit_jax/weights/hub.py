# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fetches weights from the Hugging Face hub and uploads them: `hf:OWNER/NAME[@REVISION]`.

The package huggingface_hub does both, with its own cache, token and environment variables
(HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE). Only safetensors are read. Start from `local`.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import cache
from vit_jax.weights.formats import json_config

SCHEME = "hf:"
FILE = "model.safetensors"
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


@functools.cache  # a branch may move while a run starts: its weights and origin.json must agree
def local(text: str) -> Path:
    """Returns the local path of the weights in a repository, after a download if needed.

    The JSON files of timm or transformers lie beside it. All files are of one commit, which names
    the folder.

    Args:
      text: `hf:OWNER/NAME`, or `hf:OWNER/NAME@REVISION` with a branch, tag or commit.

    Raises:
      BadInput: huggingface_hub is not installed, the name or revision does not exist, the
        repository is closed to this account or has no safetensors file, or there is no network and
        no copy in the cache.
    """
    repository, _, revision = text.removeprefix(SCHEME).partition("@")
    if not repository or (text.endswith("@") and not revision):
        raise BadInput(f"{text!r} is not a name; expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION.")
    with _explained(text, repository):
        unreachable = _unreachable(repository, revision or None) if _online() else None
        local_only = unreachable is not None or not _online()
        try:
            path = Path(_fetch(repository, FILE, revision or None, local_only))
        except _hub().errors.LocalEntryNotFoundError as e:
            raise e from unreachable or e.__cause__
        for name in (json_config.NAME, json_config.PREPROCESSOR):
            try:
                _fetch(repository, name, path.parent.name, local_only)
            except _hub().errors.LocalEntryNotFoundError:
                if not local_only:
                    raise
            except _hub().errors.EntryNotFoundError:
                pass  # only some repositories have both
    return path


def _fetch(repository: str, file: str, revision: str | None, local_only: bool) -> str:
    return _hub().hf_hub_download(repository, file, revision=revision, local_files_only=local_only)


def _unreachable(repository: str, revision: str | None) -> Exception | None:
    """Asks the hub once; returns the error if no answer came.

    A download would ask six times, 23 s in all, with two lines in the log for each.
    """
    hub = _hub()
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, FILE, revision=revision))
    except Exception as e:
        return e if _of_network(e) else None  # the download explains any answer
    return None


def _of_network(error: Exception) -> bool:
    return type(error).__module__.startswith(("httpx", "httpcore"))


def _online() -> bool:
    return cache.may_download() and not _hub().constants.is_offline_mode()


def check_upload(repository: str) -> None:
    """Raises BadInput if an upload cannot succeed: no package, no network allowed, no token."""
    hub = _hub()
    with _explained(repository, repository):
        hub.utils.validate_repo_id(repository)
    if not _online():
        raise BadInput("the network is forbidden (--offline); give --out=FOLDER to write only.")
    if not hub.get_token():
        raise BadInput(
            f"there is no token for {hub.constants.ENDPOINT}: {_LOG_IN}; or give --out=FOLDER to "
            "write the files and upload them later."
        )


def upload(folder: Path, repository: str, message: str, *, private: bool) -> str:
    """Uploads the files of a folder as one commit; returns its address.

    A repository that does not exist is made, for its owner alone if `private` is True.

    Raises:
      BadInput: the account may not write there, or the hub does not answer.
    """
    api = _hub().HfApi()
    with _explained(repository, repository):
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    return str(commit.commit_url)


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as e:
        raise BadInput(
            "the package huggingface_hub is not installed; install it with `pip install "
            "'vit_jax[hub]'`."
        ) from e
    return huggingface_hub


@contextlib.contextmanager
def _explained(text: str, repository: str) -> Iterator[None]:
    """Turns every error of the hub into one message with the next action."""
    errors = _hub().errors
    page = f"{_hub().constants.ENDPOINT}/{repository}"
    try:
        yield
    except errors.HFValidationError as e:
        raise BadInput(f"{text} is not a name of the hub; expected hf:OWNER/NAME.") from e
    except errors.GatedRepoError as e:
        raise BadInput(
            f"{text}: the owner asks for consent; accept at {page}, then {_LOG_IN}."
        ) from e
    except errors.RepositoryNotFoundError as e:
        raise BadInput(
            f"{text}: {page} does not exist, or is private; correct the name, or {_LOG_IN}."
        ) from e
    except errors.RevisionNotFoundError as e:
        raise BadInput(f"{text}: {page} has no such revision; {page}/commits lists them.") from e
    except errors.LocalEntryNotFoundError as e:
        raise BadInput(
            f"{text} is not in the cache of the hub ({_hub().constants.HF_HUB_CACHE}), and the hub "
            f"cannot be asked: {_reason(e)}. Run the command once where there is a network; or "
            f"copy {FILE} and {json_config.NAME} into a folder and give that file."
        ) from e
    except errors.EntryNotFoundError as e:
        raise BadInput(
            f"{text}: {page} has no {FILE}; pickled weights are never loaded. Choose a repository "
            "or a revision (hf:OWNER/NAME@refs/pr/1) that has one."
        ) from e
    except errors.HfHubHTTPError as e:
        status = e.response.status_code
        advice = (
            f"{_LOG_IN} of an account that may do this" if status in (401, 403) else "try later"
        )
        raise BadInput(f"{text}: the hub answers {status}: {_line(e)}; {advice}.") from e
    except (OSError, ValueError, RuntimeError) as e:
        raise BadInput(
            f"{text}: the hub cannot be used: {_line(e)}; check the network and the disk."
        ) from e
    except Exception as e:
        if not type(e).__module__.startswith(("httpx", "httpcore", "huggingface_hub", "hf_xet")):
            raise
        raise BadInput(f"{text}: the hub cannot be reached: {_line(e)}; check the network.") from e


def _reason(error: BaseException) -> str:
    if not _online():
        return "downloads are forbidden (--offline, HF_HUB_OFFLINE)"
    return _line(error.__cause__ or error)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
