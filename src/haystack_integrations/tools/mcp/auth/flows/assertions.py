# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING

from haystack.utils import Secret
from mcp.shared.auth_utils import resource_url_from_server_url

from haystack_integrations.tools.mcp.auth.requests import MCPAssertionRequest
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import provide

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.run import Flow


async def assertion(flow: Flow, parameter: str, audience: str) -> str:
    """
    Ask a function of the user for an assertion, or resolve the Secret that it is.

    :param flow: The flow.
    :param parameter: The field of the configuration.
    :param audience: For whom the assertion is.
    :returns: The assertion.
    :raises MCPAuthorizationError: If there is none.
    """
    source = getattr(flow.config, parameter)
    if isinstance(source, Secret):
        value = source.resolve_value()
    else:
        resource = resource_url_from_server_url(flow.auth.server_url)
        request = MCPAssertionRequest(audience=audience, resource=resource, user=flow.key.user)
        flow.outgoing.step = f"asking `{parameter}`"
        try:
            value = await provide(source, request)
        except Exception as error:
            # Not its text, which may quote a credential.
            msg = f"`{parameter}` failed ({type(error).__name__})"
            raise MCPAuthorizationError(msg) from error
    if not isinstance(value, str) or not value:
        msg = f"`{parameter}` must give a string that is not empty, it gave {type(value).__name__}"
        raise MCPAuthorizationError(msg)
    flow.outgoing.secrets.add(value)
    return value
