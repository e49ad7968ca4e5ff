"""What tells one state of a file from another, without reading it.

Whatever is kept of a file is kept with its stamp. What is kept, and where, is the business of who keeps it.
"""

from __future__ import annotations

import os


def stamp(found: os.stat_result) -> str:
    """Another text once a path leads to another file, or the file holds something else."""
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}"
