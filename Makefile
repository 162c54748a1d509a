# `make demo` and `make test` need a Python >= 3.11 and nothing else: they set up what they run in.
# The environments are built once, and again when pyproject.toml changes.

# The first of these that is a Python >= 3.11 with venv and pip; `make PYTHON=/path/to/python ...` overrides it.
PYTHON := $(shell for python in python3 python3.15 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { command -v "$$python"; break; }; done)

# How `make demo` reaches the MCP server: inprocess, stdio or http.
SERVER ?= inprocess
# What pytest is started with in both environments. Many tests wait, so there are more processes than cores.
PYTEST_ARGS ?= -n 4 --dist worksteal
# What runs on Haystack 2.31 too: what the package gives to Haystack and what it does with it, examples and guides that
# tell the majors apart, and what is served, because FastMCP is another version there.
SERVED_ON_ONE_MAJOR := tests/serving/test_foreign_clients.py
HAYSTACK2_TESTS := tests/components tests/hooks $(patsubst %,tests/durable/test_%.py,cassette decisions journal) \
	tests/cli/test_serve.py tests/convert/test_content.py \
	$(patsubst %,tests/journeys/test_%.py,agents_and_pipelines examples) \
	tests/journeys/test_docs.py::test_the_python_blocks_of_a_page_run_and_print_what_they_say \
	tests/registry/test_loops.py $(patsubst %,tests/tools/test_%.py,mcp_tool mcp_toolset options serialization skill_store) \
	$(filter-out $(SERVED_ON_ONE_MAJOR),$(wildcard tests/serving/test_*.py))
# What the versions of other packages matter to, with them.
EARLIEST_TESTS := $(HAYSTACK2_TESTS) tests/auth tests/cli tests/connection tests/durable tests/faults tests/protocol \
	tests/snapshot tests/transports
# After how many seconds the tests on one major are ended, with all that they have started.
TEST_LIMIT ?= 1500
# What the two majors' tests must cover together, in percent.
COVERAGE_FLOOR ?= 95

DEMO := .venv-demo
DOCS := .venv-docs
EARLIEST := .venv-earliest
HAYSTACK2 := .venv-haystack2
HAYSTACK3 := .venv-haystack3
NEXT := .venv-next
# The newest FastMCP, which is what `[serve]` installs; fastmcp-tasks, in the other environment, wants an earlier one.
HAYSTACK2_PACKAGES := "haystack-ai==2.31.*" --group types --group test
HAYSTACK3_PACKAGES := "haystack-ai==3.*" --group dev
# Pre-releases, among them Haystack's nightly builds, in which a change can be met before it is released; also by uv.
# That of httpx is another library, which nobody supports yet.
NEXT_PACKAGES := --prerelease allow --editable . "haystack-ai==3.*" "httpx<1" --group dev
# The earliest of whatever pyproject.toml allows. Only uv can choose them, and 3.11 is the Python they are made for.
EARLIEST_PACKAGES := --resolution lowest-direct --editable ".[cli,serve,tasks,durable,fast]" --group test
# Where an environment has its programs.
BIN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
LIMITED := $(if $(filter Windows_NT,$(OS)),,"$(PYTHON)" .ci/limited.py $(TEST_LIMIT))

export HAYSTACK_TELEMETRY_ENABLED := False
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of interpreters; compiling what each imports would take longer than the tests.
export UV_COMPILE_BYTECODE := 1
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo setup test test-haystack2 test-haystack3 test-earliest test-next lint format types docs examples coverage coverage-report bench clean

help:
	@echo "make demo [SERVER=inprocess|stdio|http]  run a pipeline that calls the tools of a real MCP server"
	@echo "make test [PYTEST_ARGS=...]              run every test on Haystack 3, and what touches Haystack on 2.31"
	@echo "make test-earliest                       what other packages matter to, with the earliest versions allowed"
	@echo "make test-next                           every test with pre-releases, Haystack's nightly build among them"
	@echo "make lint | format | types               ruff and import-linter, ruff's fixes, mypy (strict) and pyright"
	@echo "make docs                                build the documentation as a site with search, in site/"
	@echo "make examples                            run every example on both majors"
	@echo "make coverage                            the tests, and the branches that both runs reach together"
	@echo "make bench [BENCH_ARGS=...]              run the benchmarks"
	@echo "make clean                               remove the environments and caches"

# $(call environment,FOLDER,PACKAGES): a virtual environment with PACKAGES; `--editable .` is this package.
# uv installs quickly; where it cannot, pip does the same.
define environment
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv and pip was found. Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(1) with $(PYTHON)"
	@"$(PYTHON)" -m venv --clear $(1)
	@{ $(1)/$(BIN)/python -m pip install --quiet uv \
		&& $(1)/$(BIN)/python -m uv pip install --quiet --python $(1)/$(BIN)/python $(2); } \
		|| { $(1)/$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" \
		&& $(1)/$(BIN)/python -m pip install --quiet $(2); }
	@touch $@
endef

# $(call each,TARGETS): make all of them, whether or not one fails, and tell which did.
define each
	@failed=; for target in $(1); do $(MAKE) --no-print-directory $$target || failed="$$failed $$target"; done; \
	for target in $(1); do \
		case "$$failed " in *" $$target "*) echo "$$target: FAILED";; *) echo "$$target: passed";; esac; \
	done; test -z "$$failed"
