"""What the comparisons of AT-GRPO train: arms as changes to one recipe, what each page needs, and what the paper says.

Only names and settings; `speedrun.at_grpo.playing_runs` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speedrun.at_grpo.levels import PLANNER, TOOL, GameName

START = "start"
"""What every arm of a game and seed begins from: the policy that was taught on their cold start."""
SAMPLED, GREEDY, DETOURS, DIRECT = "sampled", "greedy", "detours", "direct"
"""Attempts at held-out levels; those where distance misleads, and those of equal lengths where it does not, are sampled
ones, too."""
MISLEADING = "misleading"
"""Levels to learn from where distance misleads."""
WATCHED = ("checkpoint_every=5", "checkpoints_kept=1000")
"""Of arms whose checkpoints play validation levels."""
NO_TREE = ('rollout.branching="none"', 'credit="tree"')
FACTORS = (0.5, 1.0, 2.0)
"""That the recipe's learning rate is tried times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    tools: int = 1
    """Agents that propose; with none who acts is alone."""
    acts: str = PLANNER
    overrides: tuple[str, ...] = ()
    """Changes to `recipes/speedrun_at_grpo.toml`."""
    share: float = 1.0
    """Of the budget of generated tokens."""
    levels: str = "train"
    """That it learns from."""
    learns: bool = True
    watched: bool = False
    """Whether all of its checkpoints play validation levels, one reply at a time."""
    apart: bool = False
    """Whether tools and planner have a policy each."""
    played_by: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of an arm that does not learn: agent to another arm and its policy; all by the start's where empty."""
    rates_of: str | None = None
    """The arm that it varies, whose choice of a learning rate it takes; its own where None."""


SHARED, APART, GRPO = "AT-GRPO, shared", "AT-GRPO, per role", "MAS + GRPO"
OF_RUNS = "MAS + GRPO, runs rewarded"
MEMBERS = (3, 5, 7)


def _candidates(k: int, questions: int) -> Arm:
    """With other candidates, and questions such that as many samples are drawn."""
    return Arm(overrides=(f"rollout.branching.candidates={k}", f"rollout.questions={questions}"), rates_of=SHARED)


def _misled(select: str) -> Arm:
    """On levels where distance misleads, with a reward that is the distance gained, nearly alone."""
    overrides = (f'rollout.branching.select="{select}"', "reward.alpha=10.0")
    return Arm(overrides=overrides, levels=MISLEADING, rates_of=SHARED)


