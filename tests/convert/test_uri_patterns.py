# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import pytest

from haystack_integrations.tools.mcp.convert.resources import matches_any

FILES = "file:///public/*"
HOSTS = "https://*.example.com/docs/*"


@pytest.mark.parametrize(
    ("uri", "pattern"),
    [
        ("file:///public/a.md", FILES),
        ("file:///public/My%20report%20(1).pdf", FILES),
        ("file:///public/100%25.md", FILES),
        ("file:///public/Gr\u00fc\u00dfe/\u5929\u6c14.md", FILES),
        ("file:///public/Gr%C3%BC%C3%9Fe.md", FILES),
        ("file:///public/src%2Fmain.py", FILES),
        ("file:///public/.hidden/v1..v2/folder/", FILES),
        ("file:///public/My report.pdf", "file:///public/My report.pdf"),
        ("https://www.example.com/docs/a?page=2#top", HOSTS),
        ("https://www.example.com:8443/docs/a", "https://*.example.com:*/docs/*"),
        ("http://[::1]:80/a", "http://[[]::1]:80/*"),
        ("web://page/https://example.com/a", "web://page/*"),
        ("notes://days/monday", "notes://*"),
        ("notes://a/b.md", "*.md"),
        ("notes://days?day=monday", "notes://days?day=*"),
        ("notes://days/{day}{?lang}", "notes://days/*"),
        ("users://me@example.com/", "users://*"),
        ("file:///C:/a.md", "file:///*"),
    ],
)
def test_what_a_pattern_allows(uri: str, pattern: str) -> None:
    assert matches_any(uri, [pattern])


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        ".\t./secret",
        ". ./secret",
        ".\u200b./secret",
        ".\ufe0f./secret",
        "%2e%2e/secret",
        "%25252e%25252e%25252fsecret",
        "%2525252525252e./secret",
        "..%5csecret",
        "a\\..\\..\\secret",
        ".%09./secret",
        "a%00.md",
        "%u002e%u002e/secret",
        "%c0%ae%c0%ae/secret",
        "..;/secret",
        "..%20/secret",
        "\uff0e\uff0e/secret",
        "\u2024\u2024/secret",
        "\u3002\u3002/secret",
        "%EF%BC%8E%EF%BC%8E/secret",
        "..\u2215secret",
        "..\uff3csecret",
        "/etc/passwd",
        "%252Fetc/passwd",
        "read?file=%2e%2e%2fsecret",
        "a b.md",
        " ",
    ],
)
def test_no_way_of_writing_a_uri_leads_out_of_a_folder(path: str) -> None:
    assert not matches_any(f"file:///public/{path}", [FILES])


@pytest.mark.parametrize(
    ("uri", "pattern"),
    [
        ("file:///secret", FILES),
        ("FILE:///secret", FILES),
        ("file://evil/public/a", FILES),
        ("file:///public", FILES),
        (" file:///public/a", FILES),
        ("file:///public/a\n", FILES),
        ("file:///public/secret.key#.md", "file:///public/*.md"),
        ("file:///public/secret.key?.md", "file:///public/*.md"),
        ("https://evil.com/a.example.com/docs/x", HOSTS),
        ("https://evil.com?.example.com/docs/x", HOSTS),
        ("https://evil.com\\.example.com/docs/x", HOSTS),
        ("https://evil.com%2f.example.com/docs/x", HOSTS),
        ("https://evil.com\uff0f.example.com/docs/x", HOSTS),
        ("https://evil.com@www.example.com/docs/x", HOSTS),
        ("https://evil.com:x.example.com/docs/x", HOSTS),
        ("https://www.example.com@evil.com/docs/x", HOSTS),
        ("https://www.example.com%40evil.com/docs/x", "https://www.example.com*"),
        ("https://evil.com/x", "https://docs.*.com"),
    ],
)
def test_no_uri_is_read_from_elsewhere(uri: str, pattern: str) -> None:
    assert not matches_any(uri, [pattern])
