"""Reading and writing the configuration: layers, paths, what is told about mistakes, the way back."""

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tasks.data.benchmarks import READERS
from trainer.config import DataConfig, EngineConfig, PolicyConfig, Roles, RolloutConfig, TrainConfig
from trainer.config.toml_file import ConfigError, read_config, to_toml
from trainer.update.backend import LoraSettings, PolicyObjective
from workflow.limits import Limits
from workflow.usage import PolicyRole

PLAIN = """\
policies.p0.model = "hub/model"

[[data]]
format = "aime"
path = "train.jsonl"
"""


def write(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path, *overrides: str) -> list[str]:
    """What is told, with the file's folder left out."""
    with pytest.raises(ConfigError) as caught:
        read_config(path, overrides)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [line.replace(f"{path.parent}/", "") for line in caught.value.problems]


# What is read


def test_defaults_are_the_papers(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, PLAIN))
    rollout = config.rollout
    assert (rollout.questions, rollout.designs, rollout.executions, config.stage_length) == (8, 4, 4, 30)
    assert (rollout.max_prompt_tokens, rollout.max_tokens, config.format_weight) == (8192, 8192, 0.4)
    assert config.policies["p0"].learning_rate == 5e-6
    assert config.policies["p0"].engine.thinking is False
    assert config.role_policies == {"designer": "p0", "executor": "p0"}


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("policies.p0.learning_rate=1e-5", lambda c: c.policies["p0"].learning_rate == 1e-5),
        ("policies.p0.learning_rate=1", lambda c: c.policies["p0"].learning_rate == 1.0),
        ("rollout.designs=8", lambda c: c.rollout.designs == 8),
        ("rollout.designs = 8", lambda c: c.rollout.designs == 8),
        ("schedule=coupled", lambda c: c.schedule == "coupled"),
        ('schedule="coupled"', lambda c: c.schedule == "coupled"),
        ("rollout.repair=true", lambda c: c.rollout.repair is True),
        ("policies.p0.model=a/b=c # d", lambda c: c.policies["p0"].model == "a/b=c # d"),
        ("policies.p0.lora.rank=4", lambda c: c.policies["p0"].lora == LoraSettings(rank=4)),
        (
            "policies.p0.lora={rank = 4, targets = ['x']}",
            lambda c: c.policies["p0"].lora == LoraSettings(rank=4, targets=("x",)),
        ),
        ("policies.p0.engine.options.a.b=1", None),
        ("policies.p0.engine.options.a=1", lambda c: c.policies["p0"].engine.options == {"a": 1}),
        ("objective.truncation=none", lambda c: c.objective.truncation is None),
        ("data.0.format=gsm8k", lambda c: [each.format for each in c.data] == ["gsm8k"]),
        ("data.1={format = 'gsm8k', path = 'x'}", lambda c: [each.format for each in c.data] == ["aime", "gsm8k"]),
    ],
)
def test_overrides(tmp_path: Path, override: str, read: Any) -> None:
    path = write(tmp_path, PLAIN)
    if read is None:
        assert problems(path, override)
    else:
        assert not read(read_config(path))
        assert read(read_config(path, [override]))


def test_later_overrides_see_earlier_ones(tmp_path: Path) -> None:
    overrides = ["data.1.format=gsm8k", "data.1.path=/x", "roles.executor=p1", "policies.p1.model=m", "data.1.path=/y"]
    config = read_config(write(tmp_path, PLAIN), overrides)
    assert config.data[1] == DataConfig(format="gsm8k", path=Path("/y"))
    assert config.policies["p1"].model == "m"
    dropped = read_config(write(tmp_path, PLAIN), ["policies.p0.lora.rank=4", "policies.p0.lora=none"])
    assert dropped.policies["p0"].lora is None
    again = read_config(write(tmp_path, PLAIN), ["policies.p0.lora=none", "policies.p0.lora.rank=4"])
    assert again.policies["p0"].lora == LoraSettings(rank=4)


# Paths


def test_paths_mean_files_beside_the_file_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "elsewhere"
    (tmp_path / "recipes" / "model").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    text = PLAIN.replace("train.jsonl", "../train.jsonl").replace("hub/model", "model")
    path = write(tmp_path, f'schedule = "executor-only"\nrollout.program = "~/one.py"\n{text}', "recipes/run.toml")
    config = read_config(path)
    assert config.data[0].path == tmp_path / "train.jsonl"
    assert config.policies["p0"].model == str(tmp_path / "recipes" / "model")
    assert config.rollout.program == Path.home() / "one.py"
    (here / "other").mkdir()
    overrides = ["data.0.path=own.jsonl", "policies.p0.model=other", "rollout.program=none"]
    config = read_config(path, overrides)
    assert config.data[0].path == here / "own.jsonl"
    assert config.policies["p0"].model == str(here / "other")
    assert config.rollout.program is None
    assert read_config(path, ["policies.p0.model=Qwen/Qwen3-8B"]).policies["p0"].model == "Qwen/Qwen3-8B"


