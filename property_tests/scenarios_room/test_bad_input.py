"""What bad input gets: one line that names the file, the line and the field, and says what was expected."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from property_tests.scenarios_room.bad_values import VALUES
from property_tests.scenarios_room.helpers import ONE_REQUEST, TINY, parse
from scenarios.errors import InputError, quote
from scenarios.loader import load_scenario, parse_scenario, trace_scenario

# Each case: text after the two lines of TINY, the line and the field that are wrong, words of the message.
CASES = {
    "unknown field": ("page_size: 4\n" + ONE_REQUEST, 3, "page_size", "unknown 'page_size'"),
    "misspelt field": ("limits: {page_sise: 4}\n" + ONE_REQUEST, 3, "limits.page_sise", "did you mean 'page_size'?"),
    "misspelt field in a list": (
        "workload:\n  sessions:\n    - prompt: 9\n      outputs: 4\n",
        6,
        "workload.sessions[0].outputs",
        "did you mean 'output'?",
    ),
    "misspelt field of a turn": (
        "workload:\n  sessions:\n    - turns:\n        - {prompt: 9, outptu: 4}\n",
        6,
        "workload.sessions[0].turns[0].outptu",
        "did you mean 'output'?",
    ),
    "duplicate key": ("seed: 1\nseed: 2\n" + ONE_REQUEST, 4, "seed", "each key once"),
    "broken YAML": ("limits: {page_size: 4\n", 4, "", "expected YAML"),
    "tab": ("limits:\n\tpage_size: 4\n", 4, "", "expected YAML, found character that cannot"),
    "colon in a value": ("summary: a: b\n" + ONE_REQUEST, 3, "", "text that is none: mapping values are not allowed"),
    "prefix where there is none": (
        "workload: {sessions: [{prompt: system, output: 4}]}\n",
        3,
        "workload.sessions[0].prompt",
        "of which there are none here, found 'system'",
    ),
    "name with a slash": ("name: a/b\n" + ONE_REQUEST, 3, "name", "a name without slashes"),
    "name above the folder": ("name: ..\n" + ONE_REQUEST, 3, "name", "a name without slashes"),
    "hidden name": ("name: .x\n" + ONE_REQUEST, 3, "name", "a name without slashes"),
    "python object": ("seed: !!python/object:os.system {}\n", 3, "seed", "expected plain YAML"),
    "python call": ("seed: !!python/name:os.system x\n", 3, "", "expected YAML"),
    "key that is no name": ("? [1]\n: 2\n", 3, "", "expected a name as key"),
    "endless alias": ("limits: &a {x: *a}\n", 3, "limits.x.x.x", "levels"),
    "wrong type": ("seed: many\n" + ONE_REQUEST, 3, "seed", "expected an integer, found 'many'"),
    "text for a number": ("seed: '3'\n" + ONE_REQUEST, 3, "seed", "expected an integer, found '3'"),
    "fraction": ("seed: 1.5\n" + ONE_REQUEST, 3, "seed", "expected an integer"),
    "yes for a number": ("seed: yes\n" + ONE_REQUEST, 3, "seed", "expected an integer, found True"),
    "not a number": ("cost: {host_ms: .nan}\n" + ONE_REQUEST, 3, "cost.host_ms", "a finite number"),
    "list for a mapping": ("limits: [4]\n" + ONE_REQUEST, 3, "limits", "expected a mapping"),
    "negative size": (
        "limits: {max_batch: -1}\n" + ONE_REQUEST,
        3,
        "limits.max_batch",
        "expected at least 1, found -1",
    ),
    "negative pages": ("pools: {target: -5}\n" + ONE_REQUEST, 3, "pools.target", "at least 1"),
    "page size zero": (
        "limits:\n  page_size: 0\n" + ONE_REQUEST,
        4,
        "limits.page_size",
        "expected at least 1, found 0",
    ),
    "negative prompt": ("workload: {sessions: [{prompt: -3, output: 4}]}\n", 3, "workload.sessions[0]", "at least 1"),
    "negative arrival": (
        "workload: {sessions: [{prompt: 3, output: 4, arrival_s: -1}]}\n",
        3,
        "workload.sessions[0].arrival_s",
        "at least 0",
    ),
    "no source": ("seed: 1\n", 1, "", "exactly one of workload, ops, trace, found none"),
    "two sources": (ONE_REQUEST + "trace: t.jsonl\n", 1, "", "found workload, trace"),
    "two workloads": (
        "workload:\n  groups: {}\n  agentic: {}\n",
        3,
        "workload",
        "exactly one of sessions, groups, agentic, layers, branches, trace, found groups, agentic",
    ),
    "no output": ("workload:\n  sessions:\n    - prompt: 9\n", 5, "workload.sessions[0]", "prompt with output"),
    "no output of a turn": (
        "workload:\n  sessions:\n    - turns:\n        - prompt: 9\n",
        6,
        "workload.sessions[0].turns[0].output",
        "expected a value, found none",
    ),
    "unknown kind": ("drafter: {kind: dflush}\n" + ONE_REQUEST, 3, "drafter.kind", "did you mean 'dflash'?"),
    "unknown policy": ("policy: all_reuseable\n" + ONE_REQUEST, 3, "policy", "did you mean 'all_reusable'?"),
    "unknown action": (
        ONE_REQUEST + "disturbances: [{at_s: 1, action: pause}]\n",
        4,
        "disturbances[0].action",
        "expected one of suspend, cancel, skip, fail, shrink",
    ),
    "unknown op": ("ops: [{op: sumbit}]\n", 3, "ops[0]", "did you mean 'submit'?"),
    "op without kind": ("ops: [{request: 1}]\n", 3, "ops[0]", "'op'"),
    "unknown prefix": (
        "workload:\n  prefixes: {system: 9}\n  sessions:\n    - {prompt: [sytem, 2], output: 4}\n",
        6,
        "workload.sessions[0].prompt[0]",
        "did you mean 'system'?",
    ),
    "prefix too short": (
        "workload:\n  prefixes: {system: 9}\n  sessions:\n    - {prompt: {prefix: system, tokens: 10}, output: 4}\n",
        6,
        "workload.sessions[0].prompt[0]",
        "at most the 9 tokens",
    ),
    "token beyond the vocabulary": (
        "workload: {sessions: [{prompt: {ids: [4096]}, output: 4}]}\n",
        3,
        "workload.sessions[0].prompt[0]",
        "below the vocabulary of 4096, found 4096",
    ),
    "session twice": (
        "workload:\n  sessions:\n    - {name: a, prompt: 9, output: 4}\n    - {name: a, prompt: 9, output: 4}\n",
        6,
        "workload.sessions[1].name",
        "found 'a' again",
    ),
    "unknown parent": (
        "workload:\n  sessions:\n    - {name: a, prompt: 9, output: 4, parent: {session: b}}\n",
        5,
        "workload.sessions[0].parent",
        "found 'b'",
    ),
    "parent without that turn": (
        "workload:\n  sessions:\n    - {name: a, prompt: 9, output: 4}\n"
        "    - {name: b, prompt: 9, output: 4, parent: {session: a, turn: 1}}\n",
        6,
        "workload.sessions[1].parent",
        "expected a turn below 1, found 1",
    ),
    "inherit without parent": (
        "workload: {sessions: [{prompt: 9, output: 4, inherit: true}]}\n",
        3,
        "workload.sessions[0].inherit",
        "only beside parent",
    ),
    "pause and time": (
        "workload: {sessions: [{turns: [{prompt: 3, output: 1, think_s: 1, at_s: 2}]}]}\n",
        3,
        "workload.sessions[0].turns[0]",
        "think_s only beside a turn without at_s",
    ),
    "unknown pool": ("pools: {tagret: 9}\n" + ONE_REQUEST, 3, "pools.tagret", "did you mean 'target'?"),
    "pages and bytes": (
        "pools: {target: 9}\nmemory: {device: 1 GiB}\n" + ONE_REQUEST,
        1,
        "",
        "expected either pools or memory, found both",
    ),
    "host link without a host tier": (
        "host_link: 50\n" + ONE_REQUEST,
        3,
        "host_link",
        "a pool with host_pages, found none",
    ),
    "copies of no kind": (
        ONE_REQUEST + "disturbances: [{at_s: 1, action: lose}]\n",
        4,
        "disturbances[0]",
        "expected lose with copies, found copies missing",
    ),
    "unknown unit": ("memory: {device: 1 GB}\n" + ONE_REQUEST, 3, "memory.device", "KiB, MiB, GiB, TiB"),
    "memory too small": ("memory: {device: 64}\n" + ONE_REQUEST, 3, "memory", "that the pools fit in"),
    "window beyond its pool": (
        "drafter: {window: 100}\npools: {draft: 20}\n" + ONE_REQUEST,
        4,
        "pools.draft.device_pages",
        "at least 25 pages for the window of 100 tokens (draft, pages of 4), found 20",
    ),
    "request beyond the limit": (
        "limits: {max_seq_len: 16}\nworkload:\n  sessions:\n    - {prompt: 9, output: 4}\n"
        "    - {prompt: 9, output: 8}\n",
        7,
        "workload.sessions[1]",
        "build unified can serve, found 9 + 8 tokens: it needs 17 tokens, max_seq_len is 16 (session s1, turn 0)",
    ),
    "request beyond the pool": (
        "pools: {target: 3}\nworkload:\n  sessions:\n    - {prompt: 9, output: 5}\n",
        6,
        "workload.sessions[0]",
        "found 9 + 5 tokens: it needs up to 6 pages of pool 'target', which has 3 (session s0, turn 0)",
    ),
    "later turn beyond the limit": (
        "limits: {max_seq_len: 40}\nworkload:\n  sessions:\n    - turns:\n"
        "        - {prompt: 9, output: 4}\n        - {append: 20, output: 8}\n",
        8,
        "workload.sessions[0].turns[1]",
        "found 33 + 8 tokens: it needs 41 tokens, max_seq_len is 40 (session s0, turn 1)",
    ),
    "prompt beyond one pass": (
        "limits: {chunked_prefill: false, max_num_tokens: 8}\n" + ONE_REQUEST,
        4,
        "workload.sessions[0]",
        "it prefills 9 tokens at once, max_num_tokens is 8",
    ),
    "budget below a chunk": (
        "limits: {max_num_tokens: 6}\n" + ONE_REQUEST,
        3,
        "limits.max_num_tokens",
        "K drafts (7), found 6",
    ),
    "generated request beyond the limit": (
        "limits: {max_seq_len: 100}\nworkload: {groups: {requests: 4, shared: 96, private: 4, output: 4}}\n",
        4,
        "workload.groups",
        "max_seq_len is 100 (session r0, turn 0)",
    ),
    "agentic arithmetic": (
        "workload: {agentic: {new_tokens: 100}}\n",
        3,
        "workload.agentic.new_tokens",
        "expected at least",
    ),
    "agentic requests": (
        "workload: {agentic: {system_requests: 525}}\n",
        3,
        "workload.agentic.system_requests",
        "expected 40 to 519",
    ),
    "more accepted than drafted": (ONE_REQUEST + "acceptance: {forced: 5}\n", 4, "acceptance.forced", "K + 1 = 4"),
    "longer than drafted": (ONE_REQUEST + "acceptance: {length: 4.5}\n", 4, "acceptance.length", "K + 1 = 4"),
    "rates for another K": (
        ONE_REQUEST + "acceptance: {bernoulli: [0.5, 0.5]}\n",
        4,
        "acceptance.bernoulli",
        "or 3 (K)",
    ),
    "rate above one": (ONE_REQUEST + "acceptance: {bernoulli: [1.5]}\n", 4, "acceptance.bernoulli[0]", "at most 1"),
    "two acceptances": (ONE_REQUEST + "acceptance: {forced: 1, length: 2.0}\n", 4, "acceptance", "exactly one of"),
    "loss without coverage": (ONE_REQUEST + "acceptance: {forced: 1, loss: 0.1}\n", 4, "acceptance", "beside coverage"),
    "disturbance without its request": (
        ONE_REQUEST + "disturbances: [{at_s: 1, action: cancel}]\n",
        4,
        "disturbances[0]",
        "expected cancel with request, found request missing",
    ),
    "disturbance of nobody": (
        ONE_REQUEST + "disturbances:\n  - {at_s: 1, action: cancel, request: 1}\n",
        5,
        "disturbances[0].request",
        "one of 1 requests (from 0), found 1",
    ),
    "disturbance of no pool": (
        ONE_REQUEST + "disturbances: [{at_s: 1, action: shrink, pool: daft, pages: 1}]\n",
        4,
        "disturbances[0].pool",
        "did you mean 'draft'?",
    ),
    "expectation of nobody": (
        ONE_REQUEST + "expect:\n  requests:\n    0-1: {cached_tokens: 0}\n",
        5,
        "expect.requests",
        "one of 1 requests (from 0), found 1",
    ),
    "expectation twice": (
        ONE_REQUEST + "expect: {requests: {0: {cached_tokens: 0}, 0-0: {cached_tokens: 0}}}\n",
        4,
        "expect",
        "found request 0 twice",
    ),
    "expectation of no request id": (
        ONE_REQUEST + "expect: {requests: {first: {cached_tokens: 0}}}\n",
        4,
        "expect",
        "request ids as 3 or as 2-5, found 'first'",
    ),
    "unknown counter": (
        ONE_REQUEST + "expect: {totals: {prefiled_tokens: 9}}\n",
        4,
        "expect.totals.prefiled_tokens",
        "did you mean 'prefilled_tokens'?",
    ),
    "bound of both kinds": (
        ONE_REQUEST + "expect: {totals: {iterations: {value: 1, min: 1}}}\n",
        4,
        "expect.totals.iterations",
        "either value or min and max",
    ),
    "more requests than memory": (
        "workload: {sessions: [{copies: 1000000, turns: [{prompt: 1, output: 1, repeat: 9}]}]}\n",
        3,
        "workload.sessions[0]",
        "at most 2,000,000 requests, found 9,000,000",
    ),
    "more pages than memory": (
        "pools: {target: 5000000}\n" + ONE_REQUEST,
        3,
        "pools.target",
        "at most 4,194,304 pages",
    ),
    "endless range": (
        ONE_REQUEST + "expect: {requests: {0-99999999: {cached_tokens: 0}}}\n",
        4,
        "expect",
        "a range of 1 to 1000000 requests",
    ),
    "range backwards": (ONE_REQUEST + "expect: {requests: {3-2: {cached_tokens: 0}}}\n", 4, "expect", "found '3-2'"),
    "brace in a value": ("seed: '{x}'\n" + ONE_REQUEST, 3, "seed", "found '{x}'"),
    **VALUES,
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_scenario_gets_one_line_with_its_place(case: str) -> None:
    text, line, field, words = CASES[case]
    with pytest.raises(InputError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"s.yaml:{line}: ")
    assert caught.value.field.startswith(field)
    assert words in message
    assert message.count("expected") >= 1 and ("found" in message)


def test_an_unknown_preset_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:2: geometry\.preset: expected .* \(did you mean 'tiny-eagle3'\?\)"):
        parse(ONE_REQUEST, "summary: x\ngeometry: tiny-eagle\n")


def test_explicit_layers_must_say_everything_that_a_preset_would() -> None:
    target = "geometry:\n  target: [{name: t, layers: 1, kv_heads: 1, head_dim: 8}]\n"
    layers = target + "  draft: [{name: d, page_bytes: 64}]\n"
    drafter, limits = "drafter: {kind: pard, drafts: 2}\n", "limits: {page_size: 4}\n"
    pools = "pools: {target: 9, draft: 9}\n"
    for head, field in (
        (layers + limits + pools, "drafter"),
        (layers + drafter + pools, "limits.page_size"),
        (layers + drafter + limits, "pools"),
        (layers.replace("layers: 1, ", "") + drafter + limits + pools, "geometry.target[0]"),
        (layers.replace(", head_dim: 8", "") + drafter + limits + pools, "geometry.target[0]"),
        (target + drafter + limits + pools, "geometry"),
    ):
        with pytest.raises(InputError) as caught:
            parse(ONE_REQUEST, head)
        assert caught.value.field == field
    assert parse(ONE_REQUEST, layers + drafter + limits + pools).engine_config().drafter.drafts == 2


def test_fitted_page_bytes_exist_for_the_fitted_parallelism_only() -> None:
    head = "geometry: {preset: minimax-m3.1-flash-like, tensor_parallel: 8}\n"
    with pytest.raises(InputError, match=r"geometry\.tensor_parallel: expected one of 2, 4 .*found 8"):
        parse(ONE_REQUEST, head)


def test_the_first_problem_of_the_file_is_the_one_that_is_told() -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:3: seed"):
        parse("seed: -1\nlimits: {max_batch: 0}\n" + ONE_REQUEST)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: expected a scenario file"):
        load_scenario(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="expected a scenario file"):
        load_scenario(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_scenario(tmp_path / "bytes.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "[1, 2]\n", "just text\n"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:1: expected a mapping"):
        parse_scenario(text, "s.yaml", Path())


def test_a_trace_that_cannot_be_used_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of mooncake, mooncake-delta, aiperf"):
        trace_scenario("t.jsonl", "moncake")
    scenario = trace_scenario(tmp_path / "t.jsonl", "mooncake")
    with pytest.raises(InputError, match="expected a trace file"):
        scenario.workload()


def test_an_input_error_crosses_process_borders() -> None:
    error = InputError("a.yaml", 3, "seed", "expected\n a,  found b")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "a.yaml:3: seed: expected a, found b"


def test_a_name_with_line_breaks_is_told_in_one_line() -> None:
    assert str(InputError("a\nb", 3, "c\x1b\udcff", "expected ü")) == "a\\nb:3: c\\x1b\\udcff: expected ü"


def test_long_values_are_cut() -> None:
    assert len(quote("x" * 1000)) <= 60
    assert TINY.startswith("summary")
