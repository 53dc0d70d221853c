"""Rules and builds: what each build answers, how builds differ, and what the memory makes of each device rule."""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest

import model.rules.device as device
from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.config import Drafter, Limits
from model.drafter import KINDS
from model.faults import FAULTS, resolve_build
from model.geometry import Lifecycle
from model.invariants import INVARIANTS
from model.lookup import LookupTable
from model.ops import World
from model.rules.admission import Admission, Epoch, Rewind
from model.rules.base import Rules
from model.rules.claim import Claim
from model.rules.columns import Columns
from model.rules.device import (
    Addressing,
    Extent,
    Padding,
    Provisional,
    Rebase,
    TableUpload,
    Trim,
    Unbacked,
)
from model.rules.layout import Edge, Mirror, Pairing, Retention, Shape
from model.rules.lookahead import Lookahead
from model.rules.lookup import Lookup
from model.rules.publish import BranchWindow, Publish
from property_tests.model_core.helpers import codes, config, lifecycle, serve, spec, twin_of, world

# -- builds -----------------------------------------------------------------------------------------------------------


def differing(one: str, other: str) -> set[str]:
    """Rules on which two builds answer differently."""
    pair = (BUILDS[one].rules, BUILDS[other].rules)
    return {entry.name for entry in fields(Rules) if getattr(pair[0], entry.name) != getattr(pair[1], entry.name)}


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_names_its_answer_to_every_rule(name: str) -> None:
    build = BUILDS[name]
    named = build.rules.named()
    assert list(named) == [entry.name for entry in fields(Rules)]
    assert all(isinstance(answer, str) and answer for answer in named.values())
    assert (build.name, bool(build.summary), bool(build.provenance)) == (name, True, True)
    assert set(build.must_fire) <= INVARIANTS.keys()
    assert not (build.correct and build.must_fire)


def test_one_name_of_an_answer_means_one_answer() -> None:
    """The matrix of builds and rules shows names: what differs must look different."""
    answers: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for build in (*BUILDS.values(), *(fault.build for fault in FAULTS.values())):
        for rule, name in build.rules.named().items():
            answers[rule, name].add(getattr(build.rules, rule))
    assert {key: found for key, found in answers.items() if len(found) > 1} == {}


def test_no_two_builds_are_the_same() -> None:
    assert len({build.rules for build in BUILDS.values()}) == len(BUILDS)


@pytest.mark.parametrize(
    ("one", "other", "rules"),
    [
        ("unified", "unified-page", {"claim"}),
        ("paired-22", "paired-22-nobranch", {"claim", "publish"}),
        ("paired-22", "unified", {"budget", "layout", "publish", "retention"}),
        ("joint-backoff", "paired-22", {"budget", "claim", "publish", "retention"}),
        ("target-only", "target-21", {"claim", "publish", "slots"}),
        ("joint-18093", "joint-backoff", {"keys"}),
    ],
)
def test_builds_differ_in_what_the_changes_upstream_changed(one: str, other: str, rules: set[str]) -> None:
    assert differing(one, other) == rules


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("target-only", Shape.SEPARATE),
        ("joint-backoff", Shape.PAIRED),
        ("paired-22", Shape.PAIRED),
        ("paired-22-nobranch", Shape.PAIRED),
        ("unified-page", Shape.UNIFIED),
        ("unified", Shape.UNIFIED),
    ],
)
def test_a_layout_says_how_many_managers_there_are(name: str, shape: Shape) -> None:
    twin = twin_of(config(), name)
    assert BUILDS[name].rules.layout.shape is shape
    roles = ["target"] if shape is Shape.UNIFIED else ["target", "draft"]
    assert [manager.role for manager in twin.managers] == roles
    assert len(twin.columns) == 2
    assert twin.paired == (shape is not Shape.SEPARATE)


