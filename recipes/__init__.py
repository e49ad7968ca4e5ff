"""The recipes that come along, by name: `tiny`, `ablations/coupled`.

What is in them is `trainer.config`'s or `metaagent.commands.recipe_option`'s; nothing here reads more than first lines.
"""

from pathlib import Path

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """All names, the ablations after the others."""
    names = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml")]
    return sorted(names, key=lambda name: ("/" in name, name))


def recipe_path(name: str) -> Path:
    """The file of a recipe; its name may end in `.toml`, too. Raises ValueError for one that there is not."""
    names = recipe_names()
    plain = name.removesuffix(".toml")
    if plain not in names:
        raise ValueError(f"there is no recipe {name!r}. Fix: one of {', '.join(names)}")
    return FOLDER / f"{plain}.toml"


def recipe_summary(name: str) -> str:
    """What its first paragraph says of it."""
    lines = []
    for line in recipe_path(name).read_text(encoding="utf-8").splitlines():
        said = line.removeprefix("#").strip()
        if not line.startswith("#") or not said:
            break
        lines.append(said)
    return " ".join(lines)
