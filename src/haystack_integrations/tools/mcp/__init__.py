# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import sys
from typing import TYPE_CHECKING

from lazy_imports import LazyImporter

_import_structure = {
    "client.base": ["MCPClient"],
    "client.server_info": ["MCPServerInfo"],
    "connection.connection": ["MCPConnection"],
    "connection.preload": ["preload"],
    "connection.status": ["MCPConnectionStatus"],
    "errors": [
        "MCPConnectionError",
        "MCPConnectionTimeoutError",
        "MCPError",
        "MCPInvocationError",
        "MCPOutcomeUnknownError",
        "MCPTimeoutError",
        "MCPToolNotFoundError",
    ],
    "executor": ["AsyncExecutor"],
    "mcp_tool": ["MCPTool"],
    "mcp_toolset": ["MCPToolset", "warm_up_toolsets", "warm_up_toolsets_async"],
    "transports.http.client": ["SSEClient", "StreamableHttpClient"],
    "transports.http.server_info": ["SSEServerInfo", "StreamableHttpServerInfo"],
    "transports.in_process.client": ["InProcessClient"],
    "transports.in_process.server_info": ["InProcessServerInfo"],
    "transports.stdio.client": ["StdioClient"],
    "transports.stdio.server_info": ["StdioServerInfo"],
}

if TYPE_CHECKING:
    from .client.base import MCPClient as MCPClient
    from .client.server_info import MCPServerInfo as MCPServerInfo
    from .connection.connection import MCPConnection as MCPConnection
    from .connection.preload import preload as preload
    from .connection.status import MCPConnectionStatus as MCPConnectionStatus
    from .errors import MCPConnectionError as MCPConnectionError
    from .errors import MCPConnectionTimeoutError as MCPConnectionTimeoutError
    from .errors import MCPError as MCPError
    from .errors import MCPInvocationError as MCPInvocationError
    from .errors import MCPOutcomeUnknownError as MCPOutcomeUnknownError
    from .errors import MCPTimeoutError as MCPTimeoutError
    from .errors import MCPToolNotFoundError as MCPToolNotFoundError
    from .executor import AsyncExecutor as AsyncExecutor
    from .mcp_tool import MCPTool as MCPTool
    from .mcp_toolset import MCPToolset as MCPToolset
    from .mcp_toolset import warm_up_toolsets as warm_up_toolsets
    from .mcp_toolset import warm_up_toolsets_async as warm_up_toolsets_async
    from .transports.http.client import SSEClient as SSEClient
    from .transports.http.client import StreamableHttpClient as StreamableHttpClient
    from .transports.http.server_info import SSEServerInfo as SSEServerInfo
    from .transports.http.server_info import StreamableHttpServerInfo as StreamableHttpServerInfo
    from .transports.in_process.client import InProcessClient as InProcessClient
    from .transports.in_process.server_info import InProcessServerInfo as InProcessServerInfo
    from .transports.stdio.client import StdioClient as StdioClient
    from .transports.stdio.server_info import StdioServerInfo as StdioServerInfo
else:
    sys.modules[__name__] = LazyImporter(name=__name__, module_file=__file__, import_structure=_import_structure)
