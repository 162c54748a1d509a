# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from typing import Any

import pytest

from haystack_integrations.tools.mcp.convert.uri_templates import UriTemplate
from tests.support.rows import rows

# The variables of https://datatracker.ietf.org/doc/html/rfc6570#section-3.2
VALUES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": 1024,
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
    "yes": True,
}


@rows(
    ("template", "uri"),
    [
        ("notes://today", "notes://today"),
        ("{count}", "one,two,three"),
        ("{count*}", "one,two,three"),
        ("{/count}", "/one,two,three"),
        ("{/count*}", "/one/two/three"),
        ("{;count}", ";count=one,two,three"),
        ("{;count*}", ";count=one;count=two;count=three"),
        ("{?count}", "?count=one,two,three"),
        ("{?count*}", "?count=one&count=two&count=three"),
        ("{&count*}", "&count=one&count=two&count=three"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("{half}{hello}", "50%25Hello%20World%21"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("{x,y}", "1024,768"),
        ("?{x,empty}", "?1024,"),
        ("?{x,undef}", "?1024"),
        ("{var:3}", "val"),
        ("{var:30}", "value"),
        ("{keys}", "semi,%3B,dot,.,comma,%2C"),
        ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
        ("{+half}", "50%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+path:6}here", "/foo/bhere"),
        ("{+keys}", "semi,;,dot,.,comma,,"),
        ("{#path,x}here", "#/foo/bar,1024here"),
        ("{#hello}", "#Hello%20World!"),
        ("foo{#empty}", "foo#"),
        ("foo{#undef}", "foo"),
        ("www{.dom*}", "www.example.com"),
        ("X{.empty_keys}", "X"),
        ("{/var:1,var}", "/v/value"),
        ("{;v,empty,who}", ";v=6;empty;who=fred"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("{?keys*}", "?semi=%3B&dot=.&comma=%2C"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{yes}", "true"),
    ],
)
def test_a_template_is_filled_in_as_the_rfc_says(template: str, uri: str) -> None:
    assert UriTemplate(template).expand(VALUES) == uri


def test_what_is_percent_encoded_stays_so_where_reserved_characters_are_kept() -> None:
    assert UriTemplate("{+path}").expand({"path": "a%20b c%2Fd/é"}) == "a%20b%20c%2Fd/%C3%A9"


def test_a_template_tells_its_variables_and_which_of_them_are_optional() -> None:
    template = UriTemplate("notes://{user}/days/{day}{?limit,user}{&page}")
    assert template.variables == ("user", "day", "limit", "page")
    assert template.optional == {"limit", "page"}


@rows(
    ("template", "problem"),
    [
        ("a://{day", "has a brace that is not closed, at position 4"),
        ("a://day}", "has a closing brace without an opening one"),
        ("a://{}", "'' is not the name of a variable"),
        ("a://{!day}", "'!day' is not the name of a variable"),
        ("a://{day,}", "'' is not the name of a variable"),
        ("a://{day:0}", "'day:0' is not the name of a variable"),
        ("a://{{day}}", "'{day' is not the name of a variable"),
    ],
)
def test_what_is_no_template_is_refused(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match="The URI template") as raised:
        UriTemplate(template)
    assert problem in str(raised.value)


@rows(
    ("template", "uri", "found"),
    [
        ("notes://today", "notes://today", {}),
        ("notes://today", "notes://tomorrow", None),
        ("notes://{day}", "notes://monday", {"day": "monday"}),
        ("notes://{day}", "notes://a%20day", {"day": "a day"}),
        ("notes://{day}", "notes://monday/noon", None),
        ("notes://{day}", "notes://", None),
        ("notes://{+path}", "notes://a/b?c#d", {"path": "a/b?c#d"}),
        ("notes://all{/path*}", "notes://all/a/b", {"path": "/a/b"}),
        ("notes://all{/path*}", "notes://all", {"path": ""}),
        ("notes://all{.kind}", "notes://all.txt", {"kind": ".txt"}),
        ("notes://all{;a,b}", "notes://all;a=1;b=2", {"a,b": ";a=1;b=2"}),
        ("notes://all{?a}{&b}", "notes://all?a=1&b=2", {"a": "?a=1&b=2", "b": ""}),
        ("notes://all{#part}", "notes://all#end", {"part": "#end"}),
        ("notes://(.*)", "notes://anything", None),
        ("notes://{+path}", "notes://" + "a" * 5000, None),
        ("{a}-{b}-{c}-{d}", "a-b-c-d", None),
    ],
)
def test_it_tells_which_uris_may_come_of_it(template: str, uri: str, found: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == found


@rows("template", ["notes://{day}", "x://{+base}/{a}", "x://all{/list*}{?x}", "x://{.dom*}{#who}"])
def test_it_knows_what_it_has_made_itself(template: str) -> None:
    assert UriTemplate(template).match(UriTemplate(template).expand({**VALUES, "day": "1", "a": "b"})) is not None
