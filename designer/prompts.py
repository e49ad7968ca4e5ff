"""What a model is told when it designs: the full prompt with templates, the short one for RL, the repair request.

The tables of the contract and of the policy are written from the real signatures, the sandbox's own tables and the
default limits, so they cannot drift. Nothing here talks to a model or reads its reply (see `designer.extract`).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, NoReturn

import workflow
from designer.features import clean, domain_of
from sandbox.language import SYNTAX_FIXES, UNAVAILABLE, standard_facades
from templates import Template
from workflow.answers import Domain
from workflow.completion import ChatMessage
from workflow.failures import Finding
from workflow.limits import Limits


class Entry(NamedTuple):
    """What the prompt says about one name of the contract; its signatures are read from the code."""

    meaning: str
    """Words in backquotes are arguments, methods or fields of the class."""
    methods: tuple[str, ...] = ()
    """Methods that programs call or define."""


ENTRIES = {
    "AgentNode": Entry(
        "One role, played by the language model. With a `tool_registry` it may call tools, for at most `max_turns` "
        "replies; without one, set `max_turns` to 1."
    ),
    "EnsembleNode": Entry(
        '`agents` answer in parallel. `strategy` is "majority_vote" (a `consensus_agent` decides where '
        'votes are split), "weighted_vote" (with `weights`, one per agent) or "consensus" (needs `consensus_agent`, '
        "which reads what all of them deliver and decides)."
    ),
    "ReflectionNode": Entry(
        "`agent` solves, `critic_agent` (or `agent` itself) reviews, `agent` refines; ends when the review's verdict "
        "is CORRECT, or after `num_iterations` reviews. The result is the agent's last solution."
    ),
    "DebateNode": Entry(
        "`debaters` argue in parallel for `num_rounds` rounds; then `judge` decides, or the majority without one."
    ),
    "RouterNode": Entry("Runs the one of `routes` that `routing_func`(context) names, else `default_route`."),
    "WorkflowNode": Entry(
        "Base of your own nodes: subclass it and define `process` in plain Python; there, call other nodes' "
        "`process`. It returns a Message.",
        ("process",),
    ),
    "Workflow": Entry(
        "A chain: each node sees the question and what the nodes before it delivered. The result is the last node's.",
        ("add_node", "add_nodes", "run"),
    ),
    "ConditionalWorkflow": Entry(
        "A chain in which a node is skipped when its `condition`(context) is false.", ("add_node",)
    ),
    "LoopWorkflow": Entry(
        "A chain that repeats while `condition`(context) is true, at most `max_iterations` times.",
        ("set_loop_condition",),
    ),
    "AgentGraph": Entry(
        "Nodes and edges, by node name. `targets` maps the results of `condition`(context) to nodes; the run ends at a "
        "finish point or where no edge leads on, and the last node's message is the result.",
        ("add_node", "add_edge", "add_conditional_edge", "set_entry_point", "set_finish_point"),
    ),
    "create_simple_chain": Entry("A Workflow of the given nodes; an AgentGraph of (name, node) pairs."),
    "ToolRegistry": Entry(
        "An agent's tools. `func` is a function of the program that returns text; `parameters` is a JSON Schema of "
        "its arguments.",
        ("register",),
    ),
    "Message": Entry("What nodes exchange. Conditions read `content` and `sender`."),
    "MessageType": Entry("Kinds of messages: {members}."),
    "Context": Entry(
        "The `messages` so far and a free `state`, for conditions and nodes of your own.",
        ("add_message", "get_messages_by_type", "get_latest_message", "set_state", "get_state"),
    ),
}

_TASK = """You design multi-agent programs. For the problem you are given, you write a short Python program that \
composes agents (roles played by a language model) into a workflow. The program is then run on the problem, and its \
result is graded. You design; the agents solve: put your insight into the problem into their roles and prompts, but \
never an answer of your own, since an answer that no agent gave does not count."""

_PROTOCOL = """RULES OF THE PROTOCOL
- Tools: an agent calls one by writing <tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call>. It is told so, \
with its tools' schemas, automatically; the prompt need only say when to use which tool. Results come back to the same \
agent as its next turn.
- Code: a tool runs Python with subprocess.run([sys.executable, "-c", code], input=..., capture_output=True, \
text=True, timeout=...). That is the only use of subprocess there is.
- Delivery: where an agent hands on its result, it is asked automatically to put it inside <delivery>...</delivery>; \
the next agent sees only that. In a ConditionalWorkflow or an AgentGraph, ask for it in the prompt.
- Answers: the last agent must write the final answer as \\boxed{{...}} for math, or the complete code inside \
<solution>...</solution> for programming. Votes compare boxed answers.
- Reviews: a critic must end with a line such as "Verdict: INCORRECT" or "Verdict: CORRECT".
- End with one workflow in the variable `workflow`; it is run on the problem for you. The problem's text is in the \
variable `question`.

