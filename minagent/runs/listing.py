"""Lists of runs: their order, their pages and their filters.

What is not here: where heads come from (each store).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple


class Page(List[Dict[str, Any]]):
    """Some heads of runs, newest first.

    Attributes:
        cursor: What `RunStore.list` takes to go on after them, or None when there are no more.
    """

    cursor: Optional[str] = None


def sort_key(run_id: str, head: Mapping[str, Any]) -> str:
    """A text that sorts runs by creation; milliseconds are exact enough, the id makes it unique."""
    return "%015d.%s" % (int(head.get("created_at", 0.0) * 1000), run_id)


def newest_first(heads: Mapping[str, Dict[str, Any]]) -> List[Tuple[str, Dict[str, Any]]]:
    """Heads by run id, in the order that `list` has."""
    return sorted(heads.items(), key=lambda item: sort_key(*item), reverse=True)


def matches(head: Mapping[str, Any], wanted: Mapping[str, Any],
             metadata: Optional[Mapping[str, Any]]) -> bool:
    """Whether a head has the wanted members (None is any), and metadata with at least these."""
    found = head.get("metadata")
    own = found if isinstance(found, Mapping) else {}
    return (all(value is None or head.get(key) == value for key, value in wanted.items())
            and all(own.get(key) == value for key, value in (metadata or {}).items()))


def settled_by(head: Mapping[str, Any], latest: Optional[float]) -> bool:
    """Whether nothing has happened in a run since `latest`, seconds since the epoch."""
    updated_at: float = head.get("updated_at", 0.0)
    return latest is None or updated_at <= latest
