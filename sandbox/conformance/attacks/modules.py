# ruff: noqa: E501  (hostile one-liners)
"""Programs that want other modules, what lies behind the allowed ones, or to change what they share with others."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

FORBIDDEN = {
    "os": "import os; keep(os.environ['PATH'])",
    "ctypes": "import ctypes; keep(ctypes)",
    "importlib": "import importlib; keep(importlib.import_module('os'))",
    "star": "from math import *; keep(pi)",
    "the sandbox itself": "import sandbox; keep(sandbox)",
    "the worker": "import sandbox.jail.run_program; keep(sandbox)",
    "the bridge": "from workflow.bridge import perform; keep(perform)",
    "open": "keep(open('@CANARY@').read())",
    "eval": "keep(eval('open'))",
    "exec": "exec('print(\"ESCAPED\")')",
    "compile": "keep(compile('1', 'x', 'eval'))",
    "socket": "import socket; keep(socket)",
    "threads": "import threading; keep(threading._start_new_thread)",
    "import by name": "keep(__import__('os').environ)",
    "gc": "import gc; keep(gc.get_objects())",
    "inspect": "import inspect; keep(inspect.currentframe())",
    "builtins": "import builtins; keep(builtins.open)",
}
ELSEWHERE = {"relative": "from . import process; keep(process)", "input": "keep(input())"}
WALKS = {
    "os from inside another": "import random; keep(random._os)",
    "sys.modules": "import sys; keep(sys.modules)",
    "sys frames": "import sys; keep(sys._getframe())",
    "a walk through submodules": "import json; keep(json.codecs.builtins.open)",
    "a deeper walk": "import json; keep(json.decoder.scanner.re.enum.sys)",
    "collections._sys": "import collections; keep(collections._sys)",
    "from a submodule": "from json import codecs; keep(codecs)",
}
SUBPROCESS = {
    "a subprocess that is not Python": "import subprocess; subprocess.run(['sh', '-c', 'sleep 60 @MARK@'])",
    "a subprocess through a shell": "import subprocess; subprocess.run(['python', '-c', '1'], shell=True); keep('ESCAPED')",
    "Popen": "import subprocess; subprocess.Popen(['python', '-c', '1']); keep('ESCAPED')",
    "a subprocess with an environment": """
            import subprocess
            subprocess.run(['python', '-c', '1'], env={'A': 'b'}, cwd='/')
            keep('ESCAPED')
            """,
}
PICKLES = {
    "pickle": "import pickle; keep(pickle)",
    "marshal": "import marshal; keep(marshal)",
    "copyreg": "import copyreg; keep(copyreg.dispatch_table)",
    "pickle through copy": "import copy; keep(copy.dispatch_table)",
    "a reduction": "keep((1).__reduce_ex__(2))",
}
RAW_MEMORY = {
    "raw memory": "keep(memoryview(b'x' * 8).cast('P'))",
    "id and from_address": "import ctypes; keep(ctypes.c_char.from_address(id(1)))",
    "a bytearray seen from elsewhere": "keep(memoryview(bytearray(8)).obj)",
    "an array": "import array; keep(array.array('b').buffer_info())",
}
TOOL = "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\n"
CHANGES = [
    "import json; json.loads = 1",
    "import math; math.pi += 1",
    "import math; del math.pi",
    "import math; setattr(math, 'pi', 3)",
    "import json; json.JSONEncoder.default = lambda self, o: 1",
    "import json; setattr(json.JSONEncoder, 'default', None)",
    "import json; delattr(json.JSONEncoder, 'default')",
    "import json; json.JSONEncoder.item_separator += 'x'",
    "from dataclasses import dataclass; import json; dataclass(json.JSONEncoder)",
    "from dataclasses import dataclass; from workflow import AgentNode; dataclass(AgentNode)",
    "from functools import total_ordering; from fractions import Fraction; total_ordering(Fraction)",
    "from workflow import AgentNode; AgentNode.steps = None",
    "from workflow import AgentNode; setattr(AgentNode, 'steps', None)",
    "from workflow import Message; Message.content = 'x'",
    "from workflow import MessageType; MessageType.ERROR.label = 1",
    "from workflow import MessageType; MessageType.ERROR = 1",
    "import workflow; workflow.AgentNode = None",
    "import workflow.nodes; workflow.nodes.AgentNode = None",
    "from workflow import AgentNode; AgentNode.__init__ = None",
    "from workflow import AgentNode; AgentNode.process.x = 1",
    "print.x = 1",
    "question.x = 1",
    "from collections.abc import Sequence; Sequence.register(int)",
    "from abc import ABC; ABC.register(int)",
    "from workflow import WorkflowNode; WorkflowNode.config.x = 1",
    "str.x = 1",
    "ValueError.x = 1",
    "import random; random.Random.random = lambda self: 4",
    "import datetime; datetime.datetime.now = None",
    "import sys; sys.stdout.write = print",
    "class A: pass\nsetattr(A(), '__class__', int)",
    "class A: pass\nA().__class__ = int",
    "class A: pass\nA.__name__ = 'B'",
    "import enum; enum.Enum('X', {'A': 1, '__reduce_ex__': lambda self, p: (print, ())})",
    "import enum; enum.Enum('X', names={'A': 1})",
    "import enum; enum.Enum.__call__('X', {'A': 1})",
    TOOL + "t.get_tool('n').parse_raw('')",
    TOOL + "t.get_tool('n').model_config",
    TOOL + "t.get_tool('n').model_fields",
    TOOL + "t.get_tool('n').model_rebuild()",
    TOOL + "type(t.get_tool('n')).parse_raw",
    "from workflow import AgentNode, Workflow; AgentNode.__init__(Workflow(), 'n', 'p')",
    "from workflow import AgentNode, WorkflowNode\nWorkflowNode.__init__(AgentNode('n', 'p'), 'other')",
    "type('X', (), {'__reduce_ex__': print})",
    "import decimal; decimal.DefaultContext.prec = 3",
    "from workflow import Message; Message.delivery.fget",
    "from workflow import AgentNode, Context; next(AgentNode.steps(3, Context()))",
    "class A: pass\nsuper(A).x",
    "import copy; copy.deepcopy([], {})",
    "from workflow import Message; setattr(Message, 'content', 'ESCAPED')",
    "import json; json.loads = print; keep('ESCAPED')",
    "from workflow import AgentNode; AgentNode.process = lambda s, c: 'ESCAPED'",
    "str.upper = None",
]
"""Each must be refused, or the class or module that it changes would be seen by whoever comes next."""


def _last(source: str) -> str:
    """The statement that does it."""
    return source.splitlines()[-1].rpartition("; ")[2]


ATTACKS = [
    *programs("modules", FORBIDDEN),
    *programs("modules", ELSEWHERE, control=False),
    *programs("submodule walk", WALKS),
    *programs("subprocess", SUBPROCESS, control=False),
    *programs("pickle and marshal", PICKLES),
    *programs("raw memory", RAW_MEMORY),
    *programs("shared class changed", {_last(source): source for source in CHANGES}, control=False),
]
