# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

# pyright: strict

"""
The package as type checkers see it from outside: a user's script with constructs that checkers may treat differently,
such as decorated classes, functions that may be asynchronous or not, and results of several types.

`make types` checks this file with mypy and pyright, both strict, on both Haystack majors; nothing runs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from fastmcp import Client, FastMCP
from haystack.components.agents import Agent
from haystack.dataclasses import ByteStream, ChatMessage, FileContent, ImageContent
from haystack.tools import ToolsType
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from mcp import types
from mcp.server import MCPServer
from mcp.types import CallToolResult

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolCaller, MCPToolRunner
from haystack_integrations.tools import mcp as package
from haystack_integrations.tools.mcp import (
    AskUser,
    AsyncExecutor,
    CallOptions,
    FromState,
    InProcessServerInfo,
    MCPAuthorizationError,
    MCPCallTimeoutError,
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPError,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPRegistry,
    MCPResourceToolset,
    MCPSampling,
    MCPSearchableToolset,
    MCPServerInfo,
    MCPTool,
    MCPToolCall,
    MCPToolNotFoundError,
    MCPToolResult,
    MCPToolset,
    MCPToolSnapshot,
    OAuthConfig,
    SecretTemplate,
    SnapshotCheck,
    SSEClient,
    SSEServerInfo,
    StdioClient,
    StdioServerInfo,
    StreamableHttpClient,
    StreamableHttpServerInfo,
    ToolConfig,
    ToolOptions,
    ToolOverride,
    ToolSelection,
    call_budget,
    load_mcp_toolsets,
    mcp_request_context,
    preload,
    server_info_from,
    warm_up_toolsets,
    warm_up_toolsets_async,
)
from haystack_integrations.tools.mcp.budgets import MCPCallBudget
from haystack_integrations.tools.mcp.connection.monitoring import MCPConnectionStatus
from haystack_integrations.tools.mcp.convert.content import prompt_messages
from haystack_integrations.tools.mcp.convert.resources import resource_contents, resource_streams
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers import MCPProgress, accept_defaults, answer_later
from haystack_integrations.tools.mcp.oauth import (
    FileTokenStorage,
    InMemoryTokenStorage,
    KeyValueTokenStorage,
    MCPAssertionRequest,
    MCPLoginRequest,
    MCPTokenStorage,
    login,
    login_async,
    logout,
    logout_async,
)
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, MCPQuestion
from haystack_integrations.tools.mcp.registry import (
    LocalStdioMCPProvider,
    MCPHealthReport,
    MCPProvider,
    MCPProviderHealth,
    conversation_trace,
)
from haystack_integrations.tools.mcp.request_context import MCPRequestContext
from haystack_integrations.tools.mcp.serving import (
    BearerToken,
    HaystackProvider,
    ServeOptions,
    create_mcp_server,
    http_app,
    run_server,
)
from haystack_integrations.tools.mcp.skill_store import MCPSkillStore

assert_type(package.__version__, str)


def servers() -> list[MCPServerInfo]:
    stdio = StdioServerInfo("uvx", ["mcp-server-time"], env={"TZ": "UTC", "KEY": Secret.from_env_var("KEY")})
    assert_type(stdio.command, str | Secret)
    assert_type(StdioServerInfo.from_dict({}), StdioServerInfo)
    http = StreamableHttpServerInfo(
        "https://127.0.0.1:8000/mcp",
        headers={"Authorization": SecretTemplate("Bearer ${KEY}")},
        token=Secret.from_token("t"),
        max_retries=1,
        timeout=5,
        client_cert=("client.pem", "client.key", Secret.from_env_var("PASSWORD")),
        proxy=Secret.from_env_var("PROXY"),
        token_provider=token_of,
        headers_provider=headers_of,
    )
    assert_type(server_info_from("http://127.0.0.1:8000/mcp"), MCPServerInfo)
    sse = SSEServerInfo("http://127.0.0.1:8001/sse", oauth_config=OAuthConfig(redirect_handler=print))
    return [stdio, http, sse, InProcessServerInfo(MCPServer("calculator")), server_info_from(["uvx", "server"])]


def token_of(context: MCPRequestContext) -> str:
    return f"token of {context.user}"


async def headers_of(context: MCPRequestContext) -> dict[str, str]:
    return {"X-User": context.user or ""}


def shorten(text: str) -> str:
    return text[:80]


def is_short(tool: types.Tool) -> bool:
    return len(tool.name) < 10


def use(info: MCPServerInfo) -> None:
    with MCPTool("add", info, invocation_timeout=5, outputs_to_string={"handler": shorten}) as tool:
        assert_type(tool, MCPTool)
        assert_type(tool.annotations, types.ToolAnnotations | None)
        assert_type(tool.tool_options.result_format, Literal["text", "content", "json"] | None)
        assert_type(tool.invoke(a=1, b=2), str | dict[str, Any])
        assert_type(tool.call(a=1, b=2), MCPToolResult)
        assert_type(tool.call().raw, CallToolResult)
        plain: Tool = tool
    selection = ToolSelection(
        exclude_tools=["delete_*"], tool_filter=is_short, required_hints={"read_only_hint": True}, cache_tools=False
    )
    bound = ToolOverride(name="plus", bound_arguments={"a": FromState("a"), "b": Secret.from_env_var("B")})
    with MCPToolset(
        info,
        tool_names=["add"],
        tool_selection=selection,
        tool_overrides={"add": bound, "sub": {"description": "Subtract."}},
        tool_options=ToolOptions(result_format="content", max_result_size=1000),
        call_options=CallOptions(read_timeout=60, ping_interval=20),
    ) as toolset:
        assert_type(toolset, MCPToolset)
        assert_type(toolset[0], MCPTool)
        assert_type(toolset["math_add"], MCPTool)
        assert_type(toolset[1:], list[MCPTool])
        assert_type(toolset.connection, MCPConnection)
        assert_type(toolset.tool_overrides, dict[str, ToolOverride])
        toolset.add(plain)
        toolset.subscribe_resource("memo://today", read_again)()
        plain_toolset: Toolset = toolset
        assert plain_toolset
    warm_up_toolsets([toolset, tool])
    several: ToolsType = [tool, toolset, *load_mcp_toolsets("mcp.json", required=False, inputs={"key": "k"})]
    assert several
    with mcp_request_context(user="ada", token=Secret.from_env_var("TOKEN"), meta={"a": 1}) as context:
        assert_type(context, MCPRequestContext)


async def read_again(uri: str) -> None:
    await asyncio.sleep(len(uri))


async def use_async(info: MCPServerInfo) -> None:
    async with MCPConnection(info) as connection, MCPToolset(info) as toolset, MCPTool("add", info) as tool:
        await warm_up_toolsets_async([toolset, tool])
        assert_type(await connection.call_tool_async("add"), CallToolResult)
        assert_type(await tool.invoke_async(a=1, b=2), str | dict[str, Any])
        assert_type(await tool.call_async(a=1, b=2), MCPToolResult)
        assert_type(await toolset.list_resources_async(), list[types.Resource])
        assert_type(await toolset.request_async("example/list", {}, may_repeat=True), dict[str, Any])


def blocking(call: MCPToolCall, call_next: Callable[[MCPToolCall], CallToolResult]) -> CallToolResult:
    arguments = {**call.arguments, "limit": 1}
    assert_type(call.override(arguments=arguments, headers={"X": Secret.from_token("x")}), MCPToolCall)
    return call_next(call)


async def awaiting(call: MCPToolCall, call_next: Callable[[MCPToolCall], Awaitable[CallToolResult]]) -> CallToolResult:
    return await call_next(call)


def show(report: MCPProgress) -> None:
    print(report.progress, report.total or 0, report.message or "")


async def show_async(report: MCPProgress) -> None:
    show(report)


def reply(params: types.CreateMessageRequestParams) -> str:
    return params.system_prompt or "well"


async def roots() -> list[str]:
    return ["/srv"]


def connect(info: MCPServerInfo, ui: object) -> None:
    sampling = MCPSampling(function=reply, consent=lambda _: True, max_requests=3, max_tokens=1_000)
    handlers = [
        MCPHandlers(sampling=sampling, elicitation=accept_defaults, roots=roots, log_level="info", progress=show),
        MCPHandlers(sampling=reply, elicitation=AskUser(ui), roots=["/srv"], messages=print, progress=show_async),
        MCPHandlers(elicitation=answer_later, pending_calls=print, client_info={"name": "kiosk", "version": "7"}),
    ]
    interceptors = [blocking, awaiting, "app.calls:audit"]
    with MCPConnection(info, handlers=handlers[0], interceptors=interceptors, share=False) as connection:
        assert_type(connection.call_tool("add", {}, on_progress=show, meta={"user": "ada"}), CallToolResult)
        begun = connection.begin_call("add", {"a": 1})
        if isinstance(begun, MCPPendingCall):
            assert_type(begun.questions, list[MCPQuestion])
            assert_type(connection.continue_call(begun, {"key": True}), CallToolResult)
        assert_type(connection.status(), MCPConnectionStatus)
        assert_type(connection.status().state, Literal["idle", "connecting", "ready", "lost", "closed"])


def read(source: MCPConnection | MCPToolset) -> None:
    result = source.read_resource(source.list_resources(meta={"example.org/trace": "1"})[0])
    assert_type(resource_contents(result), list[str | ByteStream])
    assert_type(resource_streams(source.read_resource("memo://hello")), list[ByteStream])
    [template] = source.list_resource_templates()
    [prompt] = source.list_prompts()
    assert_type(prompt_messages(source.get_prompt(prompt.name, {"name": "Ada"})), list[ChatMessage])
    assert_type(source.complete(template, {"name": "path", "value": "a"}).values, list[str])
    [skill] = source.list_skills()
    assert_type(source.load_skill(source.get_skill(skill.uri)), str)
    assert_type(source.read_skill_file(skill, skill.paths[0]), str | ByteStream)


def show_page(request: MCPLoginRequest) -> None:
    print(request.url, request.user or "")


async def answer(request: MCPLoginRequest) -> dict[str, str | None]:
    return {"code": "c", "state": request.state, "iss": None}


async def assertion(request: MCPAssertionRequest) -> str:
    return f"{request.audience} {request.resource} {request.user}"


async def authorized(store: object) -> None:
    storages: list[MCPTokenStorage] = [InMemoryTokenStorage(), FileTokenStorage("~/t"), KeyValueTokenStorage(store)]
    person = OAuthConfig(redirect_handler=show_page, callback_handler=answer, token_storage=storages[0], dpop=True)
    service = OAuthConfig("me", Secret.from_env_var("SECRET"), "https://127.0.0.1", ["read"])
    workload = OAuthConfig(grant_type="jwt_bearer", assertion_provider=assertion)
    assert_type(OAuthConfig.from_dict(service.to_dict()), OAuthConfig)
    info = StreamableHttpServerInfo("https://127.0.0.1/mcp", auth=person.create_auth("https://127.0.0.1/mcp"))
    login(info)
    await login_async(StreamableHttpServerInfo("https://127.0.0.1/mcp", oauth_config=workload), user="ada")
    print(logout(info), await logout_async(info, user="ada"))


def fail(tool: MCPTool) -> object:
    try:
        tool.invoke(a=1)
    except MCPToolNotFoundError as error:
        return assert_type(error.available_tools, list[str])
    except MCPAuthorizationError as error:
        return str(error)
    except MCPConnectionError as error:
        return assert_type(error.code, int | None)
    except MCPCallPendingError as error:
        return assert_type(error.pending_call, MCPPendingCall)
    except (MCPCallTimeoutError, MCPOutcomeUnknownError, MCPInvocationError) as error:
        return assert_type(error.tool_name, str)
    except MCPError as error:
        return assert_type(error.message, str)
    return None


def components(info: MCPServerInfo) -> None:
    fetcher = MCPResourceFetcher(info, prefix="notes://", uri_template="notes://{day}", max_concurrency=2)
    assert_type(fetcher.run(uris=["notes://today"], day="Monday"), dict[str, Any])
    assert_type(MCPResourceFetcher.from_dict(fetcher.to_dict()), MCPResourceFetcher)
    with MCPPromptBuilder.from_server(info, "greet", system_role="first") as builder:
        assert_type(builder.run({"style": "loud"}, name="Ada"), dict[str, list[ChatMessage]])
    reading = MCPResourceToolset(info, uris=["notes://*"], result_format="content")
    searching = MCPSearchableToolset([MCPToolset(info), reading], top_k=5)
    assert_type(searching.get_selectable_tools(), list[Tool])
    caller = MCPToolCaller([MCPToolset(info), reading], state_schema={"sum": {"type": float}})
    assert_type(caller.run([ChatMessage.from_user("go")], sum=1.5), dict[str, Any])
    MCPToolRunner(MCPTool("add", info), {"a": float}, outputs={"sum": float}).close()
    with MCPSkillStore(info, invocation_timeout=None) as store:
        assert_type(store.read_skill_file("tidy", "desk.png"), str | ImageContent | FileContent)


@dataclass(repr=False)
class CustomServerInfo(MCPServerInfo):
    """
    A custom kind of server.
    """

    address: str

    def create_client(self) -> MCPClient:
        return CustomClient(self.address)


class CustomClient(MCPClient):
    """
    A custom client.
    """

    def __init__(self, address: str) -> None:
        super().__init__(max_retries=1)
        self.address = address

    async def connect(self) -> list[types.Tool]:
        return []

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        self.life.end("the line is dead")
        return f"{tool_name} got {len(tool_args)} arguments"


def clients() -> list[MCPClient]:
    http = StreamableHttpClient(StreamableHttpServerInfo("http://127.0.0.1:8000/mcp"))
    return [http, SSEClient(SSEServerInfo("http://127.0.0.1:8001/sse")), StdioClient("uvx", ["mcp-server-time"])]


async def pin(info: MCPServerInfo) -> MCPToolSnapshot:
    toolset = MCPToolset(info, snapshot=SnapshotCheck(Path("tools.json"), on_drift="quarantine"))
    assert_type(toolset.on_drift, Literal["error", "quarantine", "warn"] | None)
    snapshot = MCPToolSnapshot.capture(toolset, instructions=False)
    report = MCPToolSnapshot.load("tools.json").compare(await MCPToolSnapshot.capture_async(toolset))
    assert_type([(drift.tool, drift.path) for drift in report], list[tuple[str, str]])
    assert_type(snapshot.compare(toolset["add"]).of_tool("add").summary(), str)
    return MCPToolSnapshot.from_dict(snapshot.to_dict())


async def with_registry(info: MCPServerInfo, generator: Any) -> None:
    providers = [MCPProvider("a", "http://h/sse", api_key="A_KEY"), LocalStdioMCPProvider("b", "cat", args=["-u"])]
    MCPRegistry(providers, [{"tool_alias": "x", "providers": ["a", "b"]}])
    config = ToolConfig("x", providers=["a", "b"], allow_tools=["a/add"], timeout_sec=9, prefix="on_conflict")
    with MCPRegistry({"a": info, "b": MCPToolset(info), "c": "http://h/mcp"}, [config]) as registry:
        Agent(chat_generator=generator, tools=registry.toolset("x"))
        assert_type(registry.tool_schemas("x"), list[dict[str, Any]])
        assert_type(registry.health_check(["x"], raise_on_failure=True)["x"].providers, list[MCPProviderHealth])
        assert_type(await registry.health_check_async(), MCPHealthReport)
        assert_type(registry.get_mcp("x").tools, list[Tool])
        assert_type(registry.agent("x", generator, system_prompt="Be brief."), Agent)
        with call_budget(max_calls=5, max_calls_per_tool={"add": 2}) as budget:
            output, messages = registry.generate(generator, "How much?", tool_alias="x", parser=int)
        assert_type(budget, MCPCallBudget)
        assert_type(conversation_trace((output, messages)), list[dict[str, Any]])
    assert_type(MCPRegistry.from_dict(registry.to_dict()), MCPRegistry)


async def serve(toolset: MCPToolset, tool: Tool) -> None:
    options = ServeOptions(title="Adder", tags=["sums"], bound={"limit": 3}, annotations={"readOnlyHint": True})
    server = create_mcp_server("shop", tools=[toolset, tool, (tool, options)], options={"add": options})
    served: FastMCP[Any] = server.disable(keys={"tool:add"}).enable(tags={"sums"}, only=True)
    served.add_provider(HaystackProvider(tools=[tool], on_duplicate="error"))
    server.add_tool(tool, ServeOptions(name="other"))
    create_mcp_server("bank", pipelines={"ask": "ask.yaml"}, agents={}, request_state_keys=["a" * 32])
    async with Client(server) as client:
        await client.call_tool("add", {"a": 1})
    http_app(server, path="/tools", stateless=True, allowed_hosts=["mcp.example.com"])
    assert_type(run_server(server, transport="http", auth=BearerToken("token", scopes=["sums"])), None)
    run_server("package.module:server", transport="http", workers=2)


def run() -> None:
    preload()
    executor = AsyncExecutor.get_instance()
    assert_type(executor.run(asyncio.sleep(0, result="done"), timeout=5), str)