WHAT A PROGRAM CANNOT DO
- Import anything but workflow, workflow.nodes and these standard modules: {modules}.
- Use {builtins}.
- Use {syntax}.
- Read files, the network, the environment, or what is inside functions and classes (__globals__, __mro__).
- Make more than {agent_calls} agent calls or {tool_calls} tool calls and code runs, or run for more than \
{wall_s:g} seconds, waiting for agents not counted."""

_REQUEST = """First write, in this order:
Problem Type: MATH or CODE.
Problem Analysis: what is given, what is asked, which ideas and which pitfalls matter.
Workflow Pattern: the pattern you choose. Reason: why it suits this problem, and why nothing cheaper would do.
Agent Design: each agent's role, and what its prompt says about this very problem.
Workflow Flow: the steps from the problem to the final answer.
Then write the complete program, once, inside <code>...</code>."""

_SHORT = """You write Python programs that compose agents into a workflow which solves the user's problem. Analyse \
the problem, choose the cheapest pattern that will solve it, and write the agents' prompts for this very problem.

from workflow import {names}
{signatures}

The program ends with one workflow in the variable `workflow`. The last agent writes the final answer as \
\\boxed{{...}} (math) or the code inside <solution>...</solution> (programming); agents hand on results inside \
<delivery>...</delivery>; a critic ends with Verdict: CORRECT or INCORRECT. A tool may run code with \
subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30).

Answer with Problem Type, Problem Analysis, Workflow Pattern, Agent Design and Workflow Flow, then the complete \
program inside <code>...</code>."""

_SHORT_NAMES = (
    "AgentNode",
    "EnsembleNode",
    "ReflectionNode",
    "DebateNode",
    "RouterNode",
    "Workflow",
    "ConditionalWorkflow",
    "LoopWorkflow",
    "AgentGraph",
    "ToolRegistry",
)


def design_messages(problem: str, templates: Sequence[Template], k: int = 3, *, seed: int = 0) -> list[ChatMessage]:
    """The full prompt: task, contract, policy and `k` templates, then the problem. Same arguments, same prompt."""
    chosen = choose_templates(problem, templates, k, seed=seed)
    shown = "\n\n".join(
        f"Pattern: {template.pattern} ({_cost(template)})\n<code>\n{template.program.strip()}\n</code>"
        for template in chosen
    )
    examples = (
        "Some programs from the template bank. Their GUIDANCE and CHECKS are neutral; yours must speak about the "
        f"problem. Take one, change it, or design another.\n\n{shown}\n\n"
        if chosen
        else ""
    )
    system = f"{_TASK}\n\n{contract_text()}"
    return [
        ChatMessage(role="system", content=system),
        ChatMessage(role="user", content=f"{examples}{_problem(problem)}\n\n{_REQUEST}"),
    ]


def short_design_messages(problem: str) -> list[ChatMessage]:
    """The short prompt used in RL, where the policy knows the contract from its cold start."""
    return [ChatMessage(role="system", content=_short_task()), ChatMessage(role="user", content=_problem(problem))]


@cache
def _short_task() -> str:
    signatures = "\n".join(line for name in _SHORT_NAMES for line in signature_lines(name))
    return _SHORT.format(names=", ".join(_SHORT_NAMES), signatures=signatures)


def template_reply(template: Template, domain: Domain) -> str:
    """A reply to the short prompt that chooses a template and writes out its program, for a problem of `domain`."""
    return (
        f"Problem Type: {domain.upper()}\nWorkflow Pattern: {template.pattern}\n"
        f"<code>\n{template.program.strip()}\n</code>"
    )


def repair_messages(messages: Sequence[ChatMessage], reply: str, findings: Sequence[Finding]) -> list[ChatMessage]:
    """The conversation after one failed check: the reply, what the check found, and the request to mend it.

    Raises ValueError if there is nothing to mend.
    """
    if not findings:
        raise ValueError("repair_messages: findings is empty; there is nothing to repair")
    ordered = sorted(findings, key=lambda finding: (finding.severity != "error", finding.line))
    told = "\n".join(f"- {finding.severity}: {finding}" for finding in ordered)
    request = (
        f"The check of your program found:\n{told}\n\n"
        "Mend every error, and the warnings where they are right. Change nothing else. Write the complete corrected "
        "program, once, inside <code>...</code>."
    )
    return [
        *messages,
        ChatMessage(role="assistant", content=reply),
        ChatMessage(role="user", content=request),
    ]


def choose_templates(problem: str, templates: Sequence[Template], k: int, *, seed: int = 0) -> list[Template]:
    """At most `k` templates of the problem's domain, different structures first, in an order drawn from `seed`."""
    domain = domain_of(problem)
    fitting = sorted(
        (template for template in templates if domain == "unclear" or template.domain in (domain, "any")),
        key=lambda template: template.name,
    )
    random.Random(f"{seed} {clean(problem)}").shuffle(fitting)
    seen: dict[str, int] = {}
    ranked = []
    for place, template in enumerate(fitting):
        repeats = seen.get(template.structure, 0)
        seen[template.structure] = repeats + 1
        ranked.append((repeats, place, template))
    return [template for _, _, template in sorted(ranked, key=lambda entry: entry[:2])[: max(k, 0)]]