ARMS: Mapping[str, Arm] = {
    "single agent": Arm(tools=0, learns=False),
    "MAS": Arm(learns=False),
    "single agent + GRPO": Arm(tools=0, overrides=(*NO_TREE, "rollout.executions=8")),
    GRPO: Arm(overrides=(*NO_TREE, "rollout.executions=4")),
    OF_RUNS: Arm(overrides=(*NO_TREE, "rollout.executions=4", 'reward.kind="run"', "format_weight=0.0"), rates_of=GRPO),
    SHARED: Arm(overrides=WATCHED, watched=True),
    APART: Arm(overrides=WATCHED, watched=True, apart=True),
    "tool alone, before": Arm(tools=0, acts=TOOL, learns=False),
    "tool alone": Arm(tools=0, acts=TOOL, share=0.5, rates_of="planner alone"),
    "planner alone": Arm(tools=0, share=0.5),
    "each alone, put together": Arm(
        learns=False, played_by={TOOL: ("tool alone", "p0"), PLANNER: ("planner alone", "p0")}
    ),
    "together, exchanged": Arm(learns=False, played_by={TOOL: (APART, "planner"), PLANNER: (APART, "tool")}),
    "AT-GRPO, outcome": Arm(overrides=('reward.shaping="outcome"',), rates_of=SHARED),
    "K=2": _candidates(2, 32),
    "K=8": _candidates(8, 8),
    "first": Arm(overrides=('rollout.branching.select="first"',), rates_of=SHARED),
    "random": Arm(overrides=('rollout.branching.select="random"',), rates_of=SHARED),
    **{f"{select}, misled": _misled(select) for select in ("best", "first", "random")},
    "no tree": Arm(
        overrides=('rollout.branching="none"', 'credit="agent-turn"', "rollout.executions=4"), rates_of=SHARED
    ),
    **{f"MAS of {count}": Arm(tools=count - 1, learns=False) for count in MEMBERS},
    **{
        f"MAS of {count} + GRPO": Arm(tools=count - 1, overrides=(*NO_TREE, "rollout.executions=4"), rates_of=GRPO)
        for count in MEMBERS
    },
    **{f"AT-GRPO of {count}": Arm(tools=count - 1, rates_of=SHARED) for count in MEMBERS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    title: str
    systems: tuple[str, ...]
    """Arms."""
    paper: str
    """What the paper reports, in one sentence."""
    pairs: tuple[tuple[str, str], ...]
    """Whose difference is looked at, the first less the second."""
    about: str
    """What its page can tell, and what it cannot."""
    unequal: str = ""
    """What is not the same for all arms that learn, beside what is compared."""
    sets: tuple[str, str] = (SAMPLED, GREEDY)
    """Of attempts, in which differences are looked at."""
    games: tuple[GameName, ...] = ("plan_path", "sudoku")


COMPARISONS: Mapping[str, Comparison] = {
    "training": Comparison(
        title="One agent and two, before and after RL (Tables 1 and 2)",
        systems=("single agent", "single agent + GRPO", "MAS", GRPO, OF_RUNS, SHARED, APART),
        paper="Qwen3-1.7B solves 5, 11, 10, 82, 96 and 97 % of Plan-Path, and 7, 29, 69, 87, 99 and 99 % of Sudoku, in "
        "this order, with one kind of MAS + GRPO.",
        about="It can tell whether RL by turns teaches such policies more than RL with one group per question, with "
        "as many tokens, and whether a second agent helps before and after. It cannot tell what language models gain: "
        "policies this small have learned nothing but these games, the tool runs no code, and a teacher that errs "
        "leaves more to learn than a model that cannot play. Between 0.3 and 0.5 before, which the gate asks for, is "
        "not where the paper's models begin.",
        pairs=(
            ("single agent + GRPO", "single agent"),
            ("MAS", "single agent"),
            (GRPO, "MAS"),
            (SHARED, GRPO),
            (SHARED, OF_RUNS),
            (SHARED, "single agent + GRPO"),
            (APART, SHARED),
        ),
        unequal="runs of a level of the single agent (8, as a level asks it half as often). MAS + GRPO compares the "
        "turns of both agents with one mean, and their rewards differ in scale: in Sudoku a planner that fills a cell "
        "rightly earns 0.25, a tool that proposes it 1.0, so that the right action has a negative advantage unless it "
        "solves the level. Where runs are rewarded, by whether they solve it, there is one scale",
    ),
    "together": Comparison(
        title="Trained alone, trained together, exchanged (Table 4)",
        systems=("single agent", "tool alone, before", "MAS", "tool alone", "planner alone",
                 "each alone, put together", APART, "together, exchanged"),
        paper="On Plan-Path two agents that were trained alone solve 16 % when put together, two that were trained "
        "together 96 %, and 6 % once their policies are exchanged.",
        about="It can tell whether agents that learn side by side fit one another better than agents that learn "
        "apart. It cannot tell what roles are worth that differ in kind: both come from one cold start and write the "
        "same kind of action, so that an exchange that changes little contradicts nothing, and the paper's fall to 6 "
        "% is of a tool that writes code and a planner that does not.",
        pairs=(
            ("each alone, put together", "MAS"),
            (APART, "each alone, put together"),
            (APART, "together, exchanged"),
            ("planner alone", "single agent"),
            ("tool alone", "tool alone, before"),
        ),
        unequal="the prompts and rewards that an agent learns from: alone it is shown no proposals, and who acts "
        "alone is rewarded as a planner, whatever its name. Each agent alone generates half as many tokens, so that "
        "the pair that is put together has as many as the one that is trained together",
    ),
    "outcome": Comparison(
        title="Dense rewards and outcomes alone (Table 6)",
        systems=("single agent", "MAS", SHARED, "AT-GRPO, outcome"),
        paper="With outcomes alone Plan-Path is solved 4 points less often (89 against 93 %), Sudoku as often.",
        about="It can tell what rewards of each turn add to the outcome. It is no copy of Table 6: here a turn is "
        "scored at once, by whether it solves the level and keeps the format, so that turns before the last earn the "
        "format alone; in the paper the outcome at the end is broadcast to all turns. A loss that is larger than the "
        "paper's is of that difference, too.",
        pairs=((SHARED, "AT-GRPO, outcome"), ("AT-GRPO, outcome", "MAS")),
    ),
    "curves": Comparison(
        title="Rewards of each agent, and turns to solve (Figure 6)",
        systems=(SHARED, APART),
        paper="The rewards of both agents rise together, and tasks are solved in fewer turns.",
        about="It can tell whether both agents go on learning, and whether one stops before the other. Rewards of two "
        "agents differ in scale and are not to be compared with one another; that they rise together says nothing of "
        "what causes what. Levels are a hundred, the same at each step: differences of 0.1 between two steps are "
        "chance.",
        pairs=((APART, SHARED),),
    ),
    "members": Comparison(
        title="Three, five and seven agents (Figure 5)",
        systems=tuple(
            name for count in MEMBERS for name in (f"MAS of {count}", f"MAS of {count} + GRPO", f"AT-GRPO of {count}")
        ),
        paper="On AIME24 AT-GRPO gains with every agent, up to 47.7 % with seven; MAS + GRPO ends at 34.1 %.",
        about="It can tell whether more agents that propose help, with as many tokens. All proposals come from one "
        "policy that is shown one position, so that what a larger team adds is more draws of the same thing; the "
        "paper's agents have tools and roles that differ. The cold start plays a fifth of its levels with more than "
        "one tool.",
        pairs=(
            *((f"AT-GRPO of {count}", f"MAS of {count} + GRPO") for count in MEMBERS),
            ("AT-GRPO of 7", "AT-GRPO of 3"),
        ),
        unequal="levels: more agents say more on each, and with as many tokens see fewer",
        games=("plan_path",),
    ),
    "tree": Comparison(
        title="Candidates, and which one a run goes on with",
        systems=("MAS", SHARED, "K=2", "K=8", "first", "random", "no tree"),
        paper="K = 4, and the best goes on; nothing else is reported. Its proof (B.7) assumes that what is best for a "
        "turn is best for the run. Here that holds by construction: the planner's own reward says whether all its "
        "moves lie on a shortest path, as an oracle. What it costs where it does not hold is on the page of "
        "`detours`.",
        about="It can tell whether more candidates, and the best of them as successor, teach more with as many "
        "tokens. It cannot tell whether a greedy successor is right in general: rewards here know the shortest path. "
        "Rates are those of K = 4 for all.",
        pairs=tuple((SHARED, name) for name in ("K=2", "K=8", "first", "random", "no tree")),
        unequal="levels a step, 32, 16 and 8 with K = 2, 4 and 8, so that samples are equal",
        games=("plan_path",),
    ),
    "detours": Comparison(
        title="Which reply a run goes on with, where what is best for a turn is not best for the run",
        systems=("MAS", "best, misled", "first, misled", "random, misled"),
        paper="Nothing: its proof (B.7) assumes that what is best for a turn is best for the run. Here the team's "
        "part of a reward, the Manhattan distance that is gained, weighs ten times as much (`reward.alpha = 10`), and "
        "all arms learn on levels whose shortest path is at least 1.5 times that distance: who gets nearer is often "
        "further off.",
        about="It can tell what it costs to go on with what looks best where it is not, by how far `first` and "
        "`random` come with the same rewards. All three learn from rewards that mislead, so that all of them may end "
        "below `MAS`; levels of equal length without detours say how much of that is length. Levels are small, and "
        "whoever explores four turns of two moves sees most of them.",
        pairs=(
            ("best, misled", "first, misled"),
            ("best, misled", "random, misled"),
            *((f"{select}, misled", "MAS") for select in ("best", "first", "random")),
        ),
        sets=(DETOURS, DIRECT),
        games=("plan_path",),
    ),
}  # fmt: skip


def tools_in(game: GameName) -> list[int]:
    """How many agents propose in its comparisons: none, one, or more."""
    compared = (name for each in COMPARISONS.values() if game in each.games for name in each.systems)
    return sorted({0, 1, *(ARMS[name].tools for name in compared)})
