"""The engine part of a scenario file: geometry, drafter, limits, pools, reuse policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from model.config import Memory
from model.drafter import KINDS
from scenarios.fields import Bytes, Count, Depth, Name, Part, Size, one_of, only_with, refuse, shorthand
from scenarios.presets import GEOMETRIES, LayerGroup


class Layers(Part):
    """KV layers with one retention. ``page_bytes`` stands in for the shape where only the total is known."""

    name: Name
    window: Count | None = Field(default=None, description="attention window in tokens; a drafter's by default")
    sinks: Size = Field(default=0, description="tokens at the front that are never released")
    trail: Size = Field(default=0, description="tokens that a target's layers keep below the window")
    layers: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    dtype: Literal["bf16", "fp16", "fp32", "fp8"] = "bf16"
    page_bytes: Count | None = Field(default=None, description="bytes of a page on one rank, instead of a shape")
    pool: Name | None = Field(default=None, description="pool that its pages come from: target or draft by default")

    @model_validator(mode="after")
    def _has_bytes(self) -> Layers:
        if one_of(self, ("layers", "page_bytes")) == "layers" and not (self.kv_heads and self.head_dim):
            raise refuse("expected layers with kv_heads and head_dim, found layers alone")
        return self

    def group(self, tensor_parallel: int) -> LayerGroup:
        """The same as a preset's group."""
        fitted = {} if self.page_bytes is None else {tensor_parallel: self.page_bytes}
        shape = (self.layers or 0, self.kv_heads or 0, self.head_dim or 0)
        return LayerGroup(self.name, *shape, self.dtype, self.window, self.sinks, fitted)


class Geometry(Part):
    """A preset by name, or the KV layers of the target and of its drafter."""

    preset: Name | None = Field(default=None, examples=list(GEOMETRIES))
    target: list[Layers] | None = Field(default=None, min_length=1)
    draft: list[Layers] | None = None
    vocabulary: Annotated[int, Field(ge=2, le=1 << 32)] | None = None
    tensor_parallel: Count | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Geometry:
        source = one_of(self, ("preset", "target"))
        only_with(self, "draft", "target", source == "target")
        return self


GeometryField = Annotated[Geometry, BeforeValidator(shorthand("preset", str), json_schema_input_type=Name | Geometry)]


class DrafterSpec(Part):
    """The drafter; what is left out comes from the geometry preset."""

    kind: Name | None = Field(default=None, examples=list(KINDS))
    drafts: Depth | None = Field(default=None, description="K: drafts verified per generation step; 0 drafts nothing")
    window: Count | None = Field(default=None, description="attention window in tokens; null: full attention")
    chain: Annotated[int, Field(ge=1, le=254)] | None = Field(
        default=None, description="chained modules of an MTP drafter: its lookahead"
    )


class LimitsSpec(Part):
    """Limits of the engine; what is left out comes from the geometry preset."""

    page_size: Count | None = Field(default=None, description="tokens per page")
    max_batch: Annotated[int, Field(ge=1, le=65_536)] | None = None
    max_num_tokens: Count | None = Field(default=None, description="token budget of one iteration")
    max_seq_len: Count | None = None
    chunk_unit: Count | None = Field(default=None, description="prefill chunks are multiples of it; a page by default")
    chunked_prefill: bool = True
    extra_tokens: Size | None = Field(default=None, description="X: KV headroom past the drafts, in both pools")
    max_util_for_resume: Annotated[float, Field(gt=0, le=1)] = 0.97
    overlap: bool = Field(default=True, description="dispatch the next iteration before the last one is settled")
    deferral: bool = Field(default=True, description="a request waits for the page that another one is computing")
    stall_passes: Count = Field(default=1000, description="passes without progress before the deadlock detector speaks")
    graph_batches: list[Count] = Field(default_factory=list, description="batch sizes that graphs were captured for")
    partial_children: Count = Field(default=32, description="no partial match among this many children or more")


class PoolPages(Part):
    """Pages of one pool."""

    device_pages: Count
    host_pages: Size = 0


PoolField = Annotated[
    PoolPages, BeforeValidator(shorthand("device_pages", int), json_schema_input_type=Count | PoolPages)
]


class PoolBytes(Part):
    """Memory of one rank for both pools; the build's layout decides how it is split (``model.budget``).

    Beside ``pools`` in pages it says what they were split from, with ``page_bytes``, for the laws that judge a split.
    """

    device: Bytes
    host: Bytes = 0
    host_draft: Bytes = Field(default=0, description="host bytes for the drafter in the unified layout")
    draft_pages_per_slot: Count | None = Field(
        default=None, description="of a drafter's pool of its own, instead of the window-sized share"
    )
    page_bytes: dict[Name, Count] | None = Field(default=None, description="beside pools: bytes of a page by pool")
    given_share: bool = Field(default=False, description="beside pools: the drafter's pages were set by hand")

    @model_validator(mode="after")
    def _one_form(self) -> PoolBytes:
        only_with(self, "given_share", "page_bytes", self.page_bytes is not None)
        for name in ("host_draft", "draft_pages_per_slot"):
            only_with(self, name, "memory that is to be split", self.page_bytes is None)
        return self

    def judged(self) -> Memory:
        """What pools in pages were split from."""
        return Memory(self.device, self.host, tuple((self.page_bytes or {}).items()), self.given_share)


Policy = Literal["all_reusable", "per_request", "per_conversation", "none"]


class PolicySpec(Part):
    """When the context of a request becomes reusable by others."""

    kind: Policy = "all_reusable"
    max_num_turns: Count = Field(default=1, description="endpoints kept per conversation")


PolicyField = Annotated[PolicySpec, BeforeValidator(shorthand("kind", str), json_schema_input_type=Policy | PolicySpec)]