def test_no_path_is_forgotten() -> None:
    # A new path in the configuration needs a line in `_resolved`.
    def paths(model: type[BaseModel], place: str = "") -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            for kind in (field.annotation, *get_args(field.annotation)):
                if kind is Path:
                    found.append(place + name)
                elif isinstance(kind, type) and issubclass(kind, BaseModel):
                    found += paths(kind, f"{place}{name}.")
        return found

    assert sorted(paths(TrainConfig)) == ["data.path", "reward.prm", "rollout.program"]


# Extending


def test_a_file_is_laid_over_what_it_extends(tmp_path: Path) -> None:
    base = (
        'steps = 7\n[rollout]\ndesigns = 2\n[objective]\nclip_high = 0.3\n[policies.p0]\nmodel = "m"\nlora.rank = 4\n'
    )
    write(tmp_path, base + '[[data]]\nformat = "aime"\npath = "a"\n', "base.toml")
    write(tmp_path, 'extends = "base.toml"\nsteps = 8\n[policies.p0]\nlora = "none"\n', "middle.toml")
    text = 'extends = "../middle.toml"\n[rollout]\nexecutions = 1\n[[data]]\nformat = "gsm8k"\npath = "b"\n'
    config = read_config(write(tmp_path, text, "deep/top.toml"))
    assert (config.steps, config.rollout.designs, config.rollout.executions) == (8, 2, 1)
    assert config.policies == {"p0": PolicyConfig(model="m")}
    assert config.objective.clip_high == 0.3
    assert config.data == [DataConfig(format="gsm8k", path=tmp_path / "deep" / "b")]
    assert read_config(tmp_path / "middle.toml").data[0].path == tmp_path / "a"


