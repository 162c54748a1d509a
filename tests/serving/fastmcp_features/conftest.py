# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import pytest

from tests.serving.fastmcp_features.served_kinds import KINDS


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    return request.param
