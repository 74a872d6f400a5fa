"""The reader of server-sent events, fed with bytes that are cut anywhere."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagent.llm.sse import SseReader


def read(*chunks):
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return [tuple(event) for event in events + reader.close()]


def cut(raw, size):
    return [raw[start:start + size] for start in range(0, len(raw), size)]


DATA = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), max_size=12)
LINES = st.lists(DATA, min_size=1, max_size=3).filter(lambda lines: lines != [""])
EVENTS = st.lists(st.tuples(st.sampled_from(["", "error", "message ü"]), LINES), max_size=6)


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_any_chunking_gives_the_same_events(events, end, data):
    """Line ends of three kinds, comments, names, several data lines: where bytes are cut does not matter."""
    text = "\ufeff" if data.draw(st.booleans()) else ""
    for name, lines in events:
        text += data.draw(st.sampled_from(["", ": comment" + end, ":" + end + end, end, "retry: 3" + end]))
        text += "event: %s%s" % (name, end) if name else ""
        text += "".join(["data: %s%s" % (line, end) for line in lines]) + end
    raw = text.encode("utf-8")
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    chunks = [raw[start:stop] for start, stop in zip([0] + places, places + [len(raw)])]
    wanted = [(name, "\n".join(lines)) for name, lines in events]
    assert read(*chunks) == read(*cut(raw, 1)) == read(raw) == wanted


def test_one_space_after_the_colon_is_dropped_and_no_more():
    """``data:x``, ``data: x`` and ``data:  x`` differ by a space in the last."""
    assert read(b"data:x\n\ndata: x\n\ndata:  x\n\n") == [("", "x"), ("", "x"), ("", " x")]


def test_lines_without_meaning_are_skipped():
    """Comments, unknown fields, ids and a field without a colon are no data."""
    assert read(b": hi\n\nid: 4\nfoo: bar\n\nevent: ping\n\ndata\n\nevent: a\ndata: b\n\n") == [("a", "b")]


def test_separators_of_other_standards_end_no_line():
    """U+2028, U+0085, vertical tab and form feed are text."""
    text = "a\u2028b\u0085c\x0bd\x0ce"
    assert read(("data: %s\n\n" % text).encode("utf-8")) == [("", text)]


@pytest.mark.parametrize("last, wanted", [
    (b'data: {"a": 1}', [("", '{"a": 1}')]),
    (b'data: {"a": 1}\n', [("", '{"a": 1}')]),
    (b"data: [DONE]", [("", "[DONE]")]),
    (b'data: {"a": ', []),
    (b"dat", []),
])
def test_a_last_event_without_its_blank_line_counts_if_it_is_complete(last, wanted):
    """A stream that was cut inside its last event does not deliver half of it."""
    assert read(b"data: 1\n\n" + last) == [("", "1")] + wanted


def test_invalid_utf8_and_nul_do_not_stop_the_reader():
    """Broken bytes are replaced, a NUL stays, and the next event is read as usual."""
    assert read(b"data: a\xff\xc3\n\n", b"data: b\x00\n\n", b"data: c\n\n") == [
        ("", "a\ufffd\ufffd"), ("", "b\x00"), ("", "c")]


def test_a_huge_event_takes_time_in_proportion_to_its_size():
    """5 MB in pieces of 1 KiB, as one line and as many, are not copied over and over."""
    value = "x" * 5_000_000
    raw = b"data: " + json.dumps(value).encode() + b"\n\n"
    many = b"".join([b"data: " + b"y" * 90 + b"\n"] * 50_000) + b"\n"
    start = time.process_time()
    assert json.loads(read(*cut(raw, 1024))[0][1]) == value
    assert len(read(*cut(many, 1024))[0][1]) == 91 * 50_000 - 1
    assert time.process_time() - start < 2