endef

$(DEMO)/.ready: export UV_COMPILE_BYTECODE := 0
$(DEMO)/.ready: pyproject.toml
	$(call environment,$(DEMO),--editable . "haystack-ai==3.*")

$(HAYSTACK2)/.ready: pyproject.toml
	$(call environment,$(HAYSTACK2),--editable . $(HAYSTACK2_PACKAGES))

$(EARLIEST)/.ready: pyproject.toml
	$(call environment,$(EARLIEST),$(EARLIEST_PACKAGES))

$(NEXT)/.ready: pyproject.toml
	$(call environment,$(NEXT),$(NEXT_PACKAGES))

$(HAYSTACK3)/.ready: pyproject.toml
	$(call environment,$(HAYSTACK3),--editable . $(HAYSTACK3_PACKAGES))

# The reference is made from the source, which is read and not imported: the package need not be installed.
$(DOCS)/.ready: pyproject.toml
	$(call environment,$(DOCS),--group docs)

# At the same time: much of it is waiting for downloads.
setup:
	@$(MAKE) --no-print-directory $(HAYSTACK2)/.ready & $(MAKE) --no-print-directory $(HAYSTACK3)/.ready; \
	status=$$?; wait $$! && exit $$status

demo: $(DEMO)/.ready
	$(DEMO)/$(BIN)/python examples/demo.py --server $(SERVER)

test:
	$(call each,test-haystack2 test-haystack3)

test-haystack2: $(HAYSTACK2)/.ready
	COVERAGE_FILE=.coverage.haystack2 $(LIMITED) $(HAYSTACK2)/$(BIN)/python -m pytest $(PYTEST_ARGS) $(HAYSTACK2_TESTS)

test-haystack3: $(HAYSTACK3)/.ready
	COVERAGE_FILE=.coverage.haystack3 $(LIMITED) $(HAYSTACK3)/$(BIN)/python -m pytest $(PYTEST_ARGS)

test-earliest: $(EARLIEST)/.ready
	$(LIMITED) $(EARLIEST)/$(BIN)/python -m pytest $(PYTEST_ARGS) $(EARLIEST_TESTS)

test-next: $(NEXT)/.ready
	$(LIMITED) $(NEXT)/$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(HAYSTACK3)/.ready
	$(HAYSTACK3)/$(BIN)/ruff check .
	$(HAYSTACK3)/$(BIN)/ruff format --check .
	cd src && ../$(HAYSTACK3)/$(BIN)/lint-imports --no-cache --config ../pyproject.toml

format: $(HAYSTACK3)/.ready
	$(HAYSTACK3)/$(BIN)/ruff check --fix .
	$(HAYSTACK3)/$(BIN)/ruff format .

# mypy on both majors; what editors show is the same on both. At the same time, because none of them uses two cores.
types: export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
types: setup
	@mypy() { $$1/$(BIN)/mypy --cache-dir .mypy_cache/$$1 src tests/typing; }; \
	{ mypy $(HAYSTACK2) && mypy $(HAYSTACK3); } & \
	$(HAYSTACK3)/$(BIN)/pyright --pythonpath $(HAYSTACK3)/$(BIN)/python \
		&& $(HAYSTACK3)/$(BIN)/python tests/typing/completeness.py; \
	status=$$?; wait $$! && exit $$status

# A link that leads nowhere is an error.
docs: $(DOCS)/.ready
	$(DOCS)/$(BIN)/zensical build --clean --strict

# An example that needs the other major says so and ends well.
examples: setup
	@for environment in $(HAYSTACK2) $(HAYSTACK3); do \
		for example in examples/*.py; do \
			echo "== $$environment $$example"; \
			$$environment/$(BIN)/python "$$example" || exit 1; \
		done; \
	done

coverage: export override PYTEST_ARGS += --cov --cov-report=
coverage: test coverage-report

coverage-report:
	$(HAYSTACK3)/$(BIN)/coverage combine --keep --data-file .coverage .coverage.haystack2 .coverage.haystack3
	$(HAYSTACK3)/$(BIN)/coverage report --data-file .coverage --fail-under $(COVERAGE_FLOOR)

# The benchmarks build what they compare with.
bench: $(HAYSTACK3)/.ready
	$(HAYSTACK3)/$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

clean:
	rm -rf $(DEMO) $(DOCS) $(EARLIEST) $(HAYSTACK2) $(HAYSTACK3) $(NEXT) site .cache .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* htmlcov build dist
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