@pytest.mark.parametrize(
    ("extends", "told"),
    [
        ('"run.toml"', "run.toml: it extends itself: run.toml -> run.toml"),
        ('"other.toml"', "run.toml: it extends itself: run.toml -> other.toml -> run.toml"),
        ('"absent.toml"', "cannot read absent.toml (which run.toml extends): No such file or directory"),
        ('"broken.toml"', "broken.toml (which run.toml extends) is not TOML: "),
        ("3", "run.toml: extends = 3 should be the name of one TOML file"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, extends: str, told: str) -> None:
    write(tmp_path, 'extends = "run.toml"\n', "other.toml")
    write(tmp_path, "a = = 3\n", "broken.toml")
    (line,) = problems(write(tmp_path, f"extends = {extends}\n{PLAIN}"))
    assert line.replace(f"{tmp_path}/", "").startswith(told)


def test_a_mistake_is_told_of_the_file_that_made_it(tmp_path: Path) -> None:
    write(tmp_path, f"step = 3\nsteps = true\n{PLAIN}", "base.toml")
    path = write(tmp_path, 'extends = "base.toml"\nseeds = 3\n')
    assert sorted(problems(path, "rollout.design=3")) == [
        "base.toml: steps = true should be a valid integer",
        "base.toml: unknown key step; did you mean steps?",
        "override 'rollout.design=3': unknown key rollout.design; did you mean rollout.designs?",
        "run.toml: unknown key seeds; did you mean seed?",
    ]


# Mistakes


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rollout.desings = 4", "unknown key rollout.desings; did you mean rollout.designs?"),
        ("learning_rate = 1e-5", "unknown key learning_rate; did you mean policies.NAME.learning_rate?"),
        ("policies.p0.max_tokens = 1", "unknown key policies.p0.max_tokens; did you mean rollout.max_tokens?"),
        ("policies.p0.engine.knd = 1", "unknown key policies.p0.engine.knd; did you mean policies.p0.engine.kind?"),
        ("policies.p0.lora.rnk = 3", "unknown key policies.p0.lora.rnk; did you mean policies.p0.lora.rank?"),
        ("rollout.limits.wall = 1", "unknown key rollout.limits.wall; did you mean rollout.limits.wall_s?"),
        ("roles.xyzzy = 'p0'", "unknown key roles.xyzzy; known here: designer, executor, agents"),
        ('rollout.designs = "8"', 'rollout.designs = "8" should be a valid integer'),
        ("rollout.designs = true", "rollout.designs = true should be a valid integer"),
        ("rollout.designs = 8.0", "rollout.designs = 8.0 should be a valid integer"),
        ("rollout.designs = 0", "rollout.designs = 0 should be greater than or equal to 1"),
        ("rollout.designs = 1979-05-27", "rollout.designs = 1979-05-27 is a date or a time, which nothing here "
             "takes. Fix: put text in quotes"),
        ("rollout = 3", "rollout = 3 should be a table"),
        ("policies.p0.learning_rate = nan", "policies.p0.learning_rate = nan should be a finite number"),
        ("policies.p0.device = 3", "policies.p0.device = 3 should be 'auto', 'cpu' or 'cuda'"),
        ("policies.p0.engine.kind = 'vlm'", "policies.p0.engine.kind = \"vlm\" should be 'transformers' or 'vllm'"),
        (
            "policies.p0.engine.options.a = [1]",
            "policies.p0.engine.options.a = [1] should be a valid boolean or a valid integer or a valid number or "
            "a valid string",
        ),
        ('policies."a b".model = "m"', "policies.a b = \"a b\": String should match pattern '^[A-Za-z0-9_-]{1,64}$'"),
        (
            "credit = 'none'",
            "credit = \"none\" should be 'tree', 'flat', 'per-design', 'single-agent', 'at-grpo' or 'agent-turn'",
        ),
        (
            'credit = "at-grpo"',
            'credit = "at-grpo" compares replies to one call, and there is one of each. Fix: '
            'rollout.branching.candidates = 4, or credit = "agent-turn"',
        ),
        (
            'schedule = "executor-only"\nrollout.branching.candidates = 4',
            'rollout.branching has no part in credit = "tree". Fix: credit = "at-grpo"',
        ),
        (
            'credit = "at-grpo"\nrollout.branching.candidates = 4',
            'rollout.branching parts at what agents say, and schedule = "stagewise" has the Designer learn. '
            'Fix: schedule = "executor-only"',
        ),
        (
            'credit = "at-grpo"\nschedule = "executor-only"\nrollout.branching.candidates = 1',
            "rollout.branching.candidates = 1 should be greater than or equal to 2",
        ),
        (
            'credit = "at-grpo"\nschedule = "executor-only"\nrollout.branching.score = "turn"',
            'reward.kind = "run" does not go with rollout.branching.score = "turn". Fix: reward.kind = "turns"',
        ),
        (
            'reward.kind = "turns"\ncredit = "at-grpo"\nschedule = "executor-only"\nrollout.branching.candidates = 4',
            'reward.kind = "turns" does not go with rollout.branching.score = "end". Fix: '
            'rollout.branching.score = "turn", or reward.kind = "run"',
        ),
        (
            "reward.alpha = 2",
            'reward.alpha, shaping and roles are for turns. Fix: leave them out, or reward.kind = "turns"',
        ),
        ('reward.shaping = "dence"', "reward.shaping = \"dence\" should be 'dense' or 'outcome'"),
        (
            "rollout.designs = 1",
            "rollout.designs = 1 leaves the Designer's designs nothing to be compared with. Fix: 2 or more, or "
            'schedule = "executor-only"',
        ),
        (
            "schedule = 'executor-only'\nrollout.designs = 1\nrollout.executions = 1",
            'a single run of each question leaves credit = "tree" nothing to compare an Executor\'s with. '
            "Fix: rollout.executions = 2 or more",
        ),
        (
            "schedule = 'executor-only'\nrollout.designs = 1\nrollout.executions = 1\ncredit = 'agent-turn'\n"
            "reward.kind = 'turns'",
            'a single run of each question leaves credit = "agent-turn" nothing to compare an Executor\'s with. '
            "Fix: rollout.executions = 2 or more",
        ),
        (
            "credit = 'per-design'\nrollout.executions = 1",
            'rollout.executions = 1 leaves credit = "per-design" nothing to compare an Executor\'s with. '
            "Fix: rollout.executions = 2 or more",
        ),
        (
            "rollout.limits.agent_calls = 0",
            "rollout.limits.agent_calls = 0 leaves an Executor nothing to say. Fix: 1 or more",
        ),
        (
            'kl_roles = "all"',
            'kl_roles = "all" says where a KL term holds, and there is none. Fix: objective.kl_coefficient',
        ),
        (
            "roles = { designer = 'p0', agents.Ann = 'p1' }\nschedule = 'executor-only'\nrollout.program = 'x.py'",
            "roles.agents.Ann = 'p1' names no policy. Fix: use one of p0",
        ),
        (
            "roles.agents.Ann = 'p0'",
            "roles.agents names agents of a fixed program, and there is none. Fix: rollout.program, or one policy",
        ),
        ("roles.executor = 'p1'", "roles.executor = 'p1' names no policy. Fix: use one of p0"),
        ('policies.p1.model = "m"', "policies.p1 plays no role. Fix: name it in [roles], or leave it out"),
    ],
)  # fmt: skip
def test_mistakes_name_key_value_and_remedy(tmp_path: Path, line: str, told: str) -> None:
    assert problems(write(tmp_path, f"{line}\n{PLAIN}")) == [f"run.toml: {told}"]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("desings=8", "did you mean rollout.designs?"),
        ("max_token=5", "did you mean rollout.max_tokens?"),
        ("objective.kl=0.1", "did you mean objective.kl_coefficient?"),
        ("policies.p0.clip_hgh=1", "did you mean objective.clip_high?"),
        ("policies.p0.engine.lerning_rate=1", "did you mean policies.p0.learning_rate?"),
        ("policies.p0.engine.learning_rate=1", "did you mean policies.p0.learning_rate?"),
        ("policies.p0.lora.dtyp=1", "did you mean policies.p0.dtype?"),  # of two such tables the outer one
        ("lerning_rate=1", "did you mean policies.NAME.learning_rate?"),
        ("rollout.limits.desings=1", "did you mean rollout.designs?"),
        ("data.0.max_token=1", "did you mean rollout.max_tokens?"),
        ("data.0.policies=1", "did you mean policies?"),
        ("roles.shar=1", "did you mean data.N.share?"),
        ("objective.extends=x", "known here: ratio, aggregation, clip_low, "),
        ("roles.kl=1", "known here: designer, executor, agents"),  # the beginning of a key of this table alone
    ],
)
def test_an_unknown_key_is_looked_for_in_every_table(tmp_path: Path, override: str, hint: str) -> None:
    (line,) = problems(write(tmp_path, PLAIN), override)
    key = override.partition("=")[0]
    assert line.startswith(f"override {override!r}: unknown key {key}; {hint}")