def test_the_default_build_is_the_head_and_is_correct() -> None:
    assert DEFAULT_BUILD == "unified"
    assert BUILDS[DEFAULT_BUILD].rules == Rules()
    assert BUILDS[DEFAULT_BUILD].correct


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_that_a_build_cannot_serve_runs_beside_it_and_is_told_so(kind: str) -> None:
    for name in ("paired-22", "unified", "joint-backoff"):
        twin = twin_of(config(drafter=Drafter(kind, 3, 8 if KINDS[kind].slot else None)), name)
        pairs = kind not in ("draft-target-one-model", "ngram")
        assert twin.paired == pairs
        assert bool(twin.unpaired_note) == (kind == "draft-target-one-model")


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_replaces_the_rules_that_it_names_and_no_other(name: str) -> None:
    fault = FAULTS[name]
    base, broken = BUILDS[fault.base].rules, fault.build.rules
    changed = {entry.name for entry in fields(Rules) if getattr(base, entry.name) != getattr(broken, entry.name)}
    assert changed == set(fault.rule.split(", ")) == {rule for rule, _ in fault.changes}
    assert BUILDS[fault.base].correct
    assert set(fault.fires) <= INVARIANTS.keys()
    assert resolve_build(f"fault:{name}") == fault.build
    assert (fault.build.correct, fault.build.must_fire) == (False, fault.fires)


def test_an_unknown_build_is_refused_with_those_that_exist() -> None:
    for name in ("nobody", "fault:nobody", "raw-keys"):
        with pytest.raises(KeyError, match=rf"no build '{name}'; builds: target-only, .*unified.*, or fault:NAME"):
            resolve_build(name)
    assert resolve_build("unified") is BUILDS["unified"]


# -- single answers ---------------------------------------------------------------------------------------------------


def test_retention_keeps_a_window_its_lookahead_and_for_slots_the_trailing_page() -> None:
    drafter, chained = lifecycle("draft", 8), lifecycle("draft", 8, lookahead=2)
    assert Retention().trail(drafter, KINDS["dflash"], 4) == 0
    assert Retention().trail(chained, KINDS["mtp"], 4) == 2
    assert Retention(pages=1).trail(drafter, KINDS["dflash"], 4) == 4
    assert Retention(pages=1).trail(chained, KINDS["mtp"], 4) == 2  # nothing trails without a slot
    assert Retention(lookahead=False).trail(chained, KINDS["mtp"], 4) == 0


def test_slots_pair_on_pages_that_are_a_power_of_two() -> None:
    pairing, drafter = Pairing(), Drafter("dflash", 3, 8)
    assert [pairing.allows(KINDS["dflash"], drafter, page) for page in (4, 6, 128)] == [True, False, True]
    assert pairing.allows(KINDS["eagle3"], Drafter("eagle3", 3), 6)
    assert not pairing.allows(KINDS["draft-target-one-model"], Drafter("draft-target-one-model", 3), 4)
    assert Pairing(always=True).allows(KINDS["draft-target-one-model"], Drafter("draft-target-one-model", 3), 6)
    assert not Pairing(always=True).allows(KINDS["ngram"], Drafter("ngram", 3), 4)


def test_a_mirror_is_told_its_history_where_it_covers_it_or_hides_it() -> None:
    assert Mirror().hint(KINDS["dflash"], 32, 0) == 32  # first seen past 0: behind a base
    assert Mirror().hint(KINDS["pard"], 32, 0) == 0
    assert Mirror().hint(KINDS["pard"], 32, 40) == 32
    assert Mirror().hint(KINDS["eagle3"], 32, 40) == 0  # a separate draft engine keeps its own cursor
    assert Mirror(history=False).hint(KINDS["dflash"], 32, 40) == 0


def test_a_rewind_gives_back_what_was_recorded_and_not_the_padded_width() -> None:
    assert Rewind().surplus(grown=3, committed=1, padded=8) == 2
    assert Rewind(recorded=False).surplus(grown=3, committed=1, padded=8) == 7


@pytest.mark.parametrize(("accepted", "surplus"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2)])
def test_a_standalone_drafter_that_trims_its_rejected_entries_falls_behind(accepted: int, surplus: int) -> None:
    """O08 at K = 4: two entries behind in each rejecting round, and the entry that full acceptance needs is missing."""
    assert Trim.REJECTED.surplus(accepted, 4) == surplus
    assert Trim.ACCEPTED.surplus(accepted, 4) == 0


