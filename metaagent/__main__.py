"""The command `metaagent`, also as `python -m metaagent`: sees that our rooms are the ones that will be imported, then
runs `metaagent.cli`.
"""

import sys

from metaagent.shadowed import in_the_way


def main() -> None:
    wrong = in_the_way()
    if wrong:
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)
    from metaagent.cli import app

    app(prog_name="metaagent")


if __name__ == "__main__":
    main()
