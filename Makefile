# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export OMP_NUM_THREADS = 1

# Tables go into the page even if faults were found; the command still fails then.
PUBLISH = $(if $(QUICK),,; code=$$?; $(BIN)/python -m scripts.publish_reliability && exit $$code)

.PHONY: demo test lint bench chaos fuzz docs install clean

demo: install  ## four schemes on the embedded data: a table, a picture, run directories
	$(BIN)/isfl demo --out runs/demo

test: install lint  ## style, types and every test
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install  ## speed and memory against peers, with bars; QUICK=1 for ten minutes
	$(BIN)/python -m benchmarks.run $(if $(QUICK),--quick) $(BENCH)

chaos: install  ## hundreds of kills, full disks and damaged files, at most half an hour; QUICK=1 for three minutes
	$(BIN)/python -m campaigns.run $(if $(QUICK),--quick) $(CHAOS)$(PUBLISH)

fuzz: install  ## 10,000 malformed inputs, at most half an hour; QUICK=1 for a tenth of them
	$(BIN)/python -m campaigns.fuzz $(if $(QUICK),--quick) $(FUZZ)$(PUBLISH)

docs: install  ## the site of the documents (quiet would hide the warnings that strict counts)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

install: $(VENV)/.installed

# torch is named exactly and installed in the same step: a range could pull a build for another device.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0 --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .bench runs site .mypy_cache .pytest_cache .ruff_cache .hypothesis
