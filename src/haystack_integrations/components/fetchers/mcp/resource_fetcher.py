# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPResourceFetcher`: a component that reads resources of a server as Documents and ByteStreams.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from haystack import Document, component, default_to_dict, logging
from haystack.dataclasses import ByteStream

from haystack_integrations.tools.mcp import MCPConnectionError, MCPHandlers, MCPServerInfo
from haystack_integrations.tools.mcp.concurrency import gather_bounded, import_in_thread
from haystack_integrations.tools.mcp.convert.resources import resource_contents, resource_streams
from haystack_integrations.tools.mcp.parameters import Positive, Text, checked, texts
from haystack_integrations.tools.mcp.tool_base import ReaderBase, is_out_of_reach

if TYPE_CHECKING:
    import mcp_types as types

logger: logging.PatchedLogger = logging.getLogger(__name__)

# An expression of a URI template: its operator and its variables. The SDK can expand templates, but is not imported
# before a component connects.
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")
# The operators that join several values to one text, so that `*` has no effect.
_PLAIN = ("", "+", "#")
# The fields of a listed resource that the `meta` of a Document contains.
_LISTED = {"name", "title", "description", "mime_type", "size", "annotations"}


@component
class MCPResourceFetcher(ReaderBase):
    """
    Reads resources of an MCP server: text as Documents, everything else as ByteStreams for Haystack's converters.

    The resources are selected by URIs, by a template whose variables are inputs of the component, or by a prefix, which
    selects everything that the server lists under it.

    The id of a Document depends on the server and the URI, not on the content. Written with
    `DuplicatePolicy.OVERWRITE`, a changed resource replaces its stored Document.

    Creating the component or loading it from YAML does not connect to the server. Warm-up does.

    ### Usage example

    ```python
    from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
    from haystack_integrations.tools.mcp import StdioServerInfo

    fetcher = MCPResourceFetcher(
        StdioServerInfo(command="npx", args=["-y", "@modelcontextprotocol/server-everything"]),
        prefix="demo://resource/static/",
    )
    documents = fetcher.run()["documents"]
    fetcher.close()
    ```
    """

    @checked()
    def __init__(
        self,
        server_info: MCPServerInfo | Any,
        uris: list[Text] | None = None,
        *,
        uri_template: str | None = None,
        prefix: str | None = None,
        as_streams: bool = False,
        server_name: str | None = None,
        raise_on_failure: bool = False,
        max_resources: Positive | None = 1000,
        max_concurrency: Positive = 4,
        connection_timeout: float = 30.0,
        invocation_timeout: float | None = 30.0,
        share: bool = True,
        handlers: MCPHandlers | None = None,
        required: bool = True,
    ) -> None:
        """
        Initialize the component. Nothing is connected yet.

        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes, such
            as a URL, a command line as a list or a server object.
        :param uris: The resources to read, unless `run` gets others.
        :param uri_template: Template of a resource to read (RFC 6570), as in `notes://days/{day}`. Its variables become
            inputs of the component. Variables in its query, as in `{?limit}`, are optional.
        :param prefix: Read every resource that the server lists and whose URI begins with this prefix, unless `run`
            gets another prefix. `""` for all resources.
        :param as_streams: Whether to return text as ByteStreams as well, e.g. Markdown for a converter. Then there are
            no Documents.
        :param server_name: Name of the server in the ids of Documents and in `meta["server"]`. Default: the name that
            the server gives itself. Set it if two servers have the same name and the same URIs.
        :param raise_on_failure: Whether it is an error if one of the resources cannot be read. If False (default), the
            resource is left out with a warning, and is listed in `failures`.
        :param max_resources: The maximum number of resources under a prefix; others are left out with a warning. None
            for all.
        :param max_concurrency: How many resources are read at a time.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for each request. None for 300.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param handlers: Handlers for the server's requests; see MCPHandlers.
        :param required: Whether it is an error if the server cannot be reached. If False, a warning is logged, there
            are no documents, and the URIs or the prefix are listed in `failures`.
        :raises ValueError: If a parameter is invalid.
        """
        self._connect_to(
            server_info,
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
            required=required,
        )
        self.uris = uris
        self.uri_template = uri_template
        # Whether each variable of the template needs a value.
        self._variables: dict[str, bool] = {} if uri_template is None else _variables_of(uri_template)
        self.prefix = prefix
        self.as_streams = as_streams
        self.server_name = server_name
        self.raise_on_failure = raise_on_failure
        self.max_resources = max_resources
        self.max_concurrency = max_concurrency
        for name, is_required in self._variables.items():
            component.set_input_type(self, name, Any, **({} if is_required else {"default": None}))

    @component.output_types(documents=list[Document], streams=list[ByteStream], failures=list[dict[str, str]])
    def run(self, uris: list[str] | None = None, prefix: str | None = None, **variables: Any) -> dict[str, Any]:
        """
        Read the resources.

        `uris` or a `prefix` replace both the `uris` and the `prefix` of the component.

        :param uris: The resources to read.
        :param prefix: Read every resource that the server lists and whose URI begins with this prefix.
        :param variables: The values of the template's variables. A list becomes several values, as in RFC 6570.
        :returns: A dictionary with:
            - `documents`: A Document for each text. Its `meta` contains `uri`, `mime_type`, `server` and, if it was
              found by a prefix, the server's `name`, `title`, `description`, `size`, `last_modified`, `annotations`.
            - `streams`: A ByteStream for everything else, with the same `meta`.
            - `failures`: For each resource that could not be read, its `uri` and the `error`.
        :raises MCPConnectionError: If the server cannot be reached and is required, or, with `raise_on_failure`, if one
            of the resources cannot be read.
        :raises ValueError: If there is nothing to read, or a variable of the template has no value.
        """
        wanted, prefix = self._select_uris(uris, prefix, variables)
        return self._connection._submit(self._fetch_if_reachable(wanted, prefix))

    @component.output_types(documents=list[Document], streams=list[ByteStream], failures=list[dict[str, str]])
    async def run_async(
        self, uris: list[str] | None = None, prefix: str | None = None, **variables: Any
    ) -> dict[str, Any]:
        """
        Read the resources like `run`, without blocking the event loop.

        :param uris: As in `run`.
        :param prefix: As in `run`.
        :param variables: As in `run`.
        :returns: As `run`.
        :raises MCPConnectionError: As `run`.
        :raises ValueError: As `run`.
        """
        if self.uri_template is not None:
            await import_in_thread("mcp")  # because the import in `_expanded` would block the loop
        wanted, prefix = self._select_uris(uris, prefix, variables)
        return await self._fetch_if_reachable(wanted, prefix)

    def _select_uris(
        self, uris: list[str] | None, prefix: str | None, variables: dict[str, Any]
    ) -> tuple[list[str], str | None]:
        if uris is None and prefix is None:
            uris, prefix = self.uris, self.prefix
        wanted = [] if uris is None else texts("uris", uris)
        if self.uri_template is not None:
            wanted.append(self._expanded(self.uri_template, variables))
        elif variables:
            names = ", ".join(map(repr, variables))
            msg = f"MCPResourceFetcher got {names}, but has no `uri_template` with such variables"
            raise ValueError(msg)
        elif prefix is None and uris is None:
            msg = "MCPResourceFetcher has nothing to read. Give it `uris`, a `prefix` or a `uri_template`."
            raise ValueError(msg)
        return wanted, prefix

    def _expanded(self, template: str, values: dict[str, Any]) -> str:
        from mcp import UriTemplate  # noqa: PLC0415 - see _EXPRESSION

        given = {name: value for name, value in values.items() if value is not None}
        missing = [name for name, is_required in self._variables.items() if is_required and name not in given]
        if missing:
            msg = f"The URI template {template!r} needs a value for {', '.join(map(repr, missing))}"
            raise ValueError(msg)
        # FastMCP writes `{path*}`, which the SDK refuses. Replace it with `{path}`, which means the same here.
        readable = _EXPRESSION.sub(lambda each: each[0].replace("*", "") if each[1] in _PLAIN else each[0], template)
        return UriTemplate.parse(readable).expand(
            {
                name: [*map(str, value)] if isinstance(value, list | tuple) else str(value)
                for name, value in given.items()
            }
        )

    async def _fetch_if_reachable(self, uris: list[str], prefix: str | None) -> dict[str, Any]:
        try:
            return await self._fetch(uris, prefix)
        except MCPConnectionError as error:
            if _concerns_one_resource(error):
                raise
            self._raise_or_leave_out(error)
            failures = [{"uri": uri, "error": str(error)} for uri in [*uris, *([] if prefix is None else [prefix])]]
            return {"documents": [], "streams": [], "failures": failures}

    async def _fetch(self, uris: list[str], prefix: str | None) -> dict[str, Any]:
        wanted: dict[str, types.Resource | None] = dict.fromkeys(uris)
        if prefix is not None:
            resources = await self._connection.list_resources_async()
            wanted |= self._limited({each.uri: each for each in resources if each.uri.startswith(prefix)})
        outcomes = await gather_bounded(
            [partial(self._read_one, uri, listed) for uri, listed in wanted.items()], self.max_concurrency
        )
        failures = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        read = [item for outcome in outcomes if isinstance(outcome, list) for item in outcome]
        for failure in failures:
            logger.warning(
                "A resource of {server} is left out: {error}",
                server=self.server_info.describe(),
                error=failure["error"],
            )
        return {
            "documents": [item for item in read if isinstance(item, Document)],
            "streams": [item for item in read if isinstance(item, ByteStream)],
            "failures": failures,
        }

    def _limited(self, listed: dict[str, types.Resource]) -> dict[str, types.Resource]:
        if self.max_resources is None or len(listed) <= self.max_resources:
            return listed
        logger.warning(
            "{server} lists {number} resources under the prefix; only the first {limit} are read (`max_resources`)",
            server=self.server_info.describe(),
            number=len(listed),
            limit=self.max_resources,
        )
        return dict(list(listed.items())[: self.max_resources])

    async def _read_one(self, uri: str, listed: types.Resource | None) -> list[Document | ByteStream] | dict[str, str]:
        try:
            result = await self._connection.read_resource_async(uri)
            return self._converted(uri, result, listed)
        except (MCPConnectionError, ValueError) as error:
            if self.raise_on_failure or not _concerns_one_resource(error):
                raise
            return {"uri": uri, "error": str(error)}

    def _converted(
        self, uri: str, result: types.ReadResourceResult, listed: types.Resource | None
    ) -> list[Document | ByteStream]:
        implementation = self._connection.implementation
        server = self.server_name or (implementation.name if implementation else "") or self.server_info.describe()
        described = _listed_fields(listed)
        items: list[Document | ByteStream] = []
        contents = resource_streams(result) if self.as_streams else resource_contents(result)
        for number, (each, content) in enumerate(zip(result.contents, contents, strict=True)):
            meta = {**described, "uri": each.uri, "server": server}
            if mime_type := each.mime_type or described.get("mime_type"):
                meta["mime_type"] = mime_type
            if isinstance(content, str):
                key = "\0".join([server, uri, each.uri, str(number)])
                items.append(Document(id=hashlib.sha256(key.encode()).hexdigest(), content=content, meta=meta))
            else:
                items.append(ByteStream(content.data, meta=meta, mime_type=mime_type or content.mime_type))
        return items

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component to a dictionary.

        :returns: The dictionary.
        :raises ValueError: If the server info contains a token-based `Secret`, which Haystack does not serialize.
        """
        return default_to_dict(self, **self._stored_parameters(MCPResourceFetcher))


def _concerns_one_resource(error: Exception) -> bool:
    # Every other error means that the server cannot be reached, so that no resource could be read.
    return not is_out_of_reach(error, "read_resource")


def _listed_fields(listed: types.Resource | None) -> dict[str, Any]:
    if listed is None:
        return {}
    described = listed.model_dump(mode="json", include=_LISTED, exclude_none=True)
    if listed.annotations is not None and listed.annotations.last_modified is not None:
        described["last_modified"] = listed.annotations.last_modified
    return described


def _variables_of(uri_template: str) -> dict[str, bool]:
    return {
        name.removesuffix("*"): operator not in ("?", "&")  # variables in the query are optional for servers
        for operator, names in _EXPRESSION.findall(uri_template)
        for name in names.split(",")
    }