@cache
def contract_text() -> str:
    """The contract and the policy as a model reads them."""
    table = []
    for name, entry in ENTRIES.items():
        meaning = entry.meaning
        if name == "MessageType":
            meaning = meaning.format(members=", ".join(member.name for member in workflow.MessageType))
        first, *methods = signature_lines(name)
        table.append("\n".join([f"- {first}: {meaning}", *(f"    {method}" for method in methods)]))
    limits = Limits()
    protocol = _PROTOCOL.format(
        modules=", ".join(standard_modules()),
        builtins=", ".join(f"{name}()" for name in UNAVAILABLE),
        syntax=", ".join(dict.fromkeys(what for what, _ in SYNTAX_FIXES.values())),
        agent_calls=limits.agent_calls,
        tool_calls=limits.tool_calls,
        wall_s=limits.wall_s,
    )
    names = ", ".join(workflow.__all__)
    return f"THE CONTRACT: from workflow import {names}\n" + "\n".join(table) + f"\n\n{protocol}"


@cache
def standard_modules() -> tuple[str, ...]:
    """Names of the standard modules that programs may import."""
    return tuple(sorted(standard_facades(seed=0, run_code=_unused, write=_unused)))


def _unused(*_: object) -> NoReturn:
    raise AssertionError("only the names of the modules are read here")


ONE_WAY = {("AgentGraph", "add_node"): "node", ("AgentGraph", "add_edge"): "source, target"}
"""Parameters of methods that take the published contract's other forms, too: one way is enough for a prompt. Policies
are trained on these lines; the embedded ones know no others."""


def signature_lines(name: str) -> list[str]:
    """Constructor (or function) of the contract by name, then the methods that programs use, one per line."""
    value = getattr(workflow, name)
    if isinstance(value, type) and issubclass(value, Enum):
        return [name]
    methods = [
        f".{method}({ONE_WAY.get((name, method)) or _parameters(getattr(value, method))})"
        for method in ENTRIES[name].methods
    ]
    return [f"{name}({_parameters(value)})", *methods]


def _parameters(function: Callable[..., Any]) -> str:
    """Those that may be given by position; what is for keywords alone programs seldom need."""
    parameters = inspect.signature(function).parameters.values()
    shown = (item for item in parameters if item.name != "self" and item.kind is not item.KEYWORD_ONLY)
    return ", ".join(map(_parameter, shown))


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = parameter.default
    if default is inspect.Parameter.empty:
        return stars + parameter.name
    if isinstance(default, Enum):
        return f"{parameter.name}={type(default).__name__}.{default.name}"
    return f"{parameter.name}={default!r}"


def _cost(template: Template) -> str:
    fewest, most = template.agent_calls
    count = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{count} agent call{'s' if most > 1 else ''}"


def _problem(problem: str) -> str:
    return f"<problem>\n{problem.strip()}\n</problem>"