def test_data_mistakes(tmp_path: Path) -> None:
    rows = ['format = "aim"', 'format = "aime"\npath = 3', 'format = "aime"\npath = "x"\nshar = 2']
    text = "".join(f"[[data]]\n{row}\n" for row in rows)
    assert problems(write(tmp_path, f'policies.p0.model = "m"\n{text}')) == [
        "run.toml: data.0.format = \"aim\": there is no such format (did you mean 'aime'?). "
        f"Fix: use one of {', '.join(READERS)}",
        "run.toml: data.0.path is missing",
        "run.toml: data.1.path = 3 should be a valid string",
        "run.toml: unknown key data.2.shar; did you mean data.2.share?",
    ]
    assert problems(write(tmp_path, "")) == ["run.toml: policies is missing", "run.toml: data is missing"]


def test_all_that_is_wrong_between_sections_is_told_at_once(tmp_path: Path) -> None:
    told = problems(write(tmp_path, PLAIN), "roles.executor=p1", "policies.p2.model=m", "rollout.program=x.py")
    assert [line.removeprefix("run.toml: ").split(" ")[0] for line in told] == ["roles.executor", "policies.p2", "with"]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("rollout.designs", "is not KEY=VALUE"),
        ("=3", "is not KEY=VALUE"),
        ("rollout..designs=3", "is not KEY=VALUE"),
        ('policies.p0.model="x', "the value is not TOML: "),
        ("policies.p0.lora={rank = 3", "the value is not TOML: "),
        ("data.2.path=x", "data has no item '2'. It has items 0 to 0, and 1 adds one"),
        ("data.first.path=x", "data has no item 'first'"),
        ("policies.p0.model.x=3", 'policies.p0.model = "hub/model" is not a table'),
        ("rollout.designs=four", 'rollout.designs = "four" should be a valid integer'),
        ("rollout.designs=3\nrollout.executions=2", 'rollout.designs = "3\\nrollout.executions=2" should be a valid'),
        ("extends=other.toml", "unknown key extends"),
        ("data.1.path=x", "data.1.format is missing"),
    ],
)
def test_mistakes_in_overrides_name_the_override(tmp_path: Path, override: str, told: str) -> None:
    (line,) = problems(write(tmp_path, PLAIN), "steps=5", override)
    assert line.startswith("run.toml: " if "missing" in told else f"override {override!r}")
    assert told in line


