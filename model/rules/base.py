"""The rule set that makes up a build."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from model.rules.admission import Accounting, Admission, Epoch, Rewind, Suspension
from model.rules.budget import Budget
from model.rules.claim import ClaimRule, WindowedPair
from model.rules.columns import Columns
from model.rules.copy import CopyPartialPage, WriteInPlace
from model.rules.device import (
    Addressing,
    DeviceRules,
    Extent,
    Padding,
    Provisional,
    Rebase,
    TableUpload,
    Trim,
    Unbacked,
)
from model.rules.dummy import Dummy
from model.rules.keys import KeysRule, MatchBackoff
from model.rules.layout import Index, Layout, Mirror, Pairing, Retention, Shape
from model.rules.lookahead import Lookahead
from model.rules.lookup import Lookup
from model.rules.offload import Offload
from model.rules.prune import PruneRule, TrimThenPrune
from model.rules.publish import Publish
from model.rules.ranks import Ranks
from model.rules.scheduling import Chunking, Deferral, Victim
from model.rules.scope import ScopeKey
from model.rules.slots import Slots
from model.rules.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Rules:
    """One answer to each question that upstream has answered in more than one way; the defaults are today's."""

    layout: Layout = Layout("unified", Shape.UNIFIED)
    keys: KeysRule = field(default_factory=MatchBackoff)
    prune: PruneRule = field(default_factory=TrimThenPrune)
    claim: ClaimRule = field(default_factory=WindowedPair)
    copy: CopyPartialPage | WriteInPlace = field(default_factory=CopyPartialPage)
    publish: Publish = Publish("written-per-chunk", draft_at_endpoint=False)
    lookahead: Lookahead = Lookahead.PROMPT
    mirror: Mirror = Mirror()
    retention: Retention = Retention()
    slots: Slots = Slots()
    extent: Extent = Extent.LAST_BACKED
    unbacked: Unbacked = Unbacked.GUARD
    admission: Admission = Admission()
    suspension: Suspension = Suspension()
    pairing: Pairing = Pairing()
    chunking: Chunking = Chunking()
    victim: Victim = Victim()
    deferral: Deferral = Deferral()
    epoch: Epoch = Epoch()
    provisional: Provisional = Provisional.REWRITTEN
    rewind: Rewind = Rewind()
    table: TableUpload = TableUpload.PER_STEP
    index: Index = Index()
    scope: ScopeKey = ScopeKey()
    accounting: Accounting = Accounting()
    rebase: Rebase = Rebase.BOTH
    addressing: Addressing = Addressing.TABLE
    trim: Trim = Trim.ACCEPTED
    lookup: Lookup = Lookup.FROM_START
    columns: Columns = Columns.ROWS_IN_FLIGHT
    budget: Budget = Budget()
    ranks: Ranks = Ranks()
    transfer: Transfer = Transfer()
    offload: Offload = Offload()
    dummy: Dummy = Dummy()
    padding: Padding = Padding.SCRATCH

    def device(self) -> DeviceRules:
        """The answers that travel with each plan."""
        return DeviceRules(
            self.lookahead,
            self.extent,
            self.unbacked,
            self.provisional,
            self.table,
            self.rebase,
            self.addressing,
            self.trim,
            self.padding,
        )

    def named(self) -> dict[str, str]:
        """Rule by rule, the name of the answer."""
        answers = {}
        for entry in fields(self):
            answer = getattr(self, entry.name)
            answers[entry.name] = getattr(answer, "value", None) or answer.name
        return answers
