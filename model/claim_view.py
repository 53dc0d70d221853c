"""What a claim rule may ask of a request's two pools: matches and covered endpoints, without side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.manager import Probe
from model.rules.keys import KeyView

if TYPE_CHECKING:
    from model.joint import Twin
    from model.request import Request


class TwinView:
    """Answers a claim rule's questions about one request."""

    def __init__(self, twin: Twin, request: Request, probe: Probe) -> None:
        self.twin = twin
        self.request = request
        self.probe = probe
        self.length = request.context_length
        self.page_size = twin.config.limits.page_size
        self.window = twin.window
        self.branches = twin.rules.publish.publishes_branch(twin.config.policy)
        self.target = probe.tokens
        self.drafts = twin.has_drafter
        self._draft: Probe | None = None

    def _draft_probe(self) -> Probe:
        if self._draft is None:
            assert self.twin.draft is not None and self.request.draft_keys is not None
            self._draft = self.twin.draft.probe(self.request.draft_keys)
        return self._draft

    def _keys(self) -> KeyView:
        assert self.request.keys is not None
        return self.request.keys

    def draft_match(self) -> int:
        twin = self.twin
        if twin.draft is not None:
            return self._draft_probe().tokens
        return twin.target.deepest(self.probe.match, self.target, twin.target.optional, self._keys())

    def touched(self, end: int) -> int:
        twin = self.twin
        if not twin.has_drafter:
            return end
        draft = twin.target if twin.draft is None else twin.draft
        nodes = (self.probe if twin.draft is None else self._draft_probe()).match.nodes
        columns = twin.target.optional if twin.draft is None else draft.required
        while end > 0:
            block = (end - 1) // self.page_size
            covered = min(nodes[block].coverage[column] for column in columns) if block < len(nodes) else 0
            if covered:
                return min(end, block * self.page_size + covered)
            end = block * self.page_size
        return 0

    def required(self, end: int) -> int:
        twin = self.twin
        return twin.target.deepest(self.probe.match, end, twin.target.required, self._keys())

    def joint(self, end: int, boundary: bool) -> int:
        twin = self.twin
        if not twin.has_drafter:
            return end
        keys = self._keys()
        if twin.draft is None:
            columns = (*twin.target.required, *twin.target.optional)
            return twin.target.deepest(self.probe.match, end, columns, keys, boundary)
        draft = self._draft_probe()
        end = min(end, draft.tokens)
        while True:
            lower = twin.draft.deepest(draft.match, end, twin.draft.required, keys, boundary)
            lower = twin.target.deepest(self.probe.match, lower, twin.target.required, keys)
            if lower == end:
                return end
            end = lower
