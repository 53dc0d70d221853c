"""From the words of a scenario file to the models behind them: acceptance, step cost and the link to the host tier."""

from __future__ import annotations

from pathlib import Path

from scenarios import behaviour_schema as schema
from scenarios.errors import FieldError
from sim.acceptance import Acceptance, Chain, Coverage, ForcedLength, ForcedSchedule, acceptance_seed
from sim.cost import NS_PER_US, PROFILES, CostProfile
from sim.cost_fit import load_profile
from sim.fitted import FittedChain, load_fitted
from sim.golden import CURVES, chain_rates
from sim.link import GIB, LinkProfile


def acceptance_model(settings: schema.Acceptance, seed: int, drafts: int, folder: Path) -> Acceptance:
    """The model that ``settings`` name, for a drafter of ``drafts`` tokens (K) and a scenario's seed.

    Counts and rates fit K: the loader saw to it. Raises FieldError for a curve that is unknown or too short for K and
    for a fitted model of another K, InputError for a file in ``folder`` that holds no such model.
    """
    draws = acceptance_seed(seed)
    if settings.forced is not None:
        own = {request: tuple(schedule) for request, schedule in settings.requests.items()}
        return ForcedSchedule(tuple(settings.forced), own)
    if settings.length is not None:
        return ForcedLength(settings.length, draws)
    if settings.bernoulli is not None:
        rates, source = _rates(settings.bernoulli, drafts, "bernoulli")
        return Chain(rates, draws, None, source)
    if settings.fitted is not None:
        fitted = load_fitted(folder / settings.fitted)
        if fitted.drafts != drafts:
            problem = f"expected a model of K = {drafts}, as the drafter has it, found K = {fitted.drafts}"
            raise FieldError(("acceptance", "fitted"), problem)
        return FittedChain(fitted, draws, settings.fitted)
    rates, source = _rates(settings.coverage or [], drafts, "coverage")
    default = Coverage()
    loss = default.loss if settings.loss is None else settings.loss
    exponent = default.exponent if settings.exponent is None else settings.exponent
    return Chain(rates, draws, Coverage(loss, exponent), source)


def cost_profile(settings: schema.Cost, folder: Path) -> CostProfile:
    """The profile that ``settings`` name: a built-in one, or a ``.csv`` or ``.json`` of measured steps in ``folder``.

    Raises FieldError for an unknown name and InputError for a file that cannot be used.
    """
    if settings.profile.endswith((".csv", ".json")):
        profile = load_profile(folder / settings.profile)
    elif settings.profile in PROFILES:
        profile = PROFILES[settings.profile]
    else:
        known = ", ".join(sorted(PROFILES))
        problem = f"expected one of {known}, or a file of measured steps (.csv, .json), found {settings.profile!r}"
        raise FieldError(("cost", "profile"), problem)
    return profile.with_inputs(settings.prefill_us_per_token, settings.host_ms)


def link_profile(settings: schema.HostLink | None) -> LinkProfile | None:
    """The link to the host tier, or ``None`` where changes of tier take no time."""
    if settings is None:
        return None
    latency = round(settings.latency_us * NS_PER_US)
    return LinkProfile(settings.gib_per_s * GIB, latency, settings.loss)


def _rates(given: list[float] | str, drafts: int, field: str) -> tuple[tuple[float, ...], str]:
    """One rate per draft position, and where they come from; a single rate holds at every position."""
    if isinstance(given, str):
        if given not in CURVES:
            problem = f"expected rates or one of {', '.join(sorted(CURVES))}, found {given!r}"
            raise FieldError(("acceptance", field), problem)
        try:
            rates = chain_rates(CURVES[given], drafts) if drafts else ()
        except ValueError as error:
            raise FieldError(("acceptance", field), str(error)) from error
        return rates, f"golden curve {given} at K = {drafts}"
    rates = tuple(given) * drafts if len(given) == 1 else tuple(given)
    return rates, f"rates {', '.join(f'{rate:g}' for rate in rates)}"
