"""The grids by name, in the order in which a sweep runs them."""

from __future__ import annotations

from sim.sweep.grid import Grid
from sim.sweep.grids.budgets import CHUNKS, POLICIES
from sim.sweep.grids.lengths import LENGTHS, LOOKAHEAD, PROMPTS, TURNS, WINDOWS
from sim.sweep.grids.orders import ORDERS
from sim.sweep.grids.points import CANCELS, FORWARDS, SUSPEND
from sim.sweep.grids.pressure import EVICTION, HOST, RECYCLING
from sim.sweep.grids.traffic import TRAFFIC

GRIDS: dict[str, Grid] = {
    grid.name: grid
    for grid in (
        LENGTHS,
        TURNS,
        PROMPTS,
        WINDOWS,
        LOOKAHEAD,
        CHUNKS,
        POLICIES,
        ORDERS,
        SUSPEND,
        FORWARDS,
        CANCELS,
        EVICTION,
        RECYCLING,
        HOST,
        TRAFFIC,
    )
}
