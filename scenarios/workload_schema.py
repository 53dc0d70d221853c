"""The workload part of a scenario file: sessions written out, a generator, or a trace file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scenarios.fields import (
    Count,
    Many,
    Name,
    Part,
    Positive,
    Seconds,
    Share,
    Size,
    Stream,
    TokenId,
    one_of,
    only_with,
    refuse,
    shorthand,
)


class Tokens(Part):
    """A run of token ids. In a file a number means that many fresh tokens, a name means that shared prefix."""

    prefix: Name | None = Field(default=None, description="a shared prefix by name")
    fresh: Count | None = Field(default=None, description="this many tokens that nothing else in the workload has")
    ids: list[TokenId] | None = Field(default=None, min_length=1, description="literal token ids")
    stream: Stream | None = Field(default=None, description="tokens of an endless stream by its seed; needs tokens")
    tokens: Count | None = Field(default=None, description="only so many of the prefix or of the stream")
    first: TokenId | None = Field(default=None, description="first id of fresh or stream tokens")

    @model_validator(mode="after")
    def _one_source(self) -> Tokens:
        source = one_of(self, ("prefix", "fresh", "ids", "stream"))
        if source == "stream" and self.tokens is None:
            raise refuse("expected stream with tokens, found stream alone")
        only_with(self, "tokens", "prefix or stream", source in ("prefix", "stream"))
        only_with(self, "first", "fresh or stream", source in ("fresh", "stream"))
        return self


def _tokens(value: Any) -> Any:
    if isinstance(value, str):
        return {"prefix": value}
    return {"fresh": value} if isinstance(value, int) and not isinstance(value, bool) else value


TokensField = Annotated[Tokens, BeforeValidator(_tokens, json_schema_input_type=Count | Name | Tokens)]


def _list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Prompt = Annotated[
    list[TokensField],
    Field(min_length=1),
    BeforeValidator(_list, json_schema_input_type=TokensField | list[TokensField]),
]


class PrefixSpec(Part):
    """A shared prefix: a number of tokens generated from its name, or literal ids."""

    tokens: Count | None = None
    ids: list[TokenId] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_source(self) -> PrefixSpec:
        one_of(self, ("tokens", "ids"))
        return self


PrefixField = Annotated[
    PrefixSpec, BeforeValidator(shorthand("tokens", int), json_schema_input_type=Count | PrefixSpec)
]


class TurnSpec(Part):
    """One request: ``append`` follows the previous prompt and output, ``prompt`` is the whole prompt."""

    prompt: Prompt | None = None
    append: Prompt | None = None
    output: Count = Field(description="tokens to generate")
    think_s: Seconds = Field(default=0.0, description="pause after the previous turn")
    at_s: Seconds | None = Field(default=None, description="absolute arrival, instead of the pause")
    repeat: Many = Field(default=1, description="so many turns of this shape, each with tokens of its own")

    @model_validator(mode="after")
    def _one_prompt(self) -> TurnSpec:
        one_of(self, ("prompt", "append"))
        only_with(self, "think_s", "a turn without at_s", self.at_s is None)
        return self


class ParentSpec(Part):
    """The turn (counted from 0) whose end starts a sub-agent's session."""

    session: Name
    turn: Size = 0


class ScopeSpec(Part):
    """Fields beside the tokens that a page's content depends on."""

    adapter: str = ""
    salt: str = ""
    target_weights: Size = 0
    draft_weights: Size = 0


class SessionSpec(Part):
    """A conversation: its ``turns``, or the ``prompt`` and ``output`` of a single one."""

    name: Name | None = None
    turns: list[TurnSpec] | None = Field(default=None, min_length=1)
    prompt: Prompt | None = None
    output: Count | None = Field(default=None, description="tokens to generate")
    copies: Many = Field(default=1, description="so many sessions of this shape, each with fresh tokens of its own")
    arrival_s: Seconds = 0.0
    every_s: Seconds = Field(default=0.0, description="time between the arrivals of two copies")
    parent: ParentSpec | None = None
    inherit: bool = Field(default=False, description="a sub-agent's prompt begins with its parent's")
    scope: ScopeSpec = Field(default_factory=ScopeSpec)
    drafts: bool = Field(default=True, description="false: it runs without the drafter, beside sessions that draft")
    worker: Size | None = Field(default=None, description="rank of a fleet that serves it; in turn by default")

    @model_validator(mode="after")
    def _one_form(self) -> SessionSpec:
        form = one_of(self, ("turns", "prompt"))
        only_with(self, "output", "prompt", form == "prompt")
        if form == "prompt" and self.output is None:
            raise refuse("expected prompt with output, found prompt alone")
        return self


class Lognormal(Part):
    """A lognormal length or time by median and mean, cut at ``max``."""

    median: Positive
    mean: Positive
    max: Positive | None = None


class GroupsSpec(Part):
    """Single requests in groups that share a prefix: the common workload of serving simulators."""

    requests: Many = 1000
    groups: Many = 8
    shared: Count = Field(default=1536, description="tokens that a group shares")
    private: Count = Field(default=512, description="tokens of each request's own, first ones unique within a group")
    output: Count = 200
    rate: Positive | None = Field(default=8.0, description="Poisson arrivals per second; null: all at once")
    order: Literal["random", "round-robin"] = Field(default="random", description="how requests draw their group")


