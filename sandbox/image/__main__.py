"""`python -m sandbox.image`: build the image offline and import it into Docker; `--tag` and `--hash` only print."""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.image.content import CODE_LABEL, REPOSITORY, code_hash, image_tag
from workflow.failures import SandboxUnavailable


def build(api: Any, modules: Iterable[Path] = ()) -> str:
    """Import the image unless it is there, and return its tag; further `modules` give it a tag of its own."""
    from docker.errors import ImageNotFound

    from sandbox.image.rootfs import OURS, PYTHON, write_rootfs

    modules = sorted(modules)
    tag = code_hash()
    if modules:
        extra = hashlib.sha256(b"\0".join(path.name.encode() + path.read_bytes() for path in modules)).hexdigest()
        tag += f"-{extra[:12]}"
    try:
        api.inspect_image(f"{REPOSITORY}:{tag}")
    except ImageNotFound:
        with tempfile.NamedTemporaryFile(prefix="metaagent-image-") as file:
            write_rootfs(file.file, modules)
            file.flush()
            changes = [
                f"ENV PATH={PYTHON}/bin:/bin",
                f"ENV PYTHONPATH={OURS}",
                f"LABEL {CODE_LABEL}={code_hash()}",
            ]
            api.import_image_from_file(file.name, repository=REPOSITORY, tag=tag, changes=changes)
    return f"{REPOSITORY}:{tag}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.image", description=__doc__)
    parser.add_argument("--tag", action="store_true", help="print the tag that the Docker backend looks for")
    parser.add_argument("--hash", action="store_true", help="print the hash of this code, for a Dockerfile's label")
    parser.add_argument("--add", type=Path, action="append", default=[], help="another module file that calls import")
    arguments = parser.parse_args()
    if arguments.tag or arguments.hash:
        print(image_tag() if arguments.tag else code_hash())
        return 0
    from sandbox.containers import connect

    try:
        print(build(connect(), arguments.add))
    except SandboxUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
