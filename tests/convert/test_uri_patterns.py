# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0


from haystack_integrations.tools.mcp.convert.resources import matches_any
from tests.support.rows import rows

FILES = "file:///public/*"
HOSTS = "https://*.example.com/docs/*"


@rows(
    ("uri", "pattern"),
    *((f"file:///public/{path}", FILES) for path in ("a.md", "My%20report%20(1).pdf", "100%25.md")),
    *((f"file:///public/{path}", FILES) for path in ("Gr\u00fc\u00dfe/\u5929\u6c14.md", "Gr%C3%BC%C3%9Fe.md")),
    *((f"file:///public/{path}", FILES) for path in ("src%2Fmain.py", ".hidden/v1..v2/folder/")),
    ("file:///public/My report.pdf", "file:///public/My report.pdf"),
    ("https://www.example.com/docs/a?page=2#top", HOSTS),
    ("https://www.example.com:8443/docs/a", "https://*.example.com:*/docs/*"),
    ("http://[::1]:80/a", "http://[[]::1]:80/*"),
    ("web://page/https://example.com/a", "web://page/*"),
    ("notes://a/b.md", "*.md"),
    ("notes://days?day=monday", "notes://days?day=*"),
    ("notes://days/{day}{?lang}", "notes://days/*"),
    ("users://me@example.com/", "users://*"),
    ("file:///C:/a.md", "file:///*"),
)
def test_a_pattern_allows_these_uris(uri: str, pattern: str) -> None:
    assert matches_any(uri, [pattern])


# Spellings that have tricked servers, proxies and libraries into leaving a folder.
DOTS = ["..", ".\t.", ". .", ".\u200b.", ".\ufe0f.", "%2e%2e", "%25252e%25252e", "%2525252525252e.", ".%09.", "..;"]
DOTS += ["..%20", "%u002e%u002e", "%c0%ae%c0%ae", "\uff0e\uff0e", "\u2024\u2024", "\u3002\u3002", "%EF%BC%8E%EF%BC%8E"]
WAYS = [*(f"{dots}/secret" for dots in DOTS), "..%5csecret", "a\\..\\..\\secret", "..\u2215secret", "..\uff3csecret"]
WAYS += ["a%00.md", "/etc/passwd", "%252Fetc/passwd", "read?file=%2e%2e%2fsecret", "a b.md", " "]


@rows("path", *WAYS)
def test_no_spelling_of_a_uri_leads_out_of_a_folder(path: str) -> None:
    assert not matches_any(f"file:///public/{path}", [FILES])


@rows(
    ("uri", "pattern"),
    *((uri, FILES) for uri in ("file:///secret", "FILE:///secret", "file://evil/public/a", "file:///public")),
    *((uri, FILES) for uri in (" file:///public/a", "file:///public/a\n")),
    ("file:///public/secret.key#.md", "file:///public/*.md"),
    ("file:///public/secret.key?.md", "file:///public/*.md"),
    *((f"https://evil.com{end}.example.com/docs/x", HOSTS) for end in ("/a", "?", "\\", "%2f", "\uff0f", ":x")),
    ("https://evil.com@www.example.com/docs/x", HOSTS),
    ("https://www.example.com@evil.com/docs/x", HOSTS),
    ("https://www.example.com%40evil.com/docs/x", "https://www.example.com*"),
    ("https://evil.com/x", "https://docs.*.com"),
)
def test_no_uri_is_read_from_elsewhere(uri: str, pattern: str) -> None:
    assert not matches_any(uri, [pattern])
