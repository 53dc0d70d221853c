"""The naive oracle: what is live, covered, claimable and publishable, recomputed by brute force from a whole history.

It shares no code with the model and was written from the specification alone: a mistake has to be made twice to pass.
No tree, no hash, no counter: lists, sets and loops over tokens, for toy sizes. A claim of depth e is judged twice:

* *sound*: its depth is *legal*. Each cell that the query at e reads lies in a published page with the content that this
  prompt would compute: [0, e) under full attention, [e + 1 - W, e) and [0, S) under a window W with S sinks.
* *complete*: it is not shallower than what is *promised*, the deepest depth that a prefix tree over pages is bound to
  reach. The declared slack is what makes this less than the deepest legal depth: keys D (a match needs D tokens of
  evidence behind e); windowed claim W + B - 1 (a fresh mirror starts up to that far below the target's match, and no
  draft match is lost for it); page boundary B - 1 (only multiples of the page are tried); last page B; no match inside
  a page at as many siblings as the world says (32), or more. Besides, a tree asks for all cells of each live page, and
  inside a page it may take any child that agrees that far, so all of them have to serve.

Where the specification leaves a choice: sinks are kept by whole pages and read by tokens. A fresh mirror's limit is
the policy's, L + 1 - W; ``spare=1`` gives the read bound L + 2 - W. Two separate trees with windows on both sides
promise no joint depth: managers that disagree twice start at 0. Tail recomputation promises the deepest such depth
up to its formula.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from property_tests.fuzz.oracle_records import (
    RULES,
    Advanced,
    Claimed,
    Dropped,
    Freed,
    Granted,
    Group,
    History,
    Owner,
    Policy,
    Published,
    Rule,
    World,
)

# 1. What is live


def holders(history: History) -> list[Granted]:
    """The table entries that stand. A history that frees what its owner does not hold is refused with ValueError."""
    held: list[Granted] = []
    for record in history:
        if isinstance(record, Granted):
            held.append(record)
        elif isinstance(record, Freed):
            life = (record.owner, record.group, record.page, record.tenancy)
            mine = [entry for entry in held if (entry.owner, entry.group, entry.page, entry.tenancy) == life]
            if not mine:
                raise ValueError(f"{record}: expected a page that its owner holds")
            held.remove(mine[0])
    return held


def index(history: History) -> list[Published]:
    """The published pages that stand. A history that drops what was never published is refused with ValueError."""
    pages: list[Published] = []
    for record in history:
        if isinstance(record, Published):
            pages.append(record)
        elif isinstance(record, Dropped):
            life = (record.group, record.page, record.tenancy)
            kept = [page for page in pages if (page.group, page.page, page.tenancy) != life]
            if len(kept) == len(pages):
                raise ValueError(f"{record}: expected a published page")
            pages = kept
    return pages


def claim_of(history: History, owner: Owner) -> Claimed:
    """The last admission of ``owner``; ValueError where there is none."""
    claims = [record for record in history if isinstance(record, Claimed) and record.owner == owner]
    if not claims:
        raise ValueError(f"request {owner}: expected an admission")
    return claims[-1]


def table(world: World, history: History, owner: Owner, group: str) -> set[int]:
    """The positions that ``owner``'s table of ``group`` leads to."""
    blocks = [entry.block for entry in holders(history) if entry.owner == owner and entry.group == group]
    return {block * world.page + offset for block in blocks for offset in range(world.page)}


def retained(world: World, history: History, owner: Owner, position: int) -> str | None:
    """A sentence if the query of ``owner`` at ``position`` reads a position that its table no longer leads to."""
    claim = claim_of(history, owner)
    for group in world.groups:
        hidden = claim.depth if group.side == "draft" and claim.draft == 0 else 0  # the drafter's base
        mine = table(world, history, owner, group.name)
        for cell in reads(group, position):
            if cell >= hidden and cell not in mine:
                return f"request {owner} at {position} reads position {cell} of {group.name!r}, gone from its table"
    return None


def recycled(history: History) -> str | None:
    """A sentence if a page began a new life while a table or the index still led to an earlier one."""
    for count, record in enumerate(history):
        if isinstance(record, Granted):
            for other in [*holders(history[:count]), *index(history[:count])]:
                if (other.group, other.page) == (record.group, record.page) and other.tenancy != record.tenancy:
                    return f"page {record.page} of {record.group!r} went to request {record.owner} while {other} stood"
    return None


