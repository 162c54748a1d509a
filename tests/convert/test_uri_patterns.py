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
        ("file:///C:/public/a.md", "file:///C:/public/*"),
        ("file:///c%3A/public/q:1", "file:///c%3A/public/*"),
        ("file:///C:/a.md", "*"),
        ("file:///C:/a.md", "file:///*"),
        ("file:///c%3A/a.md", "file:///*.md"),
    ],
)
def test_what_a_pattern_allows(uri: str, pattern: str) -> None:
    assert matches_any(uri, [pattern])


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "./../secret",
        ".\t./secret",
        ".\n./secret",
        ".\r./secret",
        ". ./secret",
        ".\u200b./secret",
        ".\x00./secret",
        ".\u00a0./secret",
        ".\ufe0f./secret",
        "%2e%2e/secret",
        ".%2E/secret",
        "%252e%252e/secret",
        "%25252e%25252e%25252fsecret",
        "%2525252525252e./secret",
        "..%2fsecret",
        "..%5csecret",
        "..\\secret",
        "a\\..\\..\\secret",
        ".%09./secret",
        "a%00.md",
        "%u002e%u002e/secret",
        "%c0%ae%c0%ae/secret",
        "..;/secret",
        "..%3b/secret",
        ".. /secret",
        "..%20/secret",
        "\uff0e\uff0e/secret",
        "\u2025/secret",
        "\u2024\u2024/secret",
        "\u3002\u3002/secret",
        "%EF%BC%8E%EF%BC%8E/secret",
        "..\u2215secret",
        "..\uff0fsecret",
        "..\uff3csecret",
        "/etc/passwd",
        "%2Fetc/passwd",
        "%252Fetc/passwd",
        "read?file=../secret",
        "read?file=%2e%2e%2fsecret",
        "C:/secret",
        "a/c%3A/secret",
        "C%253a/secret",
        "C|/secret",
        "C:../secret",
        "%20C:/secret",
        "C:\u2025",
        "a?file=C:/secret",
        "C:",
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
        ("https://evil.com#.example.com/docs/x", HOSTS),
        ("https://evil.com\\.example.com/docs/x", HOSTS),
        ("https://evil.com%2f.example.com/docs/x", HOSTS),
        ("https://evil.com%252f.example.com/docs/x", HOSTS),
        ("https://evil.com\uff0f.example.com/docs/x", HOSTS),
        ("https://evil.com@www.example.com/docs/x", HOSTS),
        ("https://evil.com:x.example.com/docs/x", HOSTS),
        ("https://evil.com\ufe55.example.com/docs/x", HOSTS),
        ("https://www.example.com@evil.com/docs/x", HOSTS),
        ("https://www.example.com%40evil.com/docs/x", "https://www.example.com*"),
        ("https://evil.com/x", "https://docs.*.com"),
    ],
)
def test_no_uri_is_read_from_elsewhere(uri: str, pattern: str) -> None:
    assert not matches_any(uri, [pattern])