def test_a_table_has_columns_for_the_length_limit_and_the_rows_in_flight_behind_it() -> None:
    """X16: 8,193 columns for a million tokens in pages of 128; O56: 8 for a limit of 32 in pages of 4 are too few."""
    million = Limits(128, 88, 8192, 1_048_576, 128, extra_tokens=8)
    assert Columns.ROWS_IN_FLIGHT.count(million, 7) == 8193
    toy = Limits(4, 4, 32, 32, 4)
    assert (Columns.LENGTH_LIMIT.count(toy, 6), Columns.ROWS_IN_FLIGHT.count(toy, 6)) == (8, 14)


def test_a_row_grows_by_its_width_and_nothing_else() -> None:
    right = Admission()
    assert [right.growth(8, draft) for draft in (False, True)] == [8, 8]
    assert [Admission(charges_once=False).growth(8, draft) for draft in (False, True)] == [8, 16]
    assert Admission(grows_row=False).growth(8, draft=False) == 1
    assert (right.reached(23, 16, 4), Admission(counts_pages=False).reached(23, 16, 4)) == (23, 20)


def test_a_window_may_lie_across_one_page_more_than_it_fills() -> None:
    """O21, by brute force: pages of 8 and a window of 4 that advances by one token."""
    life = Lifecycle("draft", "draft", "draft", 4)
    most = max(life.live_blocks(history, history + 1, 8) for history in range(64))
    assert most == Admission().floor(life, 64, 1, 0, 8) == 2
    assert Admission(straddles=False).floor(life, 64, 1, 0, 8) == 1


@pytest.mark.parametrize(("edge", "position"), [(Edge.SETTLED, 8), (Edge.OPTIMISTIC, 12), (Edge.HIGHEST, 15)])
def test_a_window_is_kept_for_the_settled_position_whatever_is_in_flight(edge: Edge, position: int) -> None:
    """O19 and O23: 8 tokens settled, two rows of 4 in flight."""
    assert Retention(edge=edge).released_at(8, 4, 2) == position


def test_drafts_are_verified_in_the_epoch_that_proposed_them() -> None:
    assert [Epoch().may_verify(proposed, 3) for proposed in (3, 2, -1)] == [True, False, False]
    assert [Epoch(drops_drafts=False).may_verify(proposed, 3) for proposed in (3, 2, -1)] == [True, True, False]


def test_an_n_gram_drafter_reads_each_request_from_its_first_token() -> None:
    """O09: 20 tokens, then 8 in the same slot."""
    for rule, found in ((Lookup.FROM_START, (2, 8)), (Lookup.FROM_WATERMARK, (1, 20))):
        table = LookupTable(1)
        for owner, length in ((1, 20), (2, 8)):
            table.bind(0, rule)
            table.read(0, owner, length)
        assert (table.reader[0], table.watermark[0]) == found


def test_branch_windows_are_published_by_policy() -> None:
    policies = list(config().policy.__class__)
    published = {
        rule: [Publish(branch=rule).publishes_branch(policy) for policy in policies[:3]] for rule in BranchWindow
    }
    assert published == {
        BranchWindow.NEVER: [False, False, False],
        BranchWindow.ALL_REUSABLE: [True, False, False],
        BranchWindow.ALWAYS: [True, True, True],
    }


@pytest.mark.parametrize(
    ("claim", "kind"),
    [
        (Claim(0, fresh=False), "none"),
        (Claim(0, fresh=True), "none"),
        (Claim(8, fresh=False), "joint"),
        (Claim(8, fresh=True), "fresh"),
        (Claim(0, fresh=True, branch=12), "branch"),
    ],
)
def test_a_claim_is_of_one_kind(claim: Claim, kind: str) -> None:
    assert claim.kind == kind


# -- rules that the device carries out --------------------------------------------------------------------------------


class Member(NamedTuple):
    """A scenario in which one answer of a device rule shows: what breaks with it, and where a stray write lands."""

    rules: dict[str, Any]
    fires: str | None
    page: int | None = None


