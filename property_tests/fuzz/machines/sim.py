"""Whole scenarios as a state machine: the rules build up a scenario file, and its end runs it through the sim.

What a rule adds is a part of the file, so a failing example is a scenario; the ops of its run are the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis.stateful import initialize, rule

from model.config import EngineConfig, RequestSpec
from model.invariants import Violation
from model.tokens import Segment
from property_tests.fuzz.choices import Bytes, Choices
from property_tests.fuzz.features import WORDS, WORK
from property_tests.fuzz.generate import pools
from property_tests.fuzz.generate.engine import LONGEST, engine
from property_tests.fuzz.generate.mix import WORKERS
from property_tests.fuzz.generate.workload import Edges, length
from property_tests.fuzz.machines.base import CODES, STARTS, Machine, Packed
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from sim.optrace import Trace
from sim.regression import trace_yaml
from sim.result import RunResult
from sim.run import run_scenario

REQUESTS = 8  # of one scenario at most
PREFIXES = ("left", "right")
ACTIONS = ("suspend", "skip", "cancel", "fail", "shrink", "lose")
SCOPES = ({"salt": "s"}, {"adapter": "a"}, {"target_weights": 1}, {"draft_weights": 1})
LINK_US = (0, 300, 8000)


class SimMachine(Machine):
    """Sessions, turns, shared prefixes, disturbances and tiers come one by one; the end of the example serves them."""

    config: EngineConfig
    scenario: Scenario | None = None
    result: RunResult | None = None

    @initialize(start=STARTS)
    def open(self, start: bytes) -> None:
        """An engine, perhaps one of several workers, and two shared prefixes."""
        choices = Bytes(start)
        config = engine(choices, self.mix)
        self.kind = WORKERS[choices.weighted(self.mix.workers)]
        self.config = replace(config, asynchronous_copies=False)
        self.edges = Edges.of(config)
        tight = choices.chance(self.mix.tight)
        self.slack = {name: pools.slack(choices, tight, short=False) for name in config.pools}
        self.prefixes = {name: length(choices, self.edges) for name in PREFIXES}
        self.sessions: list[dict[str, Any]] = []
        self.lengths: list[int] = []  # tokens of each session so far
        self.disturbances: list[dict[str, Any]] = []
        self.link: dict[str, Any] | None = None
        self.forced = [1]
        self.concurrency = 0
        self._session(choices)

    # -- parts ---------------------------------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """Requests that the scenario has so far."""
        return sum(len(session["turns"]) for session in self.sessions)

    def _session(self, choices: Choices) -> None:
        name = choices.pick(PREFIXES)
        shared = min(self.prefixes[name], length(choices, self.edges))
        own = 1 + choices.below(2 * self.edges.page)
        whole = choices.chance(30)
        prompt = [{"prefix": name, "tokens": shared}] if whole else [{"prefix": name, "tokens": shared}, own]
        output = choices.pick((4, 2, 1, 9, 14))
        session: dict[str, Any] = {"name": f"s{len(self.sessions)}", "turns": [{"prompt": prompt, "output": output}]}
        session["arrival_s"] = choices.below(6) / 100
        if choices.chance(self.mix.scopes):
            session["scope"] = choices.pick(SCOPES)
        if choices.chance(self.mix.plain):
            session["drafts"] = False
        self.sessions.append(session)
        self.lengths.append(shared + own + output)

    @rule(code=CODES)
    def session(self, code: bytes) -> None:
        if self.requests < REQUESTS:
            self._session(Packed(code))

    @rule(code=CODES)
    def turn(self, code: bytes) -> None:
        choices = Packed(code)
        place = choices.below(len(self.sessions))
        more, output = 1 + choices.below(2 * self.edges.page), choices.pick((3, 1, 6))
        if self.requests < REQUESTS and self.lengths[place] + more + output <= self.edges.longest + 30:
            think = choices.below(4) / 100
            self.sessions[place]["turns"].append({"append": more, "output": output, "think_s": think})
            self.lengths[place] += more + output

    @rule(code=CODES)
    def repeat(self, code: bytes) -> None:
        """A session like another one: the same start, tokens of its own behind it."""
        choices = Packed(code)
        place = choices.below(len(self.sessions))
        like = self.sessions[place]
        if self.requests + len(like["turns"]) <= REQUESTS:
            arrival = choices.below(12) / 100
            self.sessions.append({**like, "name": f"s{len(self.sessions)}", "arrival_s": arrival})
            self.sessions[-1]["turns"] = [dict(turn) for turn in like["turns"]]
            self.lengths.append(self.lengths[place])

    @rule(code=CODES)
    def disturb(self, code: bytes) -> None:
        choices = Packed(code)
        action = choices.pick(ACTIONS if self.link is not None else ACTIONS[:-1])
        entry: dict[str, Any] = {"at_iteration": choices.below(30), "action": action}
        if action in ("suspend", "cancel"):
            entry["request"] = choices.below(REQUESTS)
        elif action == "shrink":
            entry |= {"pool": choices.pick(list(self.config.pools)), "pages": choices.below(4)}
        elif action == "lose":
            entry["copies"] = choices.pick(("loads", "stores"))
        if action not in ("shrink", "lose"):
            entry["times"] = choices.pick((1, 1, 2, 4))
        if len(self.disturbances) < 6:
            self.disturbances.append(entry)

    @rule(code=CODES)
    def tier(self, code: bytes) -> None:
        """A host tier below every pool, and perhaps a link to it on which copies take time."""
        choices = Packed(code)
        host = choices.pick((6, 12, 3, 24))
        sizes = {name: replace(size, host_pages=host) for name, size in self.config.pools.items()}
        self.config = replace(self.config, pools=sizes)
        if not self.kind and choices.chance(60):
            self.link = {"gib_per_s": 1, "latency_us": choices.pick(LINK_US)}

    @rule(code=CODES)
    def acceptance(self, code: bytes) -> None:
        choices = Packed(code)
        most = 1 + self.config.drafter.drafts
        self.forced = [1 + choices.below(most) for _ in range(1 + choices.below(3))]

    @rule(code=CODES)
    def crowd(self, code: bytes) -> None:
        """So many sessions are served at once; the others wait."""
        self.concurrency = 1 + Packed(code).below(4)

    # -- the file and its run ------------------------------------------------------------------------------------

    def values(self) -> dict[str, Any]:
        """The scenario as plain values; pools fit the largest request."""
        longest = max(self.lengths)
        output = max(turn["output"] for session in self.sessions for turn in session["turns"])
        large = RequestSpec(0, (Segment(0, longest),), output, 1)
        need = pools.needs(self.config, self.build, (large,), self.kind == "attention_dp")
        config = pools.fitted(self.config, need, self.slack)
        config = replace(config, limits=replace(config.limits, max_seq_len=max(LONGEST, longest + output)))
        values = yaml.safe_load(trace_yaml(Trace("from a machine", self.text, 0, "exhaustive", config, ())))
        del values["ops"]
        workload: dict[str, Any] = {"prefixes": self.prefixes, "sessions": self.sessions}
        if self.concurrency:
            workload["concurrency"] = self.concurrency
        values |= {"workload": workload, "acceptance": {"forced": self.forced}}
        disturbances = [
            entry for entry in self.disturbances if "request" not in entry or entry["request"] < self.requests
        ]
        if disturbances:
            values["disturbances"] = disturbances
        if self.link is not None:
            values["host_link"] = self.link
        if self.kind:
            values["workers"] = {"kind": self.kind, "count": 2}
        return values

    def scenario_text(self) -> str:
        """The scenario file."""
        return yaml.safe_dump(self.values(), sort_keys=False)

    def ended(self) -> None:
        """Serve what was built up, every invariant in full after every iteration."""
        if not hasattr(self, "config"):
            return
        tally = self.sums
        self.count()
        if self.over:
            return
        try:
            self.scenario = scenario = parse_scenario(self.scenario_text(), "machine.yaml", Path())
            result = self.result = run_scenario(scenario, self.build, check="exhaustive", record_ops=True)
        except InputError:
            tally.skips += 1
            return
        tally.steps += len(result.ops)
        tally.evaluations.update(result.checked)
        tally.features.update(reached(result))
        violation = broken(result, self.build.correct)
        if violation is not None:
            self.fail(violation, self._served(scenario, result))

    def program(self) -> Trace | None:
        """The ops of the run as a trace, or none of them before it has come to its end."""
        if self.scenario is not None and self.result is not None:
            return self._served(self.scenario, self.result)
        config: EngineConfig | None = getattr(self, "config", None)
        return config and Trace("machine", self.text, self.number, "exhaustive", config, ())

    def _served(self, scenario: Scenario, result: RunResult) -> Trace:
        """The ops of the run as a trace."""
        digests = (result.decision_digest, result.memory_digest)
        workers = scenario.topology(self.build)
        ops: Sequence[Any] = result.ops
        return Trace(
            "machine", self.text, self.number, "exhaustive", result.config, tuple(ops), *digests, workers=workers
        )


def broken(result: RunResult, correct: bool) -> Violation | None:
    """The first broken law of a run; a correct build that leaves requests behind has not gone on."""
    if result.violations:
        return result.violations[0]
    return Violation("PROGRESS", result.missed[0]) if correct and result.missed else None


def reached(result: RunResult) -> dict[str, int]:
    """The states that a run reached, by its counters; work that every run does is none."""
    names = [entry.name for entry in fields(result.totals) if entry.name not in WORK]
    counts = {name: getattr(result.totals, name) for name in names}
    return {WORDS.get(name, name.replace("_", " ")): count for name, count in counts.items() if count}