def test_the_override_that_counts_is_named(tmp_path: Path) -> None:
    (line,) = problems(write(tmp_path, PLAIN), "steps=one", "steps=two", "seed=3")
    assert line.startswith("override 'steps=two': ")


def test_all_malformed_overrides_are_told(tmp_path: Path) -> None:
    assert len(problems(write(tmp_path, PLAIN), "a", "steps=3", "b")) == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read run.toml: No such file or directory"),
        (b"a = \xff", "run.toml is not UTF-8 text (byte 4)"),
        (b"a = = 3", "run.toml is not TOML: Invalid value (at line 1, column 5)"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    assert problems(path) == [told]


# The way back

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
COUNT = st.integers(min_value=1, max_value=2**62)
FILES = st.builds(lambda name: Path("/", name), TEXT.filter(lambda name: "\0" not in name and ".." not in name))
ENGINES = st.builds(
    EngineConfig,
    dtype=TEXT,
    thinking=st.booleans(),
    options=st.dictionaries(
        TEXT, st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT, max_size=3
    ),
)
POLICIES = st.builds(
    PolicyConfig,
    model=TEXT.map("hub:{}".format),
    learning_rate=POSITIVE,
    designer_learning_rate=st.none() | POSITIVE,
    dtype=st.sampled_from(["bfloat16", "float32"]),
    lora=st.none() | st.builds(LoraSettings, rank=COUNT, targets=st.lists(TEXT, max_size=2).map(tuple)),
    engine=ENGINES,
)
SHARES = st.floats(min_value=1e-3, max_value=1e3)
CONFIGS = st.builds(
    lambda names, policies, **rest: TrainConfig(
        policies=dict(zip(names, policies, strict=False)),
        roles=Roles(designer=names[0], executor=names[len(policies) - 1]),
        **rest,
    ),
    st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True), min_size=2, max_size=2, unique=True),
    st.lists(POLICIES, min_size=1, max_size=2),
    data=st.lists(st.builds(DataConfig, format=st.sampled_from(list(READERS)), path=FILES, share=SHARES), min_size=1),
    rollout=st.builds(
        RolloutConfig,
        program=st.none() | FILES,
        repair=st.booleans(),
        sandbox=TEXT,
        limits=st.builds(Limits, wall_s=POSITIVE, tokens=COUNT),
    ),
    schedule=st.just("executor-only"),
    objective=st.builds(PolicyObjective, truncation=st.none() | st.floats(1, 1e6)),
    seed=st.integers(min_value=0, max_value=2**62),
)


@settings(deadline=None)
@given(config=CONFIGS)
def test_what_is_written_is_read_back_as_equal(tmp_path_factory: pytest.TempPathFactory, config: TrainConfig) -> None:
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(to_toml(config), encoding="utf-8", newline="")
    assert read_config(path) == config


def test_the_record_tells_defaults_and_what_is_left_out(tmp_path: Path) -> None:
    text = to_toml(read_config(write(tmp_path, PLAIN)))
    assert "stage_length = 30" in text
    assert 'lora = "none"' in text


@pytest.mark.parametrize(
    ("policy", "active", "rate"),
    [
        ("shared", {"executor"}, 1e-5),
        ("shared", {"designer"}, 3e-5),
        ("shared", {"designer", "executor"}, 1e-5),
        ("one rate", {"designer"}, 1e-5),
        ("designs only", {"designer", "executor"}, 3e-5),
        ("executes only", {"designer", "executor"}, 1e-5),
    ],
)
def test_the_designers_learning_rate_holds_where_designing_alone_is_learned(
    policy: str, active: set[PolicyRole], rate: float
) -> None:
    own = None if policy == "one rate" else 3e-5
    policies = {name: PolicyConfig(model="m", learning_rate=1e-5, designer_learning_rate=own) for name in ("a", "b")}
    roles = {
        "designs only": Roles(designer="a", executor="b"),
        "executes only": Roles(designer="b", executor="a"),
    }.get(policy, Roles(designer="a", executor="a"))
    config = TrainConfig(
        policies={name: policies[name] for name in {roles.designer, roles.executor}},
        roles=roles,
        data=[DataConfig(format="problems", path=Path("problems.jsonl"))],
    )
    assert config.learning_rate("a", active) == rate