NO_BLOCK_PAGES = {"admission": Admission("no-block-pages", covers_block=False)}
MEMBERS: dict[enum.Enum, Member] = {
    Extent.LAST_BACKED: Member({}, None),
    Extent.COUNT: Member({}, "OWN"),
    Unbacked.GUARD: Member(NO_BLOCK_PAGES, "OWN", -1),
    Unbacked.PAGE_ZERO: Member(NO_BLOCK_PAGES, "OWN", 0),
    Provisional.REWRITTEN: Member({}, None),
    Provisional.KEPT: Member({}, "INIT"),
    TableUpload.PER_STEP: Member({}, None),
    TableUpload.SHARED_BUFFER: Member({}, "MAP"),
    Rebase.BOTH: Member({}, None),
    Rebase.READS: Member({}, "OWN"),
    Rebase.WRITES: Member({}, "WINDOW"),
    Addressing.TABLE: Member({}, None),
    Addressing.ADJACENT: Member({}, "OWN"),
    Trim.ACCEPTED: Member({}, None),
    Trim.REJECTED: Member({}, "FRONT"),
    Padding.SCRATCH: Member({}, None),
    Padding.LAST_CELL: Member({}, "OWN"),
    Padding.STALE_ROW: Member({}, "OWN"),
    Padding.REQUEST_SLOT: Member({}, "STATE"),
    Lookahead.PROMPT: Member({}, None),
    Lookahead.PLACEHOLDER: Member({}, "KEY"),
}
RULE_OF: dict[type[enum.Enum], str] = {
    Extent: "extent",
    Unbacked: "unbacked",
    Provisional: "provisional",
    TableUpload: "table",
    Rebase: "rebase",
    Addressing: "addressing",
    Trim: "trim",
    Padding: "padding",
    Lookahead: "lookahead",
}


DRAFTERS: dict[type[enum.Enum], Drafter] = {
    Lookahead: Drafter("mtp", 3, None, 2),
    Trim: Drafter("draft-target-one-model", 4),
}


def played(member: enum.Enum) -> World:
    """A repeated prompt and its neighbours, with DFlash or the drafter that the rule is about."""
    rules = {**MEMBERS[member].rules, RULE_OF[type(member)]: member}
    build = Build("device", replace(BUILDS["paired-22"].rules, **rules), "a device rule", "here", False)
    drafter = DRAFTERS.get(type(member), Drafter("dflash", 7, 8))
    graphs = (4,) if isinstance(member, Padding) else ()
    serving = world(config(drafter=drafter, pages=200, draft_pages=200, graph_batches=graphs), build)
    prompt = list(range(10, 50))
    serve(serving, spec(0, prompt, 20))
    if isinstance(member, Rebase):
        serving.engine.twin.pools["draft"].evict_down_to(0)  # so that the repeat starts behind a base
    last = 3 if graphs else 9  # ends before its neighbours, so that rows are padded where it was
    serve(serving, spec(1, [*prompt[:4], 1, 2, 3, 4], 12), spec(2, prompt, 12), spec(3, 5, last), accepted=3)
    return serving


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: f"{type(member).__name__}.{member.name}")
def test_the_memory_carries_out_every_answer_of_a_device_rule(member: enum.Enum) -> None:
    serving, expected = played(member), MEMBERS[member]
    if expected.fires is None:
        assert codes(serving) == set()
        return
    assert expected.fires in codes(serving)
    if expected.page is not None:
        strays = [violation for violation in serving.violations if "unbacked entry" in violation.message]
        assert {violation.page for violation in strays} == {expected.page}


def test_no_answer_of_a_device_rule_is_left_out() -> None:
    enums = [kind for kind in vars(device).values() if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    assert {kind for kind in enums if len(kind)} | {Lookahead} == RULE_OF.keys()
    assert MEMBERS.keys() == {member for kind in RULE_OF for member in kind}
    for kind, rule in RULE_OF.items():
        runs = [played(member) for member in kind]
        found = {(run.memory_digest(), tuple(str(violation) for violation in run.violations)) for run in runs}
        assert len(found) == len(kind), rule
