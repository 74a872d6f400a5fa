"""Random workflows, the world that their leaves act on, and processes that die.

A tree is drawn as plain data and built anew by every process.  A `World` outlives processes and sees what
really happened; it checks everything against the lines that were kept, and asks the engine for nothing.
Not here: any expectation about one tree; the tests have those.
"""

import json
import os
import threading
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from minagent.workflow import Branch, Done, DoWhile, Engine, ForEach, Journal, Mount, Step, Suspend, Workflow, always

#: MINAGENT_EXAMPLES multiplies the number of drawn trees and draws other ones each time.
MORE = int(os.environ.get("MINAGENT_EXAMPLES", "0"))


def drawn(examples):
    """Settings for that many examples: always the same ones, unless more are asked for."""
    return settings(max_examples=examples * (MORE or 1), derandomize=not MORE, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck))


# Trees as data.

LEAF = st.builds(lambda asks, flags: ["leaf", asks, sorted(flags)], st.sampled_from([0, 0, 0, 1, 2]),
                 st.sets(st.sampled_from(["start", "join", "bind", "exclusive", "changes"]), max_size=3))


def _composites(inner):
    door = st.tuples(st.integers(1, 3), st.one_of(st.none(), inner), st.booleans()).map(list)
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda nodes: ["workflow", nodes]),
        st.lists(inner, min_size=2, max_size=3).map(lambda nodes: ["workflow", nodes]),
        st.lists(door, min_size=1, max_size=3).map(lambda doors: ["branch", doors]),
        st.tuples(st.integers(0, 3), st.booleans(), inner).map(lambda each: ["each", *each]),
        st.tuples(st.integers(0, 3), inner).map(lambda loop: ["while", *loop]),
        inner.map(lambda node: ["mount", node]))


TREES = st.recursive(LEAF, _composites, max_leaves=7).map(lambda node: ["workflow", [["leaf", 0, []], node]])


def number(value):
    """A number made of any JSON value."""
    if isinstance(value, list):
        return sum((place + 1) * number(item) for place, item in enumerate(value)) % 10007
    return 7 if value is None else int(value)


def build(spec, world, name="root"):
    """The node that a drawn tree stands for."""
    return BUILDERS[spec[0]](spec, world, name)


def _leaf(spec, world, name):
    _, asks, flags = spec

    def run(ctx, value):
        world.entered(ctx.path)
        if "start" in flags:
            ctx.start([{"type": "began"}])
        answers = [ctx.suspend({"question": place}) for place in range(asks)]
        world.acted(ctx.path)
        output = (3 * number(value) + len(name) + sum(answers)) % 10007
        return Done(output, [{"type": "counted"}]) if "changes" in flags else output

    def bind(scope, output):
        scope.bound.add((name, output))

    return Step(name, run, exclusive="exclusive" in flags, bind=bind if "bind" in flags else None,
                join=(lambda value, output: [number(value), output]) if "join" in flags else None)


def _workflow(spec, world, name):
    return Workflow(name, [build(node, world, "%s%d" % (name[:8], place)) for place, node in enumerate(spec[1])])


def _branch(spec, world, name):
    branch = Branch(name)
    for place, (modulus, node, answers) in enumerate(spec[1]):
        def when(value, scope, modulus=modulus):
            world.asked()
            return number(value) % modulus == 0

        branch.door("d%d" % place, when, node and build(node, world, "b%d" % place), answers)
    return branch


def _each(spec, world, name):
    _, count, given, body = spec
    if given:
        return ForEach(name, build(body, world, "body"),
                       items=lambda value: [number(value) + place for place in range(count)])
    listing = Step("list", lambda ctx, value: [number(value) + place for place in range(count)])
    return Workflow(name, [listing, ForEach("all", build(body, world, "body"))])


def _while(spec, world, name):
    _, times, body = spec
    if not times:  # nothing that has to be recorded
        return DoWhile(name, build(body, world, "body"), again=lambda value, scope: world.asked())
    lap = Step("lap", lambda ctx, value: [number(value), int(ctx.path.split("/")[-2])])

    def again(value, scope):
        world.asked()
        return value[1] < times

    inner = Workflow("in", [build(body, world, "body")])  # or a door could answer for the lap that is counted
    return DoWhile(name, Workflow("laps", [inner, lap]), again)


def _mount(spec, world, name):
    return Mount(name, lambda scope, value, drive: number(drive(build(spec[1], world, "body"), value)) + 1)


BUILDERS = {"leaf": _leaf, "workflow": _workflow, "branch": _branch, "each": _each, "while": _while,
            "mount": _mount}


# The world, and what is kept of a process.


class Killed(BaseException):
    """The process ended here."""


class World:
    """What outlives processes: the kept lines, and how often each leaf was entered and acted."""

    def __init__(self):
        self.kept = []
        self.entries = Counter()
        self.acts = Counter()
        self.engine = None  # of the process that runs now
        self.lease = None
        self._lock = threading.Lock()  # guards the counters

    def records(self):
        return [json.loads(line) for line in list(self.kept)]

    def entered(self, path):
        """A leaf's body begins: its last record is no end that stands."""
        if self.lease.dead:
            raise Killed
        own = [record for record in self.records() if record["path"] == path and record["status"] != "noted"]
        assert not own or own[-1]["status"] not in ("done", "suspended"), "%s was run after its end" % path
        with self._lock:
            self.entries[path] += 1

    def acted(self, path):
        if self.lease.dead:
            raise Killed
        with self._lock:
            self.acts[path] += 1

    def asked(self):
        """A condition is asked: nothing is recorded behind it.  Always false."""
        self.engine.check_frontier(self.records())
        return False

    def outputs(self):
        return {record["path"]: record.get("output") for record in self.records() if record["status"] == "done"}

    def suspensions(self):
        """Ids of all recorded suspensions, each recorded once and decided at most once."""
        ids = {}
        for status in ("suspended", "decided"):
            ids[status] = [record["output"]["id"] for record in self.records() if record["status"] == status]
            assert len(set(ids[status])) == len(ids[status]), "%s twice" % status
        assert set(ids["decided"]) <= set(ids["suspended"])
        return set(ids["suspended"])


