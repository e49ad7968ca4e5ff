"""What search over a program's runs costs, beside ways without what it shares.

Side by side in one run; ratios count. The program is a chain of four agents, its policy a random model of the Qwen3
architecture, so that nothing is said of any model.

- tree: agent calls, tokens, prompt tokens computed and seconds of one whole tree (C_max 3, depth 4), and of runs that
  begin at the root for each of its states;
- host: milliseconds per state of a search with replies that take no time (select, replay, back up), in jails and in
  this process, and of asking a LangGraph, run from its start for each question, who is next and what the end is, as
  the released code of MASPRM does;
- share: host time in a search whose replies take 50 ms;
- scoring: states per second of a model of values, 3 candidates of 16 problems in batches, and one by one;
- problems: seconds per search, 64 at once and 8 one after another, with an engine that takes 50 ms.

    python -m benchmarks.search [--only tree] [--write]

`tree` and `scoring` need `pip install "metaagent[train]"`, the peer of `host` `metaagent[bench]`; what is not there is
named and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import operator
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from engine import Engine
from sandbox import ProcessSandbox
from search import AgentStep, Branching, OpenRuns, Program, jailed, trusted
from search.methods import Likelihood, MctsSettings, Node, Tree, mcts
from search.problem import ProgramSpace
from search.scoring import ScoredState
from workflow import AgentNode, Workflow
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling, Usage
from workflow.limits import Limits

DEPTH, CHILDREN, SIMULATIONS = 4, 3, 20
AGENTS = ("Reader", "Planner", "Solver", "Verifier")
CHAIN = f"""from workflow import AgentNode, Workflow
text = question
for name in {AGENTS}:
    text = Workflow("w").add_node(AgentNode(name, "Go on.", max_turns=1)).run(text).content
answer = text
"""
LATENCY_S = 0.05
SEPARATOR = "<|value|>"
RESULTS = Path(__file__).parent / "results" / "search.json"
PARTS = ("tree", "host", "share", "scoring", "problems")
NEED_TORCH = ("tree", "scoring")
Figures = dict[str, float]


class Scripted:
    """Replies of a few words, by the request's seed, after some time; none of them alike."""

    name = "scripted"

    def __init__(self, latency_s: float = 0.0) -> None:
        self.latency_s = latency_s
        self.calls = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.calls += 1
        await asyncio.sleep(self.latency_s)
        said = f"reply {request.sampling.seed}"
        usage = Usage(prompt_tokens=20, completion_tokens=4)
        return Completion(text=said, logprobs=[-0.1, -((request.sampling.seed or 0) % 7) / 7], usage=usage)

    async def close(self) -> None: ...


