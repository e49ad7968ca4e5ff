"""What models of values are made of is loaded without torch, until one is."""

import subprocess
import sys
from pathlib import Path


def test_no_torch_is_loaded_for_rows_views_and_scripted_values() -> None:
    code = (
        "import sys; import trainer.values as v; v.ScriptedScorer({}); v.rows_of_trees; "
        "print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr
