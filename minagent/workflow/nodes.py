"""Nodes: the plan of a workflow, as inert values.

`Step` is a leaf, the only node that writes records.  `Workflow`, `Branch`, `ForEach` and `DoWhile` put leaves
together, and `Mount` stands for a subtree that is made when it is reached.  Every place has a path of names:
a Workflow adds its child's name, a Branch the name of the door taken, a ForEach the item's index from 0, a
DoWhile the iteration from 1.  The name of a ForEach's or DoWhile's body is not in the path.  Names in paths
are stored: renaming a node makes old journals unreadable.

What is not here: running them (`engine`).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ..errors import ConfigError

Run = Callable[[Any, Any], Any]
When = Callable[[Any, Any], bool]


class Done(NamedTuple):
    """What a leaf returns when its output alone does not say it all.

    Attributes:
        output: Plain JSON, recorded.
        changes: Small named events for the fold of the journal.
        sync: Whether the record must be on disk before the next thing happens.
    """

    output: Any = None
    changes: Sequence[Mapping[str, Any]] = ()
    sync: bool = False


class Node:
    """A place in a workflow.

    Attributes:
        name: Its name in the path; no "/".
    """

    def __init__(self, name: str):
        if not name or "/" in name:
            raise ConfigError("a workflow node has the name %r; expected text without '/'" % (name,))
        self.name = name

    def __repr__(self) -> str:
        return "%s(%r)" % (type(self).__name__, self.name)


class Step(Node):
    """A leaf.

    Parameters:
        run: ``run(ctx, value)`` returns the output (plain JSON) or a `Done`.  It never changes the state
            itself.
        bind: ``bind(scope, output)``, called at every start, after the run or instead of it when the output
            was recorded.  Everything live is made there.  It may be called more than once.
        join: ``join(value, output)`` makes what is handed on from the value handed in and the recorded
            output; default: the output.
        check: ``check(ctx)``, asked before the leaf runs; raises a signal to keep it from running.  Default:
            raises one when the engine was cancelled or its deadline has passed.
        exclusive: Whether it runs one at a time, its record included.
    """

    def __init__(self, name: str, run: Run, *, bind: Optional[Callable[[Any, Any], Any]] = None,
                 join: Optional[Callable[[Any, Any], Any]] = None,
                 check: Optional[Callable[[Any], Any]] = None, exclusive: bool = False):
        super().__init__(name)
        self.run = run
        self.bind = bind
        self.join = join
        self.check = check
        self.exclusive = exclusive


class Workflow(Node):
    """One node after the other, each given what the one before handed on."""

    def __init__(self, name: str, nodes: Sequence[Node] = ()):
        super().__init__(name)
        self.nodes: List[Node] = []
        for node in nodes:
            self.then(node)

    def then(self, node: Node) -> Workflow:
        """Add a node.  Returns self."""
        if any(node.name == other.name for other in self.nodes):
            raise ConfigError("workflow %r has two nodes named %r; names in paths must differ" % (
                self.name, node.name))
        self.nodes.append(node)
        return self


class Door(NamedTuple):
    """One way through a Branch.

    Attributes:
        when: ``when(value, scope)``; asked only while nothing is recorded behind the branch.
        node: What stands behind it, or None: it writes nothing and hands its input on.
        answers: Whether its output is the output of the Workflow that the branch stands in.
    """

    when: When
    node: Optional[Node]
    answers: bool


def always(value: Any, scope: Any) -> bool:
    """The condition of a last door."""
    return True


class Branch(Node):
    """The first door whose condition holds; with none, the input is handed on."""

    def __init__(self, name: str):
        super().__init__(name)
        self.doors: Dict[str, Door] = {}

    def door(self, name: str, when: When, node: Optional[Node] = None, answers: bool = False) -> Branch:
        """Add a door; conditions are asked in this order.  Returns self."""
        if name in self.doors:
            raise ConfigError("branch %r has two doors named %r" % (self.name, name))
        self.doors[Node(name).name] = Door(when, node, answers)
        return self


class ForEach(Node):
    """The body once for each item, in parallel if the engine has an executor; outputs in the items' order.

    Where nothing is recorded (no items, or a body that writes nothing) it hands its input on.

    Parameters:
        items: ``items(value)`` makes the list of items from the value handed in; default: that value.
    """

    def __init__(self, name: str, body: Node, items: Optional[Callable[[Any], Sequence[Any]]] = None):
        super().__init__(name)
        self.body = body
        self.items = items


class DoWhile(Node):
    """The body, again and again, each time given what the last iteration handed on.

    What an iteration hands on is kept in checkpoints, so it has to be plain JSON.

    Parameters:
        again: ``again(value, scope)``, asked after each iteration.
    """

    def __init__(self, name: str, body: Node, again: When):
        super().__init__(name)
        self.body = body
        self.again = again


Drive = Callable[[Node, Any], Any]


class Mount(Node):
    """A subtree made when it is reached.  Where nothing is recorded it hands its input on.

    Parameters:
        enter: ``enter(scope, value, drive)``; ``drive(node, value)`` visits a node in this place and returns
            what it hands on.  The node's own name is not in the path.
    """

    def __init__(self, name: str, enter: Callable[[Any, Any, Drive], Any]):
        super().__init__(name)
        self.enter = enter


def as_done(result: Any) -> Done:
    """What a leaf returned, as a `Done`."""
    return result if type(result) is Done else Done(result)


__all__ = ["Branch", "Done", "Door", "DoWhile", "ForEach", "Mount", "Node", "Step", "Workflow", "always"]
