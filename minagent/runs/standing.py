"""How a run stands: what its records say to somebody who does not own it.

Finished is a `completed` record.  Open are suspensions that nobody decided, and background tasks that have
not ended.  What is not here: decisions that wait in the inbox (`base` adds them), and what the run has come
to (the loop's state).
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping

from ..errors import Suspend
from ..workflow.entries import Entry
from ..workflow.journal import RUN_STATUSES

#: Members of the first record that a list of runs shows.
SHOWN = ("agent", "thread_id", "resource_id", "metadata")


class Standing:
    """The fold of a run's records.

    Attributes:
        about: The output of the first record: agent, schema and what the run was asked with.
        created_at: Seconds since the epoch.
        updated_at: The same, of the last record.
        last_seq: Number of the last record.
        finished: Whether it has ended by itself.
        left: How its last owner left it, as far as that was recorded: "", "suspended" or "early".
        decided: Decisions that were taken up, by suspension id.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]):
        self.about: Mapping[str, Any] = {}
        self.created_at = self.updated_at = 0.0
        self.last_seq = 0
        self.finished = False
        self.left = ""
        self.decided: Dict[str, Any] = {}
        self._tasks: Dict[str, Dict[str, Any]] = {}
        self._root = Entry()
        for record in records:
            self._take(record)

    @property
    def open(self) -> Dict[str, Dict[str, Any]]:
        """Suspensions and background tasks that wait for a decision, by id, in the order of the workflow."""
        found = {wait["id"]: wait for leaf in self._root.leaves() for wait in leaf.open_waits()}
        found.update({key: task for key, task in self._tasks.items() if key not in found})
        return found

    @property
    def suspended(self) -> bool:
        """Whether its last owner left it because something is open."""
        if self.finished or self.left == "early":
            return False
        waits = any(leaf.open_waits() for leaf in self._root.leaves())
        return waits or self.left == "suspended" and bool(self._tasks)

    def shown(self) -> Dict[str, Any]:
        """What a list of runs shows of it, its status aside."""
        known = {key: self.about[key] for key in SHOWN if self.about.get(key)}
        return dict(known, created_at=self.created_at, updated_at=self.updated_at, last_seq=self.last_seq)

    def _take(self, record: Mapping[str, Any]) -> None:
        status = record["status"]
        self.last_seq = record["seq"]
        self.updated_at = record.get("at", 0.0)
        if status in RUN_STATUSES:
            self._take_run(status, record)
        else:
            self._root.at(record["path"]).take(record)
            if status == "decided":
                self.decided[record["output"]["id"]] = record["output"]["decision"]
            elif status == "noted" and record.get("signal") == Suspend.__name__:
                self.left = "suspended"
        for change in record.get("changes", ()):
            self._change(change, record)

    def _take_run(self, status: str, record: Mapping[str, Any]) -> None:
        if status == "completed":
            self.finished = True
        elif status == "owned":
            self.left = ""
        elif status in ("created", "checkpoint"):
            self.created_at = self.created_at or self.updated_at
            self.about = record.get("output") or {}
            if status == "checkpoint":
                self._take_checkpoint(self.about)

    def _take_checkpoint(self, output: Mapping[str, Any]) -> None:
        """What the records that it stands for had left; of the loop's state only what is known of here."""
        state = output.get("state") or {}
        self.about = dict(state.get("options") or {}, **output)
        self._root = Entry.from_dict(output.get("entries", {}))
        self._tasks = {key: _asked(task, 0.0) for key, task in (state.get("background") or {}).items()}
        self.finished = bool(state.get("finish_reason") or state.get("tripwire"))
        ended = (state.get("ended") or {}).get("signal")
        self.left = "" if ended is None else "suspended" if ended == Suspend.__name__ else "early"

    def _change(self, change: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        kind = change["type"]
        if kind == "ended-early":
            self.left = "early"
        elif kind == "background-opened":
            task = record["output"]["background"]
            self._tasks[task["id"]] = _asked(task, self.updated_at)
        elif kind == "background-closed":
            self._tasks.pop(change["id"], None)


def _asked(task: Mapping[str, Any], at: float) -> Dict[str, Any]:
    """A background task as the suspension that it is listed as."""
    members = {"id": task["id"], "kind": "background", "call_id": task.get("call_id", ""),
               "tool_name": task.get("name", ""), "args": task.get("args"), "created_at": at}
    return {key: value for key, value in members.items() if value not in ("", None)}
