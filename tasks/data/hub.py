"""Data sets on Hugging Face: what each is called there, how to download it by hand, and the download itself.

Needs huggingface_hub, and a network. Not here: what is in the files (`tasks.data.sources`, `tasks.data.prepare`).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks.data.rows import DatasetError


class DownloadError(DatasetError):
    """The files could not be had from Hugging Face."""


@dataclass(frozen=True, slots=True)
class Published:
    """Files of one repository."""

    repository: str
    files: str
    """Their name, or a pattern."""

    def command(self, folder: str) -> str:
        """What to type where there is a network; it goes on where it was stopped."""
        files = f'--include "{self.files}"' if "*" in self.files else self.files
        return f"hf download --repo-type dataset {self.repository} {files} --local-dir {folder}"


def download(published: Published) -> Path:
    """The folder with the files, in Hugging Face's own cache; what is there already is not fetched again.

    Raises `DatasetError` where huggingface_hub is missing, and `DownloadError` where the files cannot be had; both say
    what to type instead.
    """
    instead = f"`{published.command('FOLDER')}` where there is a network, then --source FOLDER"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DatasetError(
            f"downloading needs huggingface_hub. Fix: pip install 'metaagent[data]'; or {instead}"
        ) from None
    try:
        return Path(snapshot_download(published.repository, repo_type="dataset", allow_patterns=[published.files]))
    except Exception as error:  # the client's errors, and those of the libraries below it, have no common base
        said = " ".join(str(error).split())[:300]
        raise DownloadError(f"cannot download {published.repository}: {said}. Fix: {instead}") from None
