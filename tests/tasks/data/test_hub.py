"""Downloads: what the client of Hugging Face is asked for, and what is said where there is no client or no network."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from published import GOOD

from tasks.data import TRAINING_SETS, DatasetError, DownloadError, download

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "polaris": "hf download --repo-type dataset POLARIS-Project/Polaris-Dataset-53K polaris-data-53K.jsonl "
    "--local-dir X",
    "apps": "hf download --repo-type dataset codeparrot/apps train.jsonl --local-dir X",
    "code_contests": 'hf download --repo-type dataset deepmind/code_contests --include "data/train-*" --local-dir X',
}


def test_the_commands_to_type() -> None:
    assert {name: each.published.command("X") for name, each in TRAINING_SETS.items()} == COMMANDS


def client(monkeypatch: pytest.MonkeyPatch, snapshot_download: Any) -> None:
    module = ModuleType("huggingface_hub")
    module.__dict__["snapshot_download"] = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_only_the_training_files_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def snapshot_download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        asked.append((repository, repo_type, allow_patterns))
        return str(tmp_path)

    client(monkeypatch, snapshot_download)
    published = TRAINING_SETS[name].published
    assert download(published) == tmp_path
    assert asked == [(published.repository, "dataset", [published.files])]


def test_what_is_said_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        """Of no common base, as those of the client are."""

    def refused(*_: Any, **__: Any) -> str:
        raise Refused("no\nnetwork " + "x" * 1000)

    client(monkeypatch, refused)
    with pytest.raises(DownloadError) as caught:
        download(TRAINING_SETS["apps"].published)
    said = str(caught.value)
    assert said.startswith("cannot download codeparrot/apps: no network xxx")
    assert said.endswith(
        f"Fix: `{COMMANDS['apps'].replace(' X', ' FOLDER')}` where there is a network, then --source FOLDER"
    )
    assert len(said) < 600
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DatasetError, match=r"needs huggingface_hub. Fix: pip install 'metaagent\[data\]'; or `hf"):
        download(TRAINING_SETS["apps"].published)


# The real client


COMMIT = "296f8e3" + "0" * 33
BODY = "".join(json.dumps(row) + "\n" for row in GOOD["polaris"]).encode()


class _Hub(BaseHTTPRequestHandler):
    """Two files of one repository."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        repository = TRAINING_SETS["polaris"].published.repository
        body, headers = b"", {}
        if f"/api/datasets/{repository}" in self.path:
            names = ["README.md", "polaris-data-53K.jsonl"]
            if "/tree/" in self.path:
                listed: Any = [{"type": "file", "path": name, "size": len(BODY), "oid": "0" * 40} for name in names]
            else:
                files = [{"rfilename": name} for name in names]
                listed = {"id": repository, "sha": COMMIT, "siblings": files, "private": False, "tags": []}
            body = json.dumps(listed).encode()
            headers["Content-Type"] = "application/json"
        elif self.path.endswith("/polaris-data-53K.jsonl"):
            body = BODY
            headers |= {"ETag": '"abc"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        self.send_response(200 if body else 404)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def prepared(endpoint: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT)}
    environment["HF_HUB_OFFLINE"] = "0"
    command = f"{shlex.quote(sys.executable)} -m metaagent data prepare polaris --out out --json"
    return subprocess.run(
        shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )


def test_the_real_client_downloads_and_the_file_is_prepared(hub: str, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    ended = prepared(hub, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)["prepared"]
    assert document["rows"] == len(GOOD["polaris"])
    assert COMMIT in document["source"]
    assert [file["path"] for file in document["files"]] == ["polaris-data-53K.jsonl"]
    assert (tmp_path / "out" / "polaris_53k.jsonl").exists()


def test_the_real_client_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    ended = prepared("http://127.0.0.1:9", tmp_path)
    assert ended.returncode == 4, ended.stderr
    error = json.loads(ended.stdout)["error"]
    assert error["message"].startswith("cannot download POLARIS-Project/Polaris-Dataset-53K: ")
    assert "`hf download --repo-type dataset POLARIS-Project" in error["message"]
    assert not (tmp_path / "out").exists()
