# Every target sets up what it needs: a clean clone, Python 3.11 or later, git and make suffice.
# A torch 2.13 that python3 can import already is used as it is. Otherwise torch comes from the
# package index; on Linux that wheel carries CUDA, which stepwell does not use: PyTorch's own CPU
# wheels suffice and are a tenth of the size (install one for python3, then run make).

PYTHON3 ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/ready
TORCH   := 2.13.0
HAS_TORCH := 'import sys, torch; sys.exit(not torch.__version__.startswith("2.13."))'

# Each test worker, benchmark and demo measures and computes with one thread of its own.
export OMP_NUM_THREADS ?= 1
# Tests start many processes: each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test affected check bench replay soak guards prove other-cpus arm64 versions docs release clean
.DEFAULT_GOAL := demo

demo: $(READY)
	$(BIN)/stepwell demo

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# The tests that a change against main concerns, nearest first, a few minutes at most.
affected: $(READY)
	$(BIN)/python tools/affected.py

# The examples lowered by the last release and by HEAD: what differs (docs/zoo.md).
replay: $(READY)
	$(BIN)/stepwell replay

# Hours of random testing; SOAK="-k name --maxfail 1" selects, SOAK_EXAMPLES=1000 shortens.
soak: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow --hypothesis-profile=soak $(SOAK)

# Removes each guard of the rewrites in turn: a test must fail (docs/guards.md).
guards: $(READY)
	$(BIN)/python tools/guards.py

# Every rule as a theorem: verdicts, and docs/proofs.md's table anew; then each condition dropped.
prove: $(READY)
	@$(BIN)/python -c 'import z3' 2>/dev/null || $(BIN)/pip install -q -e '.[prove]'
	$(BIN)/stepwell prove --seconds 3600 --keep --table docs/proofs.md
	$(BIN)/stepwell prove --guards --seconds 7200 --keep --table docs/proofs.md

# The tests marked `kernels` as other CPUs would run them; needs Debian's qemu-user for two of them.
other-cpus: $(READY)
	$(BIN)/python tools/other_cpus.py

# ExecuTorch for Arm64 under an emulator, in the user's cache folder, once and without root; then
# programs run on cores (docs/arm64.md). Nothing else needs it: without, its tests are skipped.
arm64: $(READY)
	$(BIN)/python tools/arm64/setup.py
	$(BIN)/python -m pytest -q tests/arm64

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_types.py
	$(BIN)/python -m pytest -q -m types tests/test_packaging.py

# Every script in bench/ measures one thing and prints its own table; names with _ are shared parts.
bench: $(READY)
	set -e; for script in bench/[!_]*.py; do echo "== $$script"; $(BIN)/python $$script; done

# The quick suite on other versions of Python, ExecuTorch and xDSL: gigabytes, half a minute of CPU
# each; goes on where it was interrupted (docs/versions.md).
versions: $(READY)
	$(BIN)/python tools/versions.py --folder .venv-versions --table docs/versions.md

# The documentation as a site, in site/; a warning or a broken link ends it.
docs: $(READY)
	@$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || $(BIN)/pip install -q -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# A wheel and an sdist in dist/, as an index takes them; the wheel is built from the sdist.
release: $(READY)
	@$(BIN)/python -c 'import build, twine' 2>/dev/null || $(BIN)/pip install -q -e '.[release]'
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m pytest -q tests/test_packaging.py

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "stepwell needs Python 3.11 or later; set PYTHON3=/path/to/it" >&2; exit 1; }
	@$(PYTHON3) -m venv $$($(PYTHON3) -c $(HAS_TORCH) 2>/dev/null && echo --system-site-packages) $(VENV)
	@$(BIN)/python -c $(HAS_TORCH) 2>/dev/null || $(BIN)/pip install -q torch==$(TORCH)
	$(BIN)/pip install -q -e '.[test]'
	@touch $@
