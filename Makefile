# Short commands. Each sets up what it needs in $(VENV); Python 3.11 or newer and make are all it asks for.
#
#   make book      the whole site in _build/html        make results   recompute stored tables, PROFILE=smoke|lab|paper
#   make test      the whole test suite                 make figures   every figure as a file in _build/figures
#   make serve     look at the site locally             make bench     timings against other ways of doing the same
#   make lock      rewrite requirements.lock            make clean     remove what was built (distclean: and $(VENV))

SHELL := /bin/sh
PYTHON ?= python3
VENV ?= .venv
PROFILE ?= lab
PORT ?= 8000
PIP_FLAGS ?=
# Flags of the torch step alone: TORCH_PIP_FLAGS="--index-url URL" takes it from another index, a CPU one say.
TORCH_PIP_FLAGS ?=
PYTEST_FLAGS ?=

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install $(PIP_FLAGS)
# The stamp carries the content of what decides an installation: any change of it installs again, whatever the dates.
STAMP := $(VENV)/.installed-$(shell cat requirements.txt requirements.lock pyproject.toml | cksum | tr ' ' '-')

# Cells run with this environment's kernel, never with one of the same name in the user's home.
export JUPYTER_PREFER_ENV_PATH = 1

.PHONY: book test results figures bench serve lock clean distclean

book: $(STAMP)
	rm -rf _build/html _build/.doctrees
	$(VENV)/bin/jupyter-book build . -n -W --keep-going --all

test: $(STAMP)
	$(PY) -m pytest $(PYTEST_FLAGS)

results: $(STAMP)
	$(VENV)/bin/vitbo results --profile $(PROFILE)

figures: $(STAMP)
	$(VENV)/bin/vitbo figures --out _build/figures

bench: $(STAMP)
	$(PY) -m benchmarks

serve: $(STAMP)
	@test -f _build/html/index.html || $(MAKE) book
	@echo "http://127.0.0.1:$(PORT)/  (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

# An environment that is missing, unfinished, or was made in another folder is made anew; the stamp comes last, so an
# installation that was stopped is taken up again.
$(STAMP): requirements.txt requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vitbo needs Python 3.11 or newer; say PYTHON=python3.12, for example")'
	@grep -qsF "$$PWD/" "$(VENV)/bin/pip" || { echo "making $(VENV)"; rm -rf "$(VENV)"; $(PYTHON) -m venv "$(VENV)"; }
	@rm -f "$(VENV)"/.installed-*
	$(PIP) $(TORCH_PIP_FLAGS) --no-deps "$$(grep -E '^torch==' requirements.lock)"
	$(PIP) -r requirements.txt -c requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch "$@"

lock: $(STAMP)
	$(PY) _ext/pins.py > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:
	rm -rf _build .pytest_cache .ruff_cache

distclean: clean
	rm -rf "$(VENV)" *.egg-info
