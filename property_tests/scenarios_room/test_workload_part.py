"""From the workload part of a scenario to sessions: what is shared, where prompts branch, what stays the same."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from model.config import Scope
from model.tokens import prompt_tokens
from property_tests.scenarios_room.helpers import parse
from scenarios.workload import Session, Workload, prompt_lengths

VOCABULARY = 4096


def first_prompt(session: Session) -> NDArray[np.uint32]:
    return prompt_tokens(session.turns[0].append, VOCABULARY)


def shared_tokens(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> int:
    """Length of the common prefix, token by token."""
    length = min(len(one), len(other))
    different = np.nonzero(one[:length] != other[:length])[0]
    return int(different[0]) if len(different) else length


def workload(text: str, seed: int = 0) -> Workload:
    return parse(f"seed: {seed}\nworkload:\n{text}").workload()


BRANCHES = """\
  prefixes: {system: 20}
  sessions:
    - {name: whole, prompt: system, output: 1}
    - {name: copy, copies: 20, prompt: [system, 6], output: 1}
    - {name: early, copies: 20, prompt: [{prefix: system, tokens: 11}, 6], output: 1}
"""


def test_prompts_branch_exactly_where_the_file_says() -> None:
    prompts = {session.name: first_prompt(session) for session in workload(BRANCHES).sessions}
    for (one, left), (other, right) in itertools.combinations(prompts.items(), 2):
        expected = 20 if {one[:4], other[:4]} <= {"whol", "copy"} else 11
        assert shared_tokens(left, right) == expected, (one, other)


def test_ids_follow_from_the_seed_alone() -> None:
    assert workload(BRANCHES) == workload(BRANCHES)
    one, other = workload(BRANCHES, 1).sessions[1], workload(BRANCHES, 2).sessions[1]
    assert shared_tokens(first_prompt(one), first_prompt(other)) < 3


def test_a_session_added_at_the_end_changes_no_other_prompt() -> None:
    before = workload(BRANCHES).sessions
    after = workload(BRANCHES + "    - {name: late, prompt: 9, output: 1}\n").sessions
    assert after[:-1] == before


TURNS = """\
  concurrency: 2
  sessions:
    - name: chat
      scope: {salt: a}
      arrival_s: 2
      copies: 3
      every_s: 0.5
      turns:
        - {prompt: 10, output: 4}
        - {append: 3, output: 2, think_s: 1.5, repeat: 2}
        - {prompt: [7, {ids: [1, 2]}], output: 1, at_s: 9}
"""


def test_turns_grow_by_the_output_and_what_is_appended() -> None:
    found = workload(TURNS)
    assert found.concurrency == 2
    assert found.requests == 12
    assert [session.name for session in found.sessions] == ["chat-0", "chat-1", "chat-2"]
    assert [session.arrival_s for session in found.sessions] == [2.0, 2.5, 3.0]
    session = found.sessions[0]
    assert session.scope == Scope(salt="a")
    assert prompt_lengths(session) == [10, 10 + 4 + 3, 17 + 2 + 3, 9]
    assert [turn.whole for turn in session.turns] == [False, False, False, True]
    assert [turn.think_s for turn in session.turns] == [0.0, 1.5, 1.5, 0.0]
    assert session.turns[3].at_s == 9
    assert session.turns[1].append != session.turns[2].append


def test_a_sub_agent_inherits_the_length_of_its_parents_prompt() -> None:
    text = """\
  sessions:
    - {name: agent, prompt: 200, output: 10}
    - {name: child, parent: {session: agent}, inherit: true, turns: [{append: 40, output: %d}]}
"""
    assert workload(text % 6).sessions[1].parent == ("agent", 0)
    try:
        workload(text % 7)
    except ValueError as error:
        assert "found 250 + 7 tokens: it needs 257 tokens, max_seq_len is 256 (session child, turn 0)" in str(error)
    else:
        raise AssertionError("a request of 257 tokens passed a limit of 256")


def test_literal_ids_are_taken_as_they_are() -> None:
    text = """\
  prefixes: {block: {ids: [10, 11, 12, 13]}}
  sessions:
    - {prompt: [{prefix: block, tokens: 3}, {ids: [5]}, {stream: 18446744073709551615, tokens: 2, first: 7}], output: 1}
"""
    prompt = first_prompt(workload(text).sessions[0])
    assert prompt[:5].tolist() == [10, 11, 12, 5, 7]
    assert len(prompt) == 6


def test_ops_are_those_of_the_model() -> None:
    from model.ops import Cancel, Dispatch, Fail, Settle, Shrink, Submit, Suspend

    text = """\
prefixes: {p: 5}
ops:
  - {op: submit, request: 3, prompt: [p, 2], output: 4, conversation: 1, scope: {adapter: a}, priority: 2}
  - {op: submit, request: 4, prompt: p, output: 4, output_seed: 99}
  - {op: dispatch}
  - {op: dispatch, skip: true}
  - {op: settle, accepted: [1, 3]}
  - {op: cancel, request: 3}
  - {op: suspend, request: 4}
  - {op: fail}
  - {op: shrink, pool: draft, pages: 0}
"""
    first, second, *rest = parse(text).ops() or []
    assert isinstance(first, Submit) and isinstance(second, Submit)
    assert (first.spec.request_id, first.spec.conversation, first.spec.priority) == (3, 1, 2)
    assert first.spec.scope == Scope(adapter="a")
    assert first.spec.prompt[0] == second.spec.prompt[0]
    assert second.spec.output_seed == 99
    assert rest == [
        Dispatch(),
        Dispatch(True),
        Settle((1, 3)),
        Cancel(3),
        Suspend(4),
        Fail(),
        Shrink("draft", 0),
    ]
