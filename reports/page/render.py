"""What stands on a page, and the HTML of it: one file without a reference to any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from reports.page.embedded import script_json
from reports.page.figures import Plot
from reports.stories import Told

_SCRIPTS = ("core.js", "tables.js", "timeline.js", "pagemap.js", "violations.js")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; the colour of the build at ``swatch`` stands before its label, ``beside`` behind it."""

    label: str
    numeric: bool = True
    swatch: int | None = None
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """``text`` with smaller words ``beside`` it; rows are sorted by ``value``, or by the text where there is none.

    ``tone`` is empty, ``good``, ``bad`` or ``warn``.
    """

    text: str
    value: float | None = None
    beside: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table under its own heading; ``id`` is its anchor, the first cell of a row heads it.

    One that is ``folded`` is opened by whoever wants it, and stands on paper; with ``find`` its rows can be looked for.
    """

    id: str
    heading: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False
    find: bool = False


@dataclass(frozen=True, slots=True)
class ArmWords:
    """What is told of a run below its figures."""

    name: str
    word: str
    missed: Sequence[str]
    notes: Sequence[str]
    checked: str
    idle: str
    decisions: str
    memory: str


@dataclass(frozen=True, slots=True)
class FirstStory:
    """The first violation of a law on a build, of ``count`` of them all."""

    build: str
    told: Told
    count: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page. ``kind`` is what it is a page of, ``verdict`` its first sentence (in ``tone``), ``lead`` what follows it.

    ``warnings`` say how not to read it, ``problems`` what is wrong; ``facts`` are label and value. ``data`` is what the
    scripts read of each of ``arms`` (:mod:`reports.page.embedded`).
    """

    kind: str
    title: str
    verdict: str
    tone: str
    lead: str
    warnings: Sequence[str] = ()
    problems: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    arms: Sequence[ArmWords] = ()
    data: Sequence[dict[str, Any]] = field(default=(), repr=False)
    first_stories: Sequence[FirstStory] = ()
    violations_note: str = ""

    @property
    def courses(self) -> bool:
        """Whether a run has a timeline to show."""
        return any(one["timeline"] for one in self.data)

    @property
    def maps(self) -> bool:
        """Whether a run has a map of its pages."""
        return any(one["map"] for one in self.data)

    @property
    def violations(self) -> bool:
        """Whether any law broke."""
        return any(one["violations"]["code"] for one in self.data)


def render(page: Page) -> str:
    """The page as HTML; the same page gives the same text."""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            css=_text("page.css"),
            light=_text("light.css").strip(),
            dark=_text("dark.css").strip(),
            data=[script_json(one) for one in page.data],
            script="\n".join(_text(name) for name in _SCRIPTS) if page.data else _text("core.js") + _text("tables.js"),
        )
    )


@cache
def _environment() -> Environment:
    return Environment(loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       keep_trailing_newline=True)  # fmt: skip


@cache
def _text(name: str) -> str:
    """A template, a style or a script of this package."""
    return files("reports.page").joinpath("templates", name).read_text(encoding="utf-8")
