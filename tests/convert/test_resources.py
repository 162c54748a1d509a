# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import pytest
from haystack.dataclasses import ByteStream
from mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents

from haystack_integrations.tools.mcp.convert.resources import resource_contents, resource_streams
from tests.support.rows import rows

BYTES = ByteStream(b"\x00\x01\x02", meta={"uri": "memo://b.bin"}, mime_type="application/octet-stream")


def test_text_becomes_a_string_or_a_stream_and_all_else_a_stream_with_its_type_and_uri():
    note = TextResourceContents(uri="memo://a.md", text="# Grüße", mime_type="text/markdown")
    blob = BlobResourceContents(uri="memo://b.bin", blob="AAEC", mime_type="application/octet-stream")
    result = ReadResourceResult(contents=[note, TextResourceContents(uri="memo://empty", text=""), blob])
    assert resource_contents(result) == ["# Grüße", "", BYTES]
    assert resource_streams(result) == [
        ByteStream("# Grüße".encode(), meta={"uri": "memo://a.md"}, mime_type="text/markdown"),
        ByteStream(b"", meta={"uri": "memo://empty"}, mime_type="text/plain"),
        BYTES,
    ]


@rows("convert", resource_contents, resource_streams)
def test_invalid_base64_is_an_error_that_does_not_quote_it(convert):
    damaged = ReadResourceResult(contents=[BlobResourceContents(uri="memo://b", blob="s3cr3t!")])
    with pytest.raises(ValueError, match="not valid base64") as failed:
        convert(damaged)
    assert "s3cr3t" not in str(failed.value)


def test_base64_may_have_line_breaks_or_be_a_data_uri():
    for blob in ("AA\r\nEC\n", "data:image/gif;base64,AAEC"):
        [stream] = resource_streams(ReadResourceResult(contents=[BlobResourceContents(uri="memo://b", blob=blob)]))
        assert stream.data == b"\x00\x01\x02"
    assert stream.mime_type == "image/gif"
