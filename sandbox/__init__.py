"""Where other people's code runs: jailed programs, jailed code, jailed calls. Start with `ProcessSandbox`."""

from sandbox.process import ProcessSandbox
from sandbox.protocol import CodeProcess, CodeResult, Description, Sandbox, Strength, Workspace

__all__ = ["CodeProcess", "CodeResult", "Description", "ProcessSandbox", "Sandbox", "Strength", "Workspace"]