# 2. What is covered


def stale(page: int, group: Group, depth: int, window: int | None) -> range:
    """The blocks that ``window`` tokens of retention release at history ``depth``: below depth + 1 - W, no sinks."""
    if window is None:
        return range(0)
    sinks = min(-(-depth // page), -(-group.sinks // page))
    return range(sinks, max(sinks, (depth + 1 - window) // page))


def reads(group: Group, depth: int) -> list[int]:
    """The earlier cells that a query at ``depth`` reads."""
    return [i for i in range(depth) if group.window is None or i < group.sinks or i >= depth + 1 - group.window]


def live(world: World, group: Group, depth: int) -> list[int]:
    """The cells below ``depth`` of the pages that are live there: what a prefix tree asks for."""
    gone = stale(world.page, group, depth, group.window)
    return [i for i in range(depth) if i // world.page not in gone]


def covered(group: Group, pages: Iterable[Published], prompt: tuple[int, ...]) -> set[int]:
    """Positions of ``prompt`` whose cells ``pages`` hold for ``group``: tokens are equal up to D positions further."""
    there: set[int] = set()
    for page in pages:
        if page.group == group.name:
            for cell in range(page.first, page.first + page.cells):
                seen = cell + group.lookahead + 1
                if seen <= len(prompt) and page.tokens[:seen] == prompt[:seen]:
                    there.add(cell)
    return there


@dataclass(frozen=True)
class View:
    """What the index holds for one prompt: the pages of its scope, and by group the positions that are there.

    ``sought`` is as much of the prompt as was looked for.
    """

    prompt: tuple[int, ...]
    pages: list[Published]
    there: dict[str, set[int]]
    sought: tuple[int, ...]


def view(world: World, history: History, claim: Claimed, keyed: bool = False) -> View:
    """The index as the prompt and scope of ``claim`` see it after ``history``; by its keys alone, if ``keyed``."""
    pages = [page for page in index(history) if page.scope == claim.scope]
    sought = claim.prompt[: claim.keyed] if keyed else claim.prompt
    return View(claim.prompt, pages, {group.name: covered(group, pages, sought) for group in world.groups}, sought)


# 3. What is claimable, and whether a claim is sound


def fresh_limit(world: World, length: int, spare: int = 0) -> int:
    """The deepest start without draft pages, for a prompt of ``length``: L + 1 - W of the widest draft window, or 0."""
    windows = [group.window for group in world.side("draft")]
    return max(0, min([length, *(0 if w is None else length + 1 - w + spare for w in windows)]))


def unread(groups: Iterable[Group], seen: View, depth: int) -> str | None:
    """The first cell that a query at ``depth`` would read in vain, in words."""
    for group in groups:
        for cell in reads(group, depth):
            if cell not in seen.there[group.name]:
                return f"{group.name!r} reads position {cell}, which no published page holds for this prompt"
    return None


def objection(world: World, rule: Rule, seen: View, depth: int, reused: int, spare: int = 0) -> str | None:
    """Why ``rule`` may not claim ``depth`` with draft pages up to ``reused``; None where it may."""
    length, draft = len(seen.prompt), world.side("draft")
    if depth == reused == 0:
        return None
    if not 0 <= depth < length:
        return "the last token is always computed"
    if rule.tail < 0 or length - depth < rule.tail:
        return f"a tail of {rule.tail} tokens has to be computed" if rule.tail > 0 else "nothing may be reused"
    lost = unread(world.side("target"), seen, depth)
    if lost or rule.draft == "ignored" or not draft:
        return lost
    if reused not in (0, depth):
        return f"the draft frontier is {reused}"
    if reused:
        off = rule.boundary and depth % world.page
        return "draft pages serve only claims that end on a page" if off else unread(draft, seen, depth)
    if rule.draft == "required":
        return "no draft page is reused"
    limit = fresh_limit(world, length, spare)
    return None if depth <= limit else f"the limit without draft pages is {limit}"


def legal(world: World, rule: Rule, seen: View, spare: int = 0) -> list[int]:
    """All depths that ``rule`` may claim, deepest first, each tried with draft pages and without; 0 is always legal."""
    depths = range(max(0, len(seen.prompt) - 1), -1, -1)
    return [e for e in depths if any(objection(world, rule, seen, e, reused, spare) is None for reused in (e, 0))]


def claimable(
    world: World, rule: Rule, history: History, prompt: tuple[int, ...], scope: Hashable, spare: int = 0
) -> list[int]:
    """All legal depths of ``prompt`` in ``scope`` after ``history``, deepest first."""
    return legal(world, rule, view(world, history, Claimed("nobody", prompt, scope, 0, 0)), spare)


def sound(world: World, rule: Rule, history: History, claim: Claimed, spare: int = 0) -> str | None:
    """A sentence if ``claim``, made after ``history``, is not legal: it reads what is not there, or breaks its rule."""
    seen = view(world, history, claim)
    why = objection(world, rule, seen, claim.depth, claim.draft, spare)
    if why is None:
        return None
    text = f"request {claim.owner} claims {claim.depth} of {len(claim.prompt)} tokens"
    return f"{text}, but {why}; the deepest legal depth is {legal(world, rule, seen, spare)[0]}"


# 4. What is promised, and whether a claim is complete


def found(world: World, tree: Sequence[Group], pages: Sequence[Published], prompt: tuple[int, ...], depth: int) -> bool:
    """Whether the prefix tree in which ``pages`` hang is bound to lead to ``depth`` with cells for the groups ``tree``.

    Raw keys have to match depth + D tokens, shifted keys ``depth`` items that span as many. The way is exact up to the
    last page matched; inside it any child that agrees that far may be taken, so that each of them has to serve. A page
    at which a block ended may hang from any longer block that goes on like it: where there are two, it serves neither.
    """
    tokens, behind = depth + world.lookahead, world.lookahead if world.shifted else 0
    start = (tokens - behind) // world.page * world.page
    keys = [page.tokens[: page.first + page.cells + behind] for page in pages]
    if tokens > len(prompt) or not any(key[:tokens] == prompt[:tokens] for key in keys):
        return False
    way = [page for page, key in zip(pages, keys, strict=True) if key == prompt[: len(key)]]
    for group in tree:  # a sibling that agrees on part of a page is not on the way through it
        if not covered(group, way, prompt).issuperset(cell for cell in live(world, group, depth) if cell < start):
            return False
    if start == tokens - behind:
        return True
    root = prompt[: start + behind] if start else ()  # every first page is a child of the root
    children = {key[: start + world.page + behind] for key in keys if len(key) > len(root) and key[: len(root)] == root}
    for child in children:
        if child[:tokens] == prompt[:tokens]:
            own = [
                page
                for page, key in zip(pages, keys, strict=True)
                if key[: len(child)] == child[: len(key)]
                and (not len(root) < len(key) < len(child) or sum(c[: len(key)] == key != c for c in children) == 1)
            ]
            for group in tree:
                there = covered(group, own, prompt)
                if any(cell >= start and cell not in there for cell in live(world, group, depth)):
                    return False
    return len(children) < world.children


def certain(world: World, groups: Sequence[Group], seen: View, depth: int) -> bool:
    """Whether a match for ``groups`` is bound to reach ``depth``: all live cells are there, each tree leads to them."""
    if any(not seen.there[group.name].issuperset(live(world, group, depth)) for group in groups):
        return False
    for tree in [world.groups] if world.one_tree else [world.side("target"), world.side("draft")]:
        names, wanted = [group.name for group in tree], [group for group in groups if group in tree]
        if wanted and not found(world, wanted, [p for p in seen.pages if p.group in names], seen.sought, depth):
            return False
    return True


def deepest_certain(world: World, groups: Sequence[Group], seen: View, depths: range) -> int:
    """The last of ``depths`` (ascending) that a match for ``groups`` is bound to reach, or 0."""
    return next((depth for depth in reversed(depths) if certain(world, groups, seen, depth)), 0)


def joint_promise(world: World, rule: Rule, seen: View) -> int:
    """The deepest depth at which target and draft pages are bound to serve the prompt together."""
    windows = [any(group.window is not None for group in world.side(side)) for side in ("target", "draft")]
    if all(windows) and not world.one_tree:
        return 0
    both = range(0, len(seen.prompt), world.page if rule.boundary else 1)
    if not rule.drop:
        return deepest_certain(world, world.groups, seen, both)
    sure = [depth for depth in both if depth == 0 or certain(world, world.groups, seen, depth)]
    return max((depth for depth in sure if depth + world.page in sure), default=0)


def promised(world: World, rule: Rule, seen: View) -> int:
    """The depth that ``rule`` is bound to reach."""
    length, page, target = len(seen.prompt), world.page, world.side("target")
    own = deepest_certain(world, target, seen, range(length))
    most = legal(world, RULES["target-only"], seen)[0]
    if rule.draft == "ignored":
        if rule.tail < 0:
            return 0
        start = own if length - most >= rule.tail else min(own, max(0, length - rule.tail) // page * page)
        return deepest_certain(world, target, seen, range(start + 1))  # a window may be gone where the cursor goes
    joint = joint_promise(world, rule, seen)
    if rule.draft == "required" or rule.draft_first:
        return joint
    limit, start = fresh_limit(world, length), own
    if most > limit:  # the target's match may reach beyond the limit: floored there, or one window below the match
        window = length + 1 - limit
        start = min(own, max(0, own - window if rule.branch else limit) // page * page)
    return max(joint, deepest_certain(world, target, seen, range(start + 1)))


def complete(world: World, rule: Rule, history: History, claim: Claimed) -> str | None:
    """A sentence if ``claim``, made after ``history``, is shallower than promised or declines draft pages in vain."""
    seen = view(world, history, claim, keyed=True)
    want = promised(world, rule, seen)
    text = f"request {claim.owner} claims {claim.depth} of {len(claim.prompt)} tokens"
    if claim.depth < want:
        return f"{text}, but published pages serve {want}"
    declined = rule.draft == "window" and world.side("draft") and claim.draft == 0 < claim.depth
    if declined and claim.depth == joint_promise(world, rule, seen):
        return f"{text} without the draft pages that serve it"
    return None


# 5. What is publishable


def publishable(
    world: World, policy: Policy, history: History, owner: Owner, branches: Sequence[int] = ()
) -> dict[tuple[int, str], int]:
    """(block, group name) -> most cells of that page that ``owner`` may have published since its last admission.

    all_reusable: the full pages at each chunk end. per_request, per_conversation: nothing before the whole prompt is
    computed, then of a windowed group only what is retained at the end. ``branches`` are depths at which the rule
    publishes a window too, once they are passed. The page at the end of the context or at a branch enters with the
    cells it has; no page enters that begins below what its group computed or reused; generated tokens never enter.
    """
    claim = claim_of(history, owner)
    length, since = len(claim.prompt), max(i for i, record in enumerate(history) if record is claim)
    chunks = [min(r.position, length) for r in history[since:] if isinstance(r, Advanced) and r.owner == owner]
    ends = [end for end in chunks if policy == "all_reusable" or end == length]
    passed = [branch for branch in branches if branch <= max(chunks, default=0)]
    most: dict[tuple[int, str], int] = {}
    for end in [*ends, *passed]:
        last = min(end, length - world.lookahead) if world.shifted else end
        for group in world.groups:
            reused = claim.depth if group.side == "target" else claim.draft
            has = {*live(world, group, reused), *range(claim.depth, end)}
            gone = range(0) if policy == "all_reusable" else stale(world.page, group, end, group.stored or group.window)
            for block in range(-(-last // world.page)):
                cells = range(block * world.page, min(last, block * world.page + world.page))
                whole = len(cells) == world.page or end in (length, *passed)
                if whole and block not in gone and has.issuperset(cells):
                    most[block, group.name] = max(len(cells), most.get((block, group.name), 0))
    return most


def published(
    world: World, policy: Policy, history: History, page: Published, branches: Sequence[int] = ()
) -> str | None:
    """A sentence if ``page`` must not enter the index after ``history``: early, stale, unwritten, other tokens."""
    may = publishable(world, policy, history, page.owner, branches).get((page.first // world.page, page.group), 0)
    prompt = claim_of(history, page.owner).prompt
    text = f"request {page.owner} publishes [{page.first}, {page.first + page.cells}) of {page.group!r}"
    if page.first % world.page + page.cells > may:
        return f"{text}, but {may} cells of that page may enter under {policy}"
    shared = min(len(page.tokens), len(prompt))
    return None if page.tokens[:shared] == prompt[:shared] else f"{text} with content of other tokens than its prompt's"
