"""Records as text: one JSON object a line, its checksum the last member.

What is not here: where lines are kept (`file_lease`, `memory`), and what records mean (`standing`).
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Tuple
from zlib import crc32

from ..errors import EncodeError, RunCorrupt, RunTooNew

Record = Dict[str, Any]

#: The format that this version writes, in the output of a journal's first record.
SCHEMA = 1


def _encoder(ascii_only: bool) -> Callable[[Any], str]:
    # Cycles need no check of their own, they end in a RecursionError.
    return json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":"), check_circular=False,
                            allow_nan=False).encode


_text = _encoder(False)
_ascii = _encoder(True)

_TAIL = len(',"crc":"00000000"}')


def to_bytes(value: Any) -> bytes:
    """A JSON value as UTF-8 without line ends.

    Raises:
        EncodeError: If it is no JSON value.
    """
    try:
        return _text(value).encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: as an escape it survives
        return _ascii(value).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError("cannot write a record as JSON: %s; record plain JSON values only"
                          % error) from error


def to_line(record: Record) -> bytes:
    """A record as a line with its checksum, the CRC-32 of the bytes before it, and a line end."""
    body = to_bytes(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def from_line(line: bytes) -> Record:
    """The record of a line without its line end.

    Raises:
        ValueError: If it is damaged.
    """
    body, tail = line[:-_TAIL], line[-_TAIL:]
    if tail != b',"crc":"%08x"}' % crc32(body):
        raise ValueError("the checksum does not fit")
    record: Record = json.loads((body + b"}").decode("utf-8"))
    return record


def from_journal(data: bytes, run_id: str) -> Tuple[List[Record], int]:
    """The records of a journal and the number of bytes that they fill; what follows those is a torn tail.

    A torn tail is a last line that is damaged or has no line end: its writer was stopped.

    Raises:
        RunCorrupt: If there is damage before the last line, or no record at all.
        RunTooNew: If a newer version wrote it.
    """
    records: List[Record] = []
    start = 0
    while True:
        end = data.find(b"\n", start)
        if end < 0:
            break
        try:
            records.append(_next(data[start:end], records))
        except ValueError as error:
            if end + 1 == len(data):
                break
            raise _corrupt(run_id, start, str(error)) from error
        start = end + 1
    if not records:
        raise _corrupt(run_id, 0, "there is no complete first record")
    check_schema(records[0], run_id)
    return records, start


def last_record(tail: bytes) -> Optional[Record]:
    """The record of the last line of a journal's last bytes; None if it is damaged or not whole in them."""
    lines = tail.split(b"\n")
    if len(lines) < 2 or lines[-1]:
        return None
    try:
        return _next(lines[-2], [])
    except ValueError:
        return None


def _next(line: bytes, records: List[Record]) -> Record:
    record = from_line(line)
    if not (isinstance(record, dict) and isinstance(record.get("seq"), int) and "status" in record):
        raise ValueError("it is no record")
    if records and record["seq"] != records[-1]["seq"] + 1:
        raise ValueError("record %r follows record %r" % (record["seq"], records[-1]["seq"]))
    return record


def _corrupt(run_id: str, offset: int, reason: str) -> RunCorrupt:
    return RunCorrupt("the journal of run %s is damaged at byte %d: %s; it was left as it is; restore it "
                      "from a backup" % (run_id, offset, reason), run_id, offset)


def check_schema(first: Record, run_id: str) -> None:
    """Look at the number in a journal's first record.

    Raises:
        RunTooNew: If this version does not know it.
    """
    output = first.get("output")
    found = output.get("schema", SCHEMA) if isinstance(output, dict) else SCHEMA
    if not isinstance(found, int) or found > SCHEMA:
        raise RunTooNew("run %s was recorded in format %r, and this version knows formats up to %d; "
                        "use the version that recorded it, or a newer one" % (run_id, found, SCHEMA), run_id)