class Counted:
    """What an engine was asked, and computed."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name = engine, engine.name
        self.calls = self.generated = self.prompt = self.computed = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        reply = await self.engine.complete(request)
        self.calls += 1
        self.generated += reply.usage.completion_tokens
        self.prompt += reply.usage.prompt_tokens
        self.computed += reply.usage.prompt_tokens - (reply.usage.prefix_tokens or 0)
        return reply

    async def close(self) -> None: ...


async def whole_tree(program: Program, engine: Engine, open_runs: OpenRuns) -> list[Node]:
    """All states, drawn level by level."""
    space = ProgramSpace(Branching(program, open_runs=open_runs), engine)
    tree = Tree(space)
    await tree.start()
    level = [tree.root]
    for _ in range(DEPTH):
        grown = await tree.expand(level, CHILDREN, merge=False)
        level = [node for children in grown for node in children]
        await tree.ends(level)
    await space.close()
    return tree.nodes[1:]


async def from_the_root(sandbox: ProcessSandbox, engine: Engine, at_once: int) -> None:
    """A run for each state of that tree, which ends where the state is."""
    permits = asyncio.Semaphore(at_once)

    async def one(depth: int, seed: int) -> None:
        async with permits:
            await sandbox.run_program(
                CHAIN,
                "Add 3 and 4.",
                engine=engine,
                limits=Limits(agent_calls=depth),
                sampling=Sampling(max_tokens=24, logprobs=True),
                seed=seed,
            )

    depths = [depth for depth in range(1, DEPTH + 1) for _ in range(CHILDREN**depth)]
    await asyncio.gather(*(one(depth, seed) for seed, depth in enumerate(depths)))


async def tree(folder: Path) -> Figures:
    """One whole tree, with shared prefixes and without."""
    from engine.local import TransformersEngine

    local = TransformersEngine(str(folder), dtype="float32")
    sampling = Sampling(max_tokens=24, logprobs=True)
    figures: Figures = {}
    async with ProcessSandbox() as sandbox:
        asked = jailed(sandbox, CHAIN, "Add 3 and 4.", sampling=sampling)
        await whole_tree(asked, Scripted(), OpenRuns(16))  # warms the jails
        for _ in range(2):  # the first one warms the model
            for name in ("shared", "from the root"):
                engine = Counted(local)
                began = time.perf_counter()
                if name == "shared":
                    await whole_tree(asked, engine, OpenRuns(16))
                else:
                    await from_the_root(sandbox, engine, 16)
                figures |= {
                    f"{name}, seconds": time.perf_counter() - began,
                    f"{name}, agent calls": engine.calls,
                    f"{name}, generated tokens": engine.generated,
                    f"{name}, prompt tokens": engine.prompt,
                    f"{name}, prompt tokens computed": engine.computed,
                }
    await local.close()
    for what in ("seconds", "agent calls", "generated tokens", "prompt tokens computed"):
        figures[f"{what}, ratio"] = figures[f"from the root, {what}"] / figures[f"shared, {what}"]
    return figures


def chain() -> Workflow:
    workflow = Workflow("w")
    for name in AGENTS:
        workflow.add_node(AgentNode(name, "Go on.", max_turns=1))
    return workflow


async def searched(
    program: Program, engine: Engine, open_runs: OpenRuns | None = None, *, spares: bool = False
) -> Tree:
    space = ProgramSpace(Branching(program, open_runs=open_runs, spares=spares), engine)
    grown = Tree(space)
    await mcts(grown, Likelihood(), MctsSettings(simulations=SIMULATIONS, children=CHILDREN))
    await space.close()
    return grown


def langgraph_questions() -> Callable[[list[str]], Any]:
    """Who is next after some replies: the chain as a LangGraph that is run from its start and stops at the first agent
    that has no reply."""
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        question: str
        given: list[str]
        said: Annotated[list[str], operator.add]
        next: int

    graph = StateGraph(State)

    def agent(number: int) -> Any:
        def act(state: State) -> dict[str, Any]:
            if number >= len(state["given"]):
                return {"next": number}
            return {"said": [state["given"][number]], "next": number + 1}

        return act

    def goes_on(number: int) -> Callable[[State], str]:
        return lambda state: f"agent{number + 1}" if state["next"] == number + 1 < DEPTH else END

    for number in range(DEPTH):
        graph.add_node(f"agent{number}", agent(number))
        graph.add_conditional_edges(f"agent{number}", goes_on(number))
    graph.add_edge(START, "agent0")
    compiled = graph.compile()

    def ask(given: list[str]) -> int:
        return compiled.invoke({"question": "?", "given": given, "said": [], "next": 0})["next"]

    return ask


def released_questions(grown: Tree) -> list[list[str]]:
    """What the released search asks its graph for while it grows this tree: whether a state is terminal at each step of
    a simulation and for each child that is made, who is next at each expansion, and the answer of each end."""
    questions: list[list[str]] = []

    def replies(node: Node) -> list[str]:
        return [str(each.id) for each in node.path]

    for node in grown.nodes:
        if node.parent is not None:
            questions.append(replies(node))  # made
        if node.children:
            questions.append(replies(node))  # expanded
        if node.end is not None and node.parent is not None:
            questions.append(replies(node))  # its answer
    for node in grown.nodes:
        # Each simulation asks at every state that it comes to.
        questions += [replies(node)] * (SIMULATIONS if node.parent is None else node.visits - node.virtual)
    return questions


async def host() -> Figures:
    """Milliseconds per state."""
    figures: Figures = {}
    async with ProcessSandbox() as sandbox:
        ways: dict[str, Program] = {
            "in jails, ms": jailed(sandbox, CHAIN, "?"),
            "in this process, ms": trusted(chain(), "?"),
        }
        grown = Tree(ProgramSpace(Branching(ways["in this process, ms"]), Scripted()))
        for name, program in ways.items():
            times: list[float] = []
            for _ in range(6):
                began = time.perf_counter()
                grown = await searched(program, Scripted())
                times.append((time.perf_counter() - began) * 1000 / (len(grown.nodes) - 1))
            figures[name] = statistics.median(times[1:])
    if importlib.util.find_spec("langgraph") is None:
        print("left out, as it is not installed: langgraph")
        return figures
    ask, questions = langgraph_questions(), released_questions(grown)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        for given in questions:
            ask(given)
        times.append((time.perf_counter() - began) * 1000 / (len(grown.nodes) - 1))
    figures["LangGraph from its start, ms"] = statistics.median(times[1:])
    figures["questions per state"] = len(questions) / (len(grown.nodes) - 1)
    for name in ways:
        figures[f"ratio, {name.removesuffix(', ms')}"] = figures["LangGraph from its start, ms"] / figures[name]
    return figures


async def share() -> Figures:
    """Of the seconds of one search, those in which no reply was waited for."""
    figures: Figures = {}
    async with ProcessSandbox() as sandbox:
        ways: dict[str, Program] = {"in jails": jailed(sandbox, CHAIN, "?"), "in this process": trusted(chain(), "?")}
        for name, program in ways.items():
            await searched(program, Scripted())
            began = time.perf_counter()
            grown = await searched(program, Scripted(LATENCY_S), spares=True)
            seconds = time.perf_counter() - began
            draws = sum(bool(node.children) for node in grown.nodes)  # siblings are drawn together
            figures |= {f"{name}, seconds": seconds, f"{name}, share": 1 - draws * LATENCY_S / seconds}
    return figures


async def scoring(folder: Path) -> Figures:
    """States per second: 3 candidates of 16 problems, short as in the miniature, and longer."""
    import torch  # pyright: ignore[reportMissingImports]
    from safetensors.torch import save_file  # pyright: ignore[reportMissingImports]

    from engine.pretrained import load_model, load_tokenizer
    from trainer.update import read_values
    from trainer.values import StateView, TorchScorer

    tokenizer, model = load_tokenizer(folder), load_model(folder, torch.float32)
    tokenizer.add_tokens([SEPARATOR], special_tokens=True)
    model.resize_token_embeddings(tokenizer.convert_tokens_to_ids(SEPARATOR) + 1, mean_resizing=False)
    head = {"weight": torch.randn(1, model.config.hidden_size), "bias": torch.zeros(1)}
    save_file(head, folder / "value_head.safetensors")
    view = StateView(tokenizer, SEPARATOR, "local", 4096)
    scorer = TorchScorer("random", view, read_values(model, folder, 16_384))
    figures: Figures = {}
    for shape, (prompt, reply) in {"short": (30, 10), "long": (300, 30)}.items():
        states = [
            ScoredState(f"{problem}", (_step(f"{problem} " * prompt, f"{candidate} " * reply),))
            for problem in range(16)
            for candidate in range(3)
        ]
        rates: dict[str, list[float]] = {"in batches": [], "one by one": []}
        for _ in range(4):
            for name, times in rates.items():
                began = time.perf_counter()
                if name == "in batches":
                    await asyncio.gather(*(scorer.score(states[at : at + 3]) for at in range(0, len(states), 3)))
                else:
                    for state in states:
                        await scorer.score([state])
                times.append(len(states) / (time.perf_counter() - began))
        for name, times in rates.items():
            figures[f"{shape}, {name}"] = statistics.median(times[1:])
        figures[f"{shape}, ratio"] = figures[f"{shape}, in batches"] / figures[f"{shape}, one by one"]
    await scorer.close()
    return figures


def _step(prompt: str, reply: str) -> AgentStep:
    messages = [ChatMessage(role="user", content=prompt)]
    return AgentStep(key="w/A#0", agent="A", messages=messages, reply=Completion(text=reply))


async def problems() -> Figures:
    """Seconds per search."""
    figures: Figures = {}
    async with ProcessSandbox() as sandbox:
        asked = [jailed(sandbox, CHAIN, f"{number}?") for number in range(64)]
        await searched(asked[0], Scripted())
        engine, runs = Scripted(LATENCY_S), OpenRuns(64)
        began = time.perf_counter()
        for each in asked[:8]:
            await searched(each, engine, runs)
        figures["one after another"] = (time.perf_counter() - began) / 8
        began = time.perf_counter()
        await asyncio.gather(*(searched(each, engine, runs) for each in asked))
        figures["64 at once"] = (time.perf_counter() - began) / 64
    figures["ratio"] = figures["one after another"] / figures["64 at once"]
    return figures


async def measure(names: Sequence[str]) -> dict[str, Figures]:
    lacking = [name for name in NEED_TORCH if name in names and importlib.util.find_spec("torch") is None]
    if lacking:
        print(f"left out, as torch is not installed: {', '.join(lacking)}")
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            match name:
                case _ if name in lacking:
                    continue
                case "tree":
                    found[name] = await tree(a_model(Path(folder)))
                case "host":
                    found[name] = await host()
                case "share":
                    found[name] = await share()
                case "scoring":
                    found[name] = await scoring(a_model(Path(folder)))
                case _:
                    found[name] = await problems()
    return found


def a_model(folder: Path) -> Path:
    """Once."""
    if not any(folder.iterdir()):
        import torch  # pyright: ignore[reportMissingImports]

        from benchmarks.tiny_models import make_model

        torch.set_num_threads(1)
        make_model(folder, layers=4, width=128, context=4096)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    found = asyncio.run(measure([given.only] if given.only else PARTS))
    for name, figures in found.items():
        print(name)
        for what, value in figures.items():
            print(f"  {what}: {value:.4g}")
    if given.write:
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        machine = f"Python {platform.python_version()}, Linux {platform.release()}"
        RESULTS.write_text(json.dumps({**kept, "machine": machine, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
