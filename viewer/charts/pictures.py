"""Specs as PNG and SVG files, for docs and reports: drawn by vl-convert, which brings Vega-Lite and fonts along, and
asks nobody for anything.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viewer.charts.encodings import Spec

WIDTH = 760
"""Pixels of a picture."""
SCALE = 1.5
"""Pixels of the file per pixel of the picture."""
VEGA_LITE = "6.4"
PHONE = 340
"""Pixels for which the columns of legends are counted."""
GAP = 70
"""Pixels that an axis takes."""
PAPER: Spec = {
    "background": "white",
    "font": "Liberation Sans",  # vl-convert has it: pictures are the same on every machine
    "padding": 10,
    "view": {"stroke": None},
    "axis": {"labelColor": "#4a545f", "titleColor": "#4a545f", "gridColor": "#dde2e7", "domainColor": "#b8c0c8"}
    | {"tickColor": "#b8c0c8", "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11},
    "legend": {"labelFontSize": 11, "labelColor": "#1c2128"},
    "title": {"anchor": "start", "fontSize": 13, "color": "#1c2128", "offset": 12},
    "rule": {"color": "#1c2128"},
}


def beside(charts: Sequence[Spec], title: str = "") -> Spec:
    """Charts side by side, for a picture: on a page each has its own place."""
    made: Spec = {"hconcat": list(charts), "spacing": 30, "resolve": {"scale": {"color": "independent"}}}
    return made | ({"title": title} if title else {})


def png(spec: Spec, path: Path, width: int = WIDTH) -> None:
    """Raises ImportError without vl-convert-python, ValueError for a spec that is none, OSError."""
    made = _converter().vegalite_to_png(
        _sized(spec, width), vl_version=VEGA_LITE, config=PAPER, scale=SCALE, allowed_base_urls=[]
    )
    path.write_bytes(_packed(made))


def svg(spec: Spec, path: Path, width: int = WIDTH) -> None:
    """Raises what `png` raises."""
    text = _converter().vegalite_to_svg(_sized(spec, width), vl_version=VEGA_LITE, config=PAPER, allowed_base_urls=[])
    path.write_text(text, encoding="utf-8")


def _packed(picture: bytes) -> bytes:
    """The same PNG in a third of the bytes: vl-convert hardly packs its one block of pixels."""
    parts, pixels, at = [picture[:8]], b"", 8
    while at < len(picture):
        (size,) = struct.unpack(">I", picture[at : at + 4])
        kind, body = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += 12 + size
        if kind == b"IDAT":
            pixels += body
            continue
        if kind == b"IEND":
            parts.append(_chunk(b"IDAT", zlib.compress(zlib.decompress(pixels), 9)))
        parts.append(_chunk(kind, body))
    return b"".join(parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise ImportError('vl-convert-python is not installed. Fix: pip install "metaagent[speedrun]"') from None
    return vl_convert


def _sized(spec: Spec, width: int) -> Spec:
    """As wide as that, where the spec leaves it to the page."""
    if "hconcat" in spec:
        each = width // len(spec["hconcat"]) - GAP
        return spec | {"hconcat": [{**_sized(one, each), "autosize": "pad"} for one in spec["hconcat"]]}
    return _with_room(spec | {"width": width}, width) if spec.get("width") == "container" else spec


def _with_room(part: Any, width: int) -> Any:
    """With as many columns in legends as this width has room for."""
    if isinstance(part, list):
        return [_with_room(each, width) for each in part]
    if not isinstance(part, dict) or "values" in part:
        return part
    wider = {"columns": part["columns"] * max(1, width // PHONE)} if "columns" in part else {}
    return {name: _with_room(value, width) for name, value in part.items()} | wider
