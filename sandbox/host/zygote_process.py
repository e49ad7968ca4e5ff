"""The process of a zygote: its command and the little environment that it is given.

What it is told later, and what becomes of it, is `sandbox.host.zygote_client`'s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from sandbox.jail import START


def launch(control: int, errors: int, arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start it with its end of the control socket and a file for what it says when it fails. Raises OSError.

    `arguments` are those of `sandbox.jail.zygote.main`.
    """
    environment = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONHASHSEED": "0",
        "LD_BIND_NOW": "1",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "METAAGENT_IDS": json.dumps([os.geteuid(), os.getegid()]),
    }
    return subprocess.Popen(
        [sys.executable, "-c", START, json.dumps({"control_fd": control, **arguments})],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
        cwd="/",
        pass_fds=[control],
        start_new_session=True,
    )