class AgenticSpec(Part):
    """Conversations of a coding agent, most of them on one system prompt (the replay of seeds 000 and 003)."""

    sessions: Many = 52
    requests: Many = 531
    system_sessions: Many = Field(default=40, description="conversations that start with the system prompt")
    system_requests: Many = Field(default=460, description="requests of these conversations")
    system: Count = Field(default=30_600, description="tokens of the system prompt")
    publisher_private: Count = Field(default=5_400, description="first private tokens of the first conversation")
    branch_private: Count = Field(default=293, description="first private tokens of the second conversation")
    private: Lognormal = Lognormal(median=350.0, mean=400.0, max=2000.0)
    other: Lognormal = Lognormal(median=5500.0, mean=6000.0, max=12000.0)
    output: Lognormal = Lognormal(median=330.0, mean=430.0, max=4000.0)
    new_tokens: Count = Field(default=535_000, description="prompt tokens of all requests that no reuse can save")
    turns_sigma: Positive = Field(default=0.7, description="spread of the turns per conversation (of a lognormal)")
    delay_s: Lognormal = Lognormal(median=1.0, mean=2.0, max=30.0)


class PrefixLayers(Part):
    """Layers of a prompt's start: shared by all, by a group, by a session."""

    shared: Size = 32_000
    group: Size = 10_000
    groups: Many = 100
    zipf: Positive = 0.6
    session: Lognormal = Lognormal(median=5000.0, mean=6000.0, max=50_000.0)


class DelaySpec(Part):
    """Pause before a turn in seconds: a tool's for the share ``agentic`` of the turns, a person's for the rest."""

    agentic: Share = 0.7
    tool: Lognormal = Lognormal(median=2.0, mean=5.0)
    person: Lognormal = Lognormal(median=15.0, mean=30.0)
    max_s: Positive = 300.0


class ResetSpec(Part):
    """A context that is compacted: with ``probability``, up to ``scale`` times it as the context fills."""

    probability: Share = 0.05
    scale: Positive = 1.5
    summary: Lognormal = Lognormal(median=1500.0, mean=2000.0, max=8000.0)


class RestartSpec(Part):
    """A share of the sessions starts over from its prefix layers after ``first`` to ``last`` turns."""

    share: Share = 0.3
    first: Many = 5
    last: Many = 15


class LayersSpec(Part):
    """Agent sessions from layered prefixes, with the parameters of AIPerf's ``synthesize agentic-code``."""

    sessions: Many = 100
    max_turns: Many = Field(default=40, description="turns of a session at most")
    max_context: Count = Field(default=200_000, description="a session ends where its next prompt would be longer")
    layers: PrefixLayers = PrefixLayers()
    new_tokens: Lognormal = Lognormal(median=4000.0, mean=6000.0, max=50_000.0)
    output: Lognormal = Lognormal(median=800.0, mean=1000.0, max=8000.0)
    delay: DelaySpec = DelaySpec()
    reset: ResetSpec = ResetSpec()
    restart: RestartSpec = RestartSpec()
    rate: Positive | None = Field(
        default=None, description="Poisson arrivals of sessions per second; null: all at once"
    )


class BranchesSpec(Part):
    """Prefill-only requests: agents with long contexts, and sub-agents that branch off somewhere inside them."""

    requests: Many = 488
    agents: Many = Field(default=50, description="contexts that the other requests branch off from")
    open: Many = Field(default=8, description="agents whose requests take turns")
    system: Size = Field(default=30_000, description="tokens that all prompts start with")
    opening: Size = Field(default=2_000, description="tokens of the context in an agent's first request; 0: none")
    context: Lognormal = Lognormal(median=192_000.0, mean=210_000.0, max=400_000.0)
    task: Lognormal = Lognormal(median=12_000.0, mean=16_000.0, max=100_000.0)
    depth: Share = Field(default=0.5, description="share of the agent's context below which nobody branches off")


class TraceSpec(Part):
    """A trace file of a public format; a relative path counts from the scenario file."""

    path: Name
    format: Literal["mooncake", "mooncake-delta", "aiperf"] = Field(
        description="mooncake: whole prompts; mooncake-delta: new tokens per turn; aiperf: multi-turn sessions"
    )
    block: Count = Field(default=512, description="tokens per hash id")
    limit: Count | None = Field(default=None, description="only so many rows from the start")
    time_scale: Positive = Field(default=1.0, description="factor on all times")


class WorkloadSpec(Part):
    """Exactly one of ``sessions``, ``groups``, ``agentic``, ``layers``, ``branches`` and ``trace``."""

    concurrency: Count | None = Field(
        default=None, description="closed loop: sessions in flight; without it, arrivals count"
    )
    prefixes: dict[Name, PrefixField] = Field(default_factory=dict)
    sessions: list[SessionSpec] | None = Field(default=None, min_length=1)
    groups: GroupsSpec | None = None
    agentic: AgenticSpec | None = None
    layers: LayersSpec | None = None
    branches: BranchesSpec | None = None
    trace: TraceSpec | None = None

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadSpec:
        source = one_of(self, ("sessions", "groups", "agentic", "layers", "branches", "trace"))
        only_with(self, "prefixes", "sessions", source == "sessions")
        return self
