# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import sys
from typing import TYPE_CHECKING

from lazy_imports import LazyImporter

_import_structure = {
    "client": ["InProcessClient", "MCPClient", "SSEClient", "StdioClient", "StreamableHttpClient"],
    "connection": ["MCPConnection", "MCPConnectionStatus"],
    "errors": [
        "MCPConnectionError",
        "MCPConnectionTimeoutError",
        "MCPError",
        "MCPInvocationError",
        "MCPTimeoutError",
        "MCPToolNotFoundError",
    ],
    "executor": ["AsyncExecutor"],
    "mcp_tool": ["MCPTool"],
    "mcp_toolset": ["MCPToolset", "warm_up_toolsets", "warm_up_toolsets_async"],
    "server_info": [
        "InProcessServerInfo",
        "MCPServerInfo",
        "SSEServerInfo",
        "StdioServerInfo",
        "StreamableHttpServerInfo",
    ],
}

if TYPE_CHECKING:
    from .client import InProcessClient as InProcessClient
    from .client import MCPClient as MCPClient
    from .client import SSEClient as SSEClient
    from .client import StdioClient as StdioClient
    from .client import StreamableHttpClient as StreamableHttpClient
    from .connection import MCPConnection as MCPConnection
    from .connection import MCPConnectionStatus as MCPConnectionStatus
    from .errors import MCPConnectionError as MCPConnectionError
    from .errors import MCPConnectionTimeoutError as MCPConnectionTimeoutError
    from .errors import MCPError as MCPError
    from .errors import MCPInvocationError as MCPInvocationError
    from .errors import MCPTimeoutError as MCPTimeoutError
    from .errors import MCPToolNotFoundError as MCPToolNotFoundError
    from .executor import AsyncExecutor as AsyncExecutor
    from .mcp_tool import MCPTool as MCPTool
    from .mcp_toolset import MCPToolset as MCPToolset
    from .mcp_toolset import warm_up_toolsets as warm_up_toolsets
    from .mcp_toolset import warm_up_toolsets_async as warm_up_toolsets_async
    from .server_info import InProcessServerInfo as InProcessServerInfo
    from .server_info import MCPServerInfo as MCPServerInfo
    from .server_info import SSEServerInfo as SSEServerInfo
    from .server_info import StdioServerInfo as StdioServerInfo
    from .server_info import StreamableHttpServerInfo as StreamableHttpServerInfo
else:
    sys.modules[__name__] = LazyImporter(name=__name__, module_file=__file__, import_structure=_import_structure)