class DyingLease:
    """Keeps lines in the world, and dies at an append: before it is kept or right after."""

    run_id = "run"
    epoch = 1

    def __init__(self, world, die_at=None, after=False, records=None):
        self.world = world
        self.records = world.records() if records is None else records
        self.countdown = die_at
        self.after = after
        self.dead = False
        world.lease = self

    def append(self, record):
        line = json.dumps(record)
        assert json.loads(line) == record, "not plain JSON: %r" % (record,)
        dying = self.countdown == 0
        if self.countdown is not None:
            self.countdown -= 1
        if self.dead or dying and not self.after:
            self.dead = True
            raise Killed
        assert record["seq"] == len(self.world.kept) + 1
        self.world.kept.append(line)
        if dying:
            self.dead = True
            raise Killed

    def sync(self):
        if self.dead:
            raise Killed


class SumState:
    """A fold that does not depend on the order of what is done in parallel."""

    def __init__(self):
        self.total, self.began, self.open = 0, [], []

    def apply(self, record):
        for change in record.get("changes", ()):
            if change["type"] == "counted":
                self.total += record["output"]
            elif change["type"] == "began" and record["path"] not in self.began:
                self.began = sorted([*self.began, record["path"]])
            elif change["type"] == "suspension-opened":
                self.open = sorted([*self.open, record["output"]["id"]])
            elif change["type"] == "suspension-closed":
                self.open = [id for id in self.open if id != record["output"]["id"]]

    def to_dict(self):
        return {"total": self.total, "began": self.began, "open": self.open}

    def restore(self, data):
        self.total, self.began, self.open = data["total"], data["began"], data["open"]


class Scope:
    """Live things of one process."""

    def __init__(self):
        self.bound = set()


class Watching(Engine):
    """An engine that knows at which place a condition is asked, and what stands behind that place."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._here = threading.local()
        self.order = {}  # of each Workflow visited: the names in it
        self.loops = set()

    def _workflow(self, node, entry, value, mode):
        self.order[entry.path()] = [child.name for child in node.nodes]
        return super()._workflow(node, entry, value, mode)

    def _branch(self, node, entry, value, mode):
        self._here.behind = [entry.path()]
        return super()._branch(node, entry, value, mode)

    def _do_while(self, node, entry, value, mode):
        self.loops.add(entry.path())
        finished = entry.last[0] if entry.last else 0  # all of them may be folded: then none is visited
        self._here.behind = ["%s/%d" % (entry.path(), finished + 1)]
        return super()._do_while(node, entry, value, mode)

    def _iteration(self, node, entry, number, value, mode):
        result = super()._iteration(node, entry, number, value, mode)
        self._here.behind = ["%s/%d" % (entry.path(), number + 1)]
        return result

    def check_frontier(self, records):
        behind = list(self._here.behind)
        names = behind[0].split("/")
        for depth in range(1, len(names)):
            parent, name = "/".join(names[:depth]), names[depth]
            if parent in self.order:
                later = self.order[parent][self.order[parent].index(name) + 1:]
                behind += ["%s/%s" % (parent, other) for other in later]
            if parent in self.loops and depth < len(names) - 1:
                behind += ["%s/%d" % (parent, int(name) + 1)]
        settled = [record["path"] for record in records for place in behind
                   if (record["path"] + "/").startswith(place + "/")]
        assert not settled, "the condition at %s was asked again; behind it is %s" % (names, settled)


def answer(suspension):
    """What is decided, always the same for the same suspension."""
    return int(suspension["id"][1:4], 16)


class Process:
    """One start of a tree on what the world kept.

    Attributes:
        end: "done", "suspended" or "killed".
        value: What was handed on, or the open suspensions.
    """

    def __init__(self, tree, world, decisions=None, die_at=None, after=False, records=None, listener=None,
                 **options):
        self.world = world
        self.scope = Scope()
        self.state = SumState()
        self.lease = DyingLease(world, die_at, after, records)
        self.journal = Journal(self.lease, self.state, listener and (lambda record: listener(self, record)))
        self.engine = world.engine = Watching(self.journal, self.scope, **options)
        try:
            self.engine.decide(decisions or {})
            self.end, self.value = "done", self.engine.run(build(tree, world), 5)
        except Suspend as suspend:
            self.end, self.value = "suspended", suspend.suspensions
            ids = [item["id"] for item in self.value]
            assert len(set(ids)) == len(ids)
        except Killed:
            self.end, self.value = "killed", None

    def outcome(self):
        """All that must be the same however often the run was stopped."""
        bound = sorted([name, json.dumps(output)] for name, output in self.scope.bound)
        return {"value": self.value, "state": self.state.to_dict(), "outputs": self.world.outputs(),
                "suspensions": self.world.suspensions(), "bound": bound}


def decide_all(open):
    return {item["id"]: answer(item) for item in open}


def finish(tree, world, choose=decide_all, **options):
    """Start processes until the tree is done; `choose` makes decisions of the open suspensions."""
    process = Process(tree, world, **options)
    while process.end != "done":
        assert process.end == "suspended"
        process = Process(tree, world, choose(process.value), **options)
    return process


__all__ = ["DyingLease", "Killed", "Process", "Scope", "SumState", "TREES", "Watching", "World", "always", "answer",
           "build", "decide_all", "drawn", "finish", "number"]
