"""Where the models of the conformance suites run: on the CPU, or where METAAGENT_TEST_DEVICE says (`make test-gpu`)."""

import os
from typing import Literal, cast

DEVICE = cast(Literal["cpu", "cuda"], os.environ.get("METAAGENT_TEST_DEVICE", "cpu"))
