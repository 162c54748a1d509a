# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The pipelines that hayhooks serves: one folder each, with a `PipelineWrapper`, which may load a YAML file.

hayhooks has no tools; a wrapper whose `run_api` does what the tool does comes closest. As an MCP server, it skips folders
with a YAML file alone.
"""

from pathlib import Path

from cases import MANY_TOOLS

PRAISE = """
components:
  prompt:
    type: haystack.components.builders.prompt_builder.PromptBuilder
    init_parameters:
      template: Praise {{ what }}.
      required_variables: [what]
connections: []
metadata: {}
"""
"""A pipeline that takes almost no time."""

_ADD = '''
from hayhooks import BasePipelineWrapper


class PipelineWrapper(BasePipelineWrapper):
    def setup(self) -> None:
        pass

    def run_api(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b
'''

_PRAISE = '''
from pathlib import Path

from hayhooks import BasePipelineWrapper
from haystack import Pipeline


class PipelineWrapper(BasePipelineWrapper):
    def setup(self) -> None:
        self.pipeline = Pipeline.loads((Path(__file__).parent / "praise.yml").read_text())

    def run_api(self, what: str) -> str:
        """Praise something."""
        return self.pipeline.run({"prompt": {"what": what}})["prompt"]["prompt"]
'''


def write_hayhooks_files(folder: Path, content: str) -> None:
    """
    Write the pipelines that `hayhooks mcp run --pipelines-dir` serves.

    :param folder: The folder of pipelines.
    :param content: What to serve, as for served.py.
    """
    wrappers = {"calls": ["add"], "many": [f"add_{number}" for number in range(MANY_TOOLS)]}.get(content, [])
    for name in wrappers:
        _write(folder / name / "pipeline_wrapper.py", _ADD)
    if content in ("calls", "yaml"):
        _write(folder / "praise" / "pipeline_wrapper.py", _PRAISE)
        _write(folder / "praise" / "praise.yml", PRAISE)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
