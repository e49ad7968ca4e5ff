"""The page of mutants: what mutmut prints, summed up by module, with each survivor's change."""

from __future__ import annotations

from benchmarks.mutants import changed, outcomes, page_of

RESULTS = """
    trainer.credit.rules.x_one__mutmut_1: killed
    trainer.credit.rules.x_one__mutmut_2: survived
    trainer.credit.rules.x_one__mutmut_3: timeout
    trainer.credit.rules.x_one__mutmut_4: check was interrupted by user
    trainer.credit.rules.x_one__mutmut_5: suspicious
    trainer.credit.reward.x_two__mutmut_1: no tests
"""
DIFF = """# trainer.credit.rules.x_one__mutmut_2: survived
--- trainer/credit/rules.py
+++ trainer/credit/rules.py
@@ -4,3 +4,3 @@
     before
-    return a < -1
+    return a <= -1
"""


def test_results_are_read_as_mutmut_prints_them() -> None:
    assert outcomes(RESULTS) == {
        "trainer.credit.rules.x_one__mutmut_1": "killed",
        "trainer.credit.rules.x_one__mutmut_2": "survived",
        "trainer.credit.rules.x_one__mutmut_3": "timeout",
        "trainer.credit.rules.x_one__mutmut_4": "check was interrupted by user",
        "trainer.credit.rules.x_one__mutmut_5": "suspicious",
        "trainer.credit.reward.x_two__mutmut_1": "no tests",
    }


def test_a_change_is_what_goes_and_what_comes() -> None:
    assert changed(DIFF) == ("return a < -1", "return a <= -1")


def test_the_page_counts_by_module_and_lists_survivors() -> None:
    page = page_of(outcomes(RESULTS), {"trainer.credit.rules.x_one__mutmut_2": DIFF}, "abc1234")
    assert "Of revision abc1234:" in page
    assert "| `trainer.credit.rules` | 2 | 1 | 2 |\n| all | 2 | 1 | 2 |" in page
    assert "Not run at all: `trainer.credit.reward`." in page
    assert "### trainer.credit.rules\n\n- `x_one__mutmut_2`: `return a < -1` became `return a <= -1`\n" in page
