"""Entries: what the journal says about each place of a workflow, as a tree of names.

An entry is the fold of the records written at its path; a composite's entry only holds those below it.  What
is not here: the nodes themselves (`nodes`), visiting them (`engine`) and writing (`journal`).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple


class Entry:
    """What is recorded at one place.

    Attributes:
        name: Its name below the parent.
        parent: The place that it is in, or None for the root.
        children: Places below it, by name.
        touched: Whether something is recorded here or below.
        status: Of a leaf: None, started, done, suspended or decided (the last one recorded).
        output: What a done leaf recorded.
        starts: How often the leaf was started.
        waits: The leaf's suspensions in the order of its `suspend` calls; one with a "decision" is answered.
        last: Of a DoWhile: number and output of the last finished iteration.
    """

    __slots__ = ("name", "parent", "children", "touched", "status", "output", "starts", "waits", "last")

    def __init__(self, name: str = "", parent: Optional[Entry] = None):
        self.name = name
        self.parent = parent
        self.children: Dict[str, Entry] = {}
        self.touched = False
        self.status: Optional[str] = None
        self.output: Any = None
        self.starts = 0
        self.waits: Optional[List[Dict[str, Any]]] = None
        self.last: Optional[Tuple[int, Any]] = None

    def __repr__(self) -> str:
        return "Entry(%r, %s)" % (self.path(), self.status or "no record")

    def child(self, name: str) -> Entry:
        """The place of that name below this one, made if it is new."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Entry(name, self)
        return found

    def at(self, path: str) -> Entry:
        """The place with that path below this one."""
        entry = self
        for name in path.split("/") if path else ():
            entry = entry.child(name)
        return entry

    def path(self) -> str:
        names = []
        entry: Optional[Entry] = self
        while entry is not None and entry.parent is not None:
            names.append(entry.name)
            entry = entry.parent
        return "/".join(reversed(names))

    def take(self, record: Mapping[str, Any]) -> None:
        """Fold one record of this place."""
        self._touch()
        status = record["status"]
        if status == "noted":
            return
        self.status = status
        if status == "done":
            self.output = record.get("output")
            self.waits = None
        elif status == "started":
            self.starts += 1
        elif status == "suspended":
            self.waits = (self.waits or []) + [dict(record["output"])]
        elif status == "decided":
            self._decide(record["output"])

    def _touch(self) -> None:
        entry: Optional[Entry] = self
        while entry is not None and not entry.touched:
            entry.touched = True
            entry = entry.parent

    def _decide(self, output: Mapping[str, Any]) -> None:
        for wait in self.waits or ():
            if wait["id"] == output["id"]:
                wait["decision"] = output["decision"]

    def open_waits(self) -> List[Dict[str, Any]]:
        """Suspensions of this leaf that nobody has decided; copies."""
        return [dict(wait) for wait in self.waits or () if "decision" not in wait]

    def leaves(self) -> Iterator[Entry]:
        """All leaves at or below this place that have a record."""
        if self.status is not None:
            yield self
        for child in list(self.children.values()):
            yield from child.leaves()

    def highest(self) -> int:
        """Number of the highest iteration with a record, 0 if there is none."""
        return max([int(name) for name, child in self.children.items() if child.touched], default=0)

    def fold(self, iteration: int, output: Any) -> None:
        """Keep an iteration's output and forget the records below it."""
        self.last = (iteration, output)
        self.children.pop(str(iteration), None)

    def to_dict(self) -> Dict[str, Any]:
        """JSON for a checkpoint; places without records are left out.

        Another thread may be visiting here meanwhile.  Children are read before `last`: an iteration that is
        folded in between then is in both, which does no harm, instead of in none.
        """
        data: Dict[str, Any] = {} if self.output is None else {"output": self.output}
        children = {name: child.to_dict() for name, child in list(self.children.items()) if child.touched}
        waits = [dict(wait) for wait in self.waits or ()]
        last = self.last and list(self.last)
        members = {"status": self.status, "starts": self.starts, "waits": waits, "last": last,
                   "children": children}
        data.update((name, value) for name, value in members.items() if value)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], name: str = "", parent: Optional[Entry] = None) -> Entry:
        entry = cls(name, parent)
        entry.touched = True
        entry.status = data.get("status")
        entry.output = data.get("output")
        entry.starts = data.get("starts", 0)
        entry.waits = [dict(wait) for wait in data["waits"]] if data.get("waits") else None
        entry.last = (data["last"][0], data["last"][1]) if data.get("last") else None
        for key, child in data.get("children", {}).items():
            entry.children[key] = cls.from_dict(child, key, entry)
        return entry
