"""Hypothesis without deadlines: how long an example takes says something about the machine, not about the code.

Also: failed assertions of the conformance suite are explained as those of tests are.
"""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("sandbox.conformance")
settings.register_profile("metaagent", parent=settings(), deadline=None)
settings.load_profile("metaagent")
