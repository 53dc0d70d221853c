"""The naive oracle against itself, on random indexes: properties that no example has to be computed for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_records import RULES, Claimed, Dropped, Group, Published, Record, Rule, World

WINDOWS = st.none() | st.integers(1, 12)
RANDOM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # time is no property of an oracle


def tokens_of(number: int) -> tuple[int, ...]:
    """The binary digits of ``number`` behind the leading one, so that any number above 1 is a prompt."""
    return tuple(int(digit) for digit in bin(number)[3:])


TOKENS = st.integers(1, 24).flatmap(lambda length: st.integers(2**length, 2 ** (length + 1) - 1)).map(tokens_of)


@dataclass(frozen=True)
class Case:
    """A world, what is published in it (every page of some prompts, less some), a rule and a prompt that asks."""

    world: World
    whole: list[Record]
    index: list[Record]
    rule: Rule
    prompt: tuple[int, ...]

    def legal(self, world: World | None = None, history: list[Record] | None = None) -> set[int]:
        """The legal depths, in another world or after another history where one is given."""
        history = self.index if history is None else history
        return set(oracle.claimable(world or self.world, self.rule, history, self.prompt, "base"))

    def promised(self, history: list[Record]) -> int:
        """The depth that must be reached."""
        view = oracle.view(self.world, history, Claimed("B", self.prompt, "base", 0, 0))
        return oracle.promised(self.world, self.rule, view)


@st.composite
def cases(draw: st.DrawFn, target_windows: bool = True) -> Case:
    """Prompts of two token values, so that they share prefixes, in pages of 2 to 8 tokens."""
    size, lookahead = draw(st.sampled_from([2, 4, 8])), draw(st.integers(0, 3))
    target = Group("target", "target", draw(WINDOWS) if target_windows else None, draw(st.sampled_from([0, size])))
    groups = (target, Group("draft", "draft", draw(WINDOWS), draw(st.sampled_from([0, size])), lookahead))
    world = World(size, groups, one_tree=draw(st.booleans()))
    whole: list[Record] = []
    published = draw(st.lists(TOKENS, min_size=1, max_size=4))
    for number, tokens in enumerate(published):
        for group in groups:
            for first in range(0, len(tokens), size):
                cells = min(size, len(tokens) - first)
                known = tokens[: first + cells + group.lookahead]
                page = Published(number, group.name, number * 100 + first, 0, first, cells, known, "base")
                whole.append(page)
    lost = draw(st.sets(st.integers(0, len(whole) - 1), max_size=4))
    index = [page for number, page in enumerate(whole) if number not in lost]
    rule = draw(st.sampled_from(list(RULES.values())))
    start = draw(st.sampled_from(published))
    return Case(world, whole, index, rule, start[: draw(st.integers(0, len(start)))] + draw(TOKENS))


@RANDOM
@given(cases())
def test_more_published_pages_forbid_no_depth(case: Case):
    assert case.legal() <= case.legal(history=case.whole)


@RANDOM
@given(cases(), st.data())
def test_a_dropped_page_adds_no_depth(case: Case, data: st.DataObject):
    page = data.draw(st.sampled_from(case.whole))
    assert isinstance(page, Published)
    dropped = [*case.whole, Dropped(page.group, page.page, page.tenancy)]
    assert case.legal(history=dropped) <= case.legal(history=case.whole)


@RANDOM
@given(cases(), st.integers(1, 12), st.sampled_from([0, 1]))
def test_a_longer_window_adds_no_depth(case: Case, more: int, which: int):
    group = case.world.groups[which]
    longer = replace(group, window=None if group.window is None else group.window + more)
    groups = (longer, case.world.groups[1]) if which == 0 else (case.world.groups[0], longer)
    assert case.legal(replace(case.world, groups=groups)) <= case.legal()


@RANDOM
@given(cases(), st.integers(1, 3))
def test_a_longer_lookahead_adds_no_depth_that_draft_pages_serve(case: Case, more: int):
    case = replace(case, rule=RULES["joint-minimum"])
    target, draft = case.world.groups
    longer = replace(case.world, groups=(target, replace(draft, lookahead=draft.lookahead + more)))
    assert case.legal(longer) <= case.legal()


@RANDOM
@given(cases())
def test_the_read_bound_allows_one_depth_more_than_the_policy_at_most(case: Case):
    more = set(oracle.claimable(case.world, case.rule, case.index, case.prompt, "base", spare=1))
    assert case.legal() <= more
    assert len(more - case.legal()) <= 1


@RANDOM
@given(cases(target_windows=False))
def test_what_is_promised_is_legal(case: Case):
    assert case.promised(case.index) in case.legal()


@RANDOM
@given(cases(target_windows=False))
def test_where_nothing_was_dropped_the_promise_is_the_deepest_legal_depth_less_the_declared_slack(case: Case):
    """Except that a fresh mirror's own limit is not rounded to pages in what is legal: W + B - 1 below the match."""
    page, deepest = case.world.page, max(case.legal(history=case.whole))
    slack = case.world.lookahead
    slack += page if case.rule.drop else page - 1 if case.rule.boundary or case.rule.tail else 0
    window = case.world.groups[1].window
    if case.rule.draft == "window" and window is not None:
        slack = max(slack, case.world.lookahead + window + page - 1)
    assert case.promised(case.whole) >= deepest - slack


@RANDOM
@given(cases(target_windows=False))
def test_the_promise_itself_passes_both_verdicts_and_one_token_less_is_incomplete(case: Case):
    depth = case.promised(case.index)
    claims = [Claimed("B", case.prompt, "base", depth, draft) for draft in (depth, 0)]
    verdicts = [
        (oracle.sound(case.world, case.rule, case.index, c), oracle.complete(case.world, case.rule, case.index, c))
        for c in claims
    ]
    assert (None, None) in verdicts
    if depth:
        short = Claimed("B", case.prompt, "base", depth - 1, 0)
        said = oracle.complete(case.world, case.rule, case.index, short)
        assert said is not None and f"published pages serve {depth}" in said
