"""A build with rules of the user's own: how it is named, what is refused, and that the laws judge it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model.builds import BUILDS
from model.rules.device import Extent
from property_tests.laws.worlds import random_world
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.rulespec import find, text_of

ROOT = Path(__file__).resolve().parents[2]
WRONG = "unified+claim=docs.my_rule:MyClaim"
RULES = """\
from model.rules.claim import TargetOnly, WindowedPair
from model.rules.device import Extent

class Half:
    name = "half"
    def decide(self, view): ...

class Nameless(WindowedPair):
    name = property(lambda self: 7)
    def __init__(self): ...

class Needy(WindowedPair):
    def __init__(self, depth): ...

class Deaf(WindowedPair):
    def decide(self): ...

class Mute(WindowedPair):
    decide = 3

class Family:
    Eldest = TargetOnly

made = TargetOnly("ready-made")
narrow = Extent.COUNT
"""


@pytest.fixture(autouse=True)
def own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules of rules, none of which was imported before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("own_rules", "own_wreck", "own_lame"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own_rules.py").write_text(RULES)
    (tmp_path / "own_wreck.py").write_text("def build():\n    raise RuntimeError('no\\nrules')\nbuild()\n")
    (tmp_path / "own_lame.py").write_text("import own_other_leg\n")
    return tmp_path


def test_a_rule_from_the_current_directory_replaces_one_of_a_build() -> None:
    text = "paired-22+claim=own_rules:made+extent=own_rules:narrow"
    build = find(text)
    assert (build.name, build.correct, build.must_fire) == (text, False, ())
    assert build.rules.named() == BUILDS["paired-22"].rules.named() | {
        "claim": "ready-made",
        "extent": Extent.COUNT.value,
    }
    assert text_of("paired-22", ("claim=own_rules:made", "extent=own_rules:narrow")) == text
    assert text_of("unified", ()) == "unified"
    assert find("unified") is BUILDS["unified"]


def test_a_class_is_made_and_may_stand_inside_another() -> None:
    assert find("unified+claim=own_rules:Family.Eldest").rules.claim.name == "target-only"
    fault = find("fault:claim-plus2+extent=own_rules:narrow")
    assert fault.rules.claim == find("fault:claim-plus2").rules.claim
    assert fault.must_fire == ()


REFUSED = {
    "unifed+claim=own_rules:made": "expected a build or fault:NAME (did you mean 'unified'?), found 'unifed'",
    "fault:claim+claim=own_rules:made": "expected a fault (did you mean 'claim-plus2'?), found 'claim'",
    "unified+claim": "expected RULE=module:Class, found 'claim'",
    "unified+claim=own_rules": "expected RULE=module:Class, found 'claim=own_rules'",
    "unified+": "expected RULE=module:Class, found ''",
    "unified+klaim=own_rules:made": "expected the name of a rule (did you mean 'claim'?), found 'klaim'",
    "unified+claim=own_rules:made+claim=own_rules:made": "expected each rule once, found claim twice",
    "unified+claim=own_roles:made": "expected a module for own_roles:made, found none of the name own_roles in the "
    "current directory or on sys.path",
    "unified+claim=own_rules.deep:made": "expected a module for own_rules.deep:made, found none of the name own_rules.",
    "unified+claim=own_lame:made": "expected own_lame to be imported, found: ModuleNotFoundError: No module named ",
    "unified+claim=own_wreck:made": "own_wreck to be imported, found: RuntimeError: no rules (own_wreck.py, line 2)",
    "unified+claim=own_rules:mode": "expected own_rules:mode to exist (did you mean 'made'?), found no 'mode' in",
    "unified+claim=own_rules:Needy": "expected own_rules:Needy to be made without arguments, found: TypeError: ",
    "unified+claim=own_rules:Half": "expected own_rules:Half to have name, decide, promise, window_valid (asked of the "
    "rule claim), found no promise, window_valid",
    "unified+claim=own_rules:Nameless": "expected the name of own_rules:Nameless to be text, found 7",
    "unified+claim=own_rules:Deaf": "expected own_rules:Deaf.decide(view), found own_rules:Deaf.decide(): too many",
    "unified+claim=own_rules:Mute": "expected own_rules:Mute.decide(view), found 3",
    "unified+budget=own_rules:made": "(asked of the rule budget), found no host",
    "unified+extent=own_rules:made": "expected own_rules:made to be one of Extent.LAST_BACKED, Extent.COUNT (the",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_used_is_told_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as refused:
        find(text)
    assert REFUSED[text] in str(refused.value)
    assert str(refused.value).startswith("build: expected")
    assert "\n" not in str(refused.value)


def test_a_scenario_file_names_rules_and_is_told_the_line_of_those_it_cannot() -> None:
    text = "geometry: tiny\nbuild: BUILD\nworkload: {sessions: [{prompt: 9, output: 3}]}\n"
    good = text.replace("BUILD", "unified+claim=own_rules:made")
    assert parse_scenario(good, "own.yaml", Path()).build == "unified+claim=own_rules:made"
    for place, own in (("own.yaml:2: build", text), ("own.yaml:4: builds[0]", f"{text}builds: [BUILD]\n")):
        if "builds" in own:
            own = own.replace("BUILD", "unified", 1)
        with pytest.raises(InputError, match=r"found no 'mode'") as refused:
            parse_scenario(own.replace("BUILD", "unified+claim=own_rules:mode"), "own.yaml", Path())
        assert str(refused.value).startswith(place)


def test_the_rule_in_the_documentation_is_wrong_and_its_build_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(BUILDS, WRONG, find(WRONG))
    broken = []
    for seed in range(6):
        for build in (WRONG, "unified"):
            world, driver = random_world(seed, build)
            driver.run()
            broken += [(build, violation.code) for violation in world.violations]
    assert {build for build, _ in broken} == {WRONG}
    assert (WRONG, "KEY") in broken
