"""Rule *publish*: when pages enter the tree, which of them, and what becomes of holes and of stale pages."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from model.config import PublishPolicy


class BranchWindow(enum.Enum):
    """When a request that recomputes the drafter's window before a branch point publishes it there."""

    NEVER = "never"
    ALL_REUSABLE = "all_reusable"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Publish:
    """Answers of a publication rule; the defaults are today's.

    ``draft_at_endpoint``: the drafter's own manager publishes when the context is complete, whatever the policy.
    ``fill_holes``: an ordinary commit puts its page where a cached block lost one. ``keep_stale``: released blocks
    that are not committed yet are held for the late commit. ``only_written``: a page covers what was written of it.
    ``partial_pages``: the last block of a context is published though it is not full. ``fills_branch``: the window
    that was recomputed before a branch point is put where the cached blocks lack it.
    """

    name: str = "written"
    draft_at_endpoint: bool = True
    fill_holes: bool = False
    branch: BranchWindow = BranchWindow.ALL_REUSABLE
    keep_stale: bool = False
    only_written: bool = True
    partial_pages: bool = True
    fills_branch: bool = True

    def per_chunk(self, role: str, policy: PublishPolicy) -> bool:
        """Whether the manager of ``role`` commits after every chunk, not only at the end of the context."""
        if role == "draft" and self.draft_at_endpoint:
            return False
        return policy is PublishPolicy.ALL_REUSABLE

    def publishes_branch(self, policy: PublishPolicy) -> bool:
        """Whether the window before a branch point is recomputed and published."""
        if self.branch is BranchWindow.ALL_REUSABLE:
            return policy is PublishPolicy.ALL_REUSABLE
        return self.branch is BranchWindow.ALWAYS

    def coverage(self, written: tuple[int, int], start: int, length: int) -> int:
        """Tokens of a block of ``length`` at ``start`` that its page may be published for."""
        if not self.only_written:
            return length
        low, high = written
        return 0 if start < low else max(0, min(length, high - start))
