"""Functions of our lines that decide whether a claim of the paper holds, and the numbers they show.

A comparison holds if the means differ in the claimed direction by more than two standard errors, fails if
they differ as much in the other, and is undecided between. Of a single seed no error is known: then the sign
decides. Claims without a number in the paper ("similar", "slightly") have one here, in the function.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from experiments import figure_5, networks, proposition_1, table_1
from experiments.results import Mean, Results, mean_of

CERTAIN = 2.0  # standard errors


class Verdict(Enum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    MISSING = "not yet run"


Answer = tuple[Verdict, str]
MISSING: Answer = (Verdict.MISSING, "–")


def verdict(holds: bool | np.bool_) -> Verdict:
    return Verdict.HOLDS if holds else Verdict.FAILS


def compared(lower: Mean, higher: Mean) -> Verdict:
    """Whether the first is below the second."""
    error = np.hypot(lower.error, higher.error)
    difference = higher.value - lower.value
    if np.isnan(error) or abs(difference) > CERTAIN * error:
        return verdict(difference > 0)
    return Verdict.UNDECIDED


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several comparisons that must all hold."""
    for answer in (Verdict.MISSING, Verdict.FAILS, Verdict.UNDECIDED):
        if answer in verdicts:
            return answer
    return Verdict.HOLDS


def seeds(*means: Mean) -> str:
    counts = sorted({mean.count for mean in means})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} seed{'s' if counts != [1] else ''}"


def below(figure: str, metric: str, best: str, others: Sequence[str], problem: str | None = None):
    """Decides that `best` ends below each of `others`."""

    def decide(results: Results) -> Answer:
        ours = mean_of(results.at_end(figure, best, metric, problem))
        theirs = {name: mean_of(results.at_end(figure, name, metric, problem)) for name in others}
        if not ours.count or not all(mean.count for mean in theirs.values()):
            return MISSING
        shown = ", ".join(f"{name} {mean}" for name, mean in {best: ours, **theirs}.items())
        verdicts = [compared(ours, mean) for mean in theirs.values()]
        return worst(verdicts), f"{shown} ({seeds(ours, *theirs.values())})"

    return decide


def gap_closed(figure: str, metric: str, ours: str, before: Sequence[str], best: str, share: float):
    """Decides that `ours` closes more than a share of the gap between the better of `before` and `best`."""

    def decide(results: Results) -> Answer:
        means = {name: mean_of(results.at_end(figure, name, metric)) for name in (ours, best, *before)}
        if not all(mean.count for mean in means.values()):
            return MISSING
        start = min((means[name] for name in before), key=lambda mean: mean.value)
        gap = start.value - means[best].value
        counted = seeds(*means.values())
        if gap <= 0:
            text = f"there is no gap: {best} {means[best]}, the better of {' and '.join(before)} {start}"
            return verdict(means[ours].value <= start.value), f"{text}, {ours} {means[ours]} ({counted})"
        # The point that is to be passed, on the way from one mean to the other.
        error = np.hypot((1 - share) * start.error, share * means[best].error)
        goal = Mean(start.value - share * gap, float(error), start.count)
        closed = (start.value - means[ours].value) / gap
        shown = (
            f"{closed:.0%} of the gap to {best}: {ours} {means[ours]}, {best} {means[best]}, before {start}"
        )
        return compared(means[ours], goal), f"{shown} ({counted})"

    return decide


# Figure 1


def fine_structure_last(results: Results) -> Answer:
    by_round = results.by_round("1", "SNPE-A", "on_crescents")
    last = mean_of(results.at_end("1", "SNPE-A", "on_crescents"))
    if not last.count:
        return MISSING
    final = max(by_round)
    before = mean_of(by_round[final - 1])
    shown = f"share of draws on the crescents {before} in round {final - 1}, {last} in round {final}"
    return compared(before, last), f"{shown} ({seeds(last)}; exact 0.997)"


def misses_crescents(results: Results) -> Answer:
    theirs = mean_of(results.at_end("1", "SNPE-B", "on_crescents"))
    ours = mean_of(results.at_end("1", "MAF-APT", "on_crescents"))
    if not theirs.count or not ours.count:
        return MISSING
    shown = f"share of draws on the crescents: SNPE-B {theirs}, MAF-APT {ours}, exact 0.997"
    return compared(theirs, ours), f"{shown} ({seeds(theirs, ours)})"


def misses_a_mode(results: Results) -> Answer:
    shares = results.at_end("1", "SNL", "share_upper")
    if not len(shares):
        return MISSING
    lost = int(np.sum(np.minimum(shares, 1 - shares) < 0.1))
    return verdict(
        lost > len(shares) / 2
    ), f"a mode has less than 10 % of the draws in {lost} of {len(shares)} runs"


def finds_both_modes(results: Results) -> Answer:
    shares = results.at_end("1", "MDN-APT", "share_upper")
    if not len(shares):
        return MISSING
    found = int(np.sum(np.minimum(shares, 1 - shares) > 0.3))
    return verdict(
        found == len(shares)
    ), f"both modes have more than 30 % of the draws in {found} of {len(shares)} runs"


def far_more_simulations(results: Results) -> Answer:
    goal = mean_of(results.at_end("1", "MAF-APT", "mmd"))
    runs = results.of("1", "SMC-ABC")
    if not goal.count or not runs:
        return MISSING
    needed, reached = [], {}
    for seed in sorted({line["seed"] for line in runs}):
        populations = [line for line in runs if line["seed"] == seed]
        close = [line["simulations"] for line in populations if line["metrics"]["mmd"] <= goal.value]
        needed.append(close[0] if close else np.inf)
        for eps in (1.0, 0.1, 0.01):
            at = [line["simulations"] for line in populations if line["notes"]["eps"] <= 1.0001 * eps]
            if at:
                reached.setdefault(eps, []).append(at[0])
    counts = ", ".join(f"{np.mean(some):.2g} at eps = {eps:g}" for eps, some in reached.items())
    least = np.median(needed)
    never = "never" if np.isinf(least) else f"after {least:.2g} simulations"
    used = results.last("1", "MAF-APT")[0]["simulations"]
    shown = f"simulations: {counts}; MAF-APT's MMD after {used:,} simulations is reached {never}"
    return verdict(least > 10 * used), f"{shown} ({len(needed)} runs)"


# Table 1


def apt_takes_all(results: Results) -> Answer:
    found = results.last("table_1", "APT")
    if not found:
        return MISSING
    asked = [answer for part in found[0]["metrics"].values() for answer in part.values()]
    return verdict(all(asked)), f"{sum(asked)} of {len(asked)} attempts are accepted"


def others_take_less(results: Results) -> Answer:
    found = {name: results.last("table_1", name) for name in table_1.METHODS}
    if not all(found.values()):
        return MISSING
    a, b = found["SNPE-A"][0]["metrics"], found["SNPE-B"][0]["metrics"]
    narrow = not a["estimators"]["flow"] and not a["priors"]["draws and density only"]
    return (
        verdict(narrow and b["estimators"]["flow"]),
        "SNPE-A refuses flows, priors without a map to N(0, I) and other proposals than its own; SNPE-B and "
        "SNL take flows and any prior",
    )


# Figure 3


def at_dimension(results: Results, method: str, d: int) -> Mean:
    """MMD at the end; SLCP itself is figure 2's."""
    if d == 8:
        return mean_of(results.at_end("2", method, "mmd"))
    return mean_of(results.at_end("3", method, "mmd", f"dim(x) = {d}"))


def of_the_prior(results: Results) -> Mean:
    """Whoever measured it: runs that went through all rounds."""
    found = [results.at_end("3", method, "mmd_prior") for method in results.methods("3")]
    return mean_of(np.concatenate(found or [[]]))


def like_the_prior(results: Results) -> Answer:
    snl, prior = at_dimension(results, "SNL", 100), of_the_prior(results)
    if not snl.count:
        return MISSING
    return verdict(snl.value > 0.8 * prior.value), f"MMD {snl}, of the prior {prior.value:.3g} ({seeds(snl)})"


def degrades_slightly(results: Results) -> Answer:
    first, last = at_dimension(results, "APT", 8), at_dimension(results, "APT", 100)
    prior = of_the_prior(results)
    if not first.count or not last.count:
        return MISSING
    shown = f"MMD {first} at dim(x) = 8, {last} at 100, of the prior {prior.value:.3g} ({seeds(first, last)})"
    return verdict(last.value - first.value < 0.25 * (prior.value - first.value)), shown


def recover_at_moderate(results: Results) -> Answer:
    means = {name: at_dimension(results, name, 20) for name in ("APT", "SNL")}
    prior = of_the_prior(results)
    if not all(mean.count for mean in means.values()):
        return MISSING
    shown = ", ".join(f"{name} {mean}" for name, mean in means.items())
    holds = all(mean.value < 0.5 * prior.value for mean in means.values())
    return verdict(holds), f"MMD at dim(x) = 20: {shown}, prior {prior.value:.3g} ({seeds(*means.values())})"


def weights_of_posteriors(results: Results) -> Answer:
    del results
    counts = {
        name: [networks.posterior_weights(name, d) for d in networks.SIZES] for name in networks.FAMILIES
    }
    linear = all(networks.is_linear(some) for some in counts.values())
    return verdict(linear), networks.shown(counts)


def weights_of_likelihoods(results: Results) -> Answer:
    del results
    counts = {
        name: [networks.likelihood_weights(name, d) for d in networks.SIZES] for name in networks.FAMILIES
    }
    quadratic = not any(networks.is_linear(some) for some in counts.values())
    cause = (
        ". The flow's layers are as wide as x, so that every entry can depend on all before it; with the 50 "
        "units of figure 3 they would grow linearly"
    )
    return verdict(quadratic), networks.shown(counts) + cause


# Figures 4 and M/G/1


def earlier(figure: str, metric: str, best: str, others: Sequence[str]):
    """Decides that `best` is below the others, on average over the first half of the rounds but round 1."""

    def averages(results: Results, method: str) -> Mean:
        by_seed: dict[int, list[float]] = {}
        for line in results.of(figure, method):
            if 1 < line["round"] <= max(2, line["rounds"] // 2) and line["metrics"].get(metric) is not None:
                by_seed.setdefault(line["seed"], []).append(line["metrics"][metric])
        return mean_of([float(np.mean(some)) for some in by_seed.values()])

    def decide(results: Results) -> Answer:
        ours, theirs = averages(results, best), {name: averages(results, name) for name in others}
        if not ours.count or not all(mean.count for mean in theirs.values()):
            return MISSING
        shown = ", ".join(f"{name} {mean}" for name, mean in {best: ours, **theirs}.items())
        verdicts = [compared(ours, mean) for mean in theirs.values()]
        return worst(verdicts), f"{shown} ({seeds(ours, *theirs.values())})"

    return decide


def agree_at_end(results: Results) -> Answer:
    parts = [
        np.array([results.at_end("4", name, metric) for metric in ("mean", "std")]) for name in ("APT", "SNL")
    ]
    if not all(part.size for part in parts):
        return MISSING
    (mean_a, std_a), (mean_b, std_b) = (part.mean(axis=1) for part in parts)
    apart = np.max(np.abs(mean_a - mean_b) / std_b)
    ratio = std_a / std_b
    holds = apart < 0.5 and np.all((ratio > 2 / 3) & (ratio < 3 / 2))
    shown = f"means differ by at most {apart:.2g} of SNL's standard deviations, which APT's are "
    return verdict(holds), shown + f"{ratio.min():.2g} to {ratio.max():.2g} times of"


# Figure 5


def series(results: Results, problem: str, method: str, metric: str) -> Mean:
    return mean_of(results.at_end("5", method, metric, problem))


def rnn_like_statistics(results: Results) -> Answer:
    parts = [
        [results.at_end("5", name, metric, "without noise") for metric in ("mean", "std")]
        for name in ("RNN-APT", "APT, statistics")
    ]
    if not all(len(part[0]) for part in parts):
        return MISSING
    (mean_a, std_a), (mean_b, std_b) = ([array.mean(axis=0) for array in part] for part in parts)
    apart, ratio = np.max(np.abs(mean_a - mean_b) / std_b), std_a / std_b
    widths = f"{ratio.min():.2g} to {ratio.max():.2g} times"
    shown = f"means differ by at most {apart:.2g} standard deviations; widths are {widths}"
    counts = seeds(Mean(0, 0, len(parts[0][0])), Mean(0, 0, len(parts[1][0])))
    return verdict(
        apart < 1 and np.all((ratio > 0.5) & (ratio < 2))
    ), f"{shown} those with statistics ({counts})"


def clustered(problem: str, method: str, widest: float):
    """Decides that posteriors are much narrower than the prior, and the truth is inside them."""

    def decide(results: Results) -> Answer:
        far = results.at_end("5", method, "truth_in_sd", problem)
        if not len(far):
            return MISSING
        spread = series(results, problem, method, "spread")
        inside = float(np.mean(np.abs(far) < 3))
        prior = 7 / np.sqrt(12)
        shown = f"the truth is within 3 sd in {inside:.0%} of the marginals; sd {spread}, prior's {prior:.2g}"
        return verdict(inside > 0.9 and spread.value < widest * prior), f"{shown} ({seeds(spread)})"

    return decide


def noise_broadens(results: Results) -> Answer:
    clean, noisy = (series(results, problem, "RNN-APT", "spread") for problem in figure_5.SERIES)
    if not clean.count or not noisy.count:
        return MISSING
    return compared(clean, noisy), f"sd {clean} without noise, {noisy} with noise ({seeds(clean, noisy)})"


def statistics_worse(metric: str):
    def decide(results: Results) -> Answer:
        rnn, statistics = (series(results, "noisy", name, metric) for name in ("RNN-APT", "APT, statistics"))
        if not rnn.count or not statistics.count:
            return MISSING
        return compared(rnn, statistics), f"RNN-APT {rnn}, statistics {statistics} ({seeds(rnn, statistics)})"

    return decide


# Figure 6


def truth_covered(results: Results) -> Answer:
    ranks = results.at_end("6", "APT", "truth_quantile")
    if not len(ranks):
        return MISSING
    inside = float(np.mean((ranks > 0.025) & (ranks < 0.975)))
    # Three standard errors of a share of 95 % over so many marginals.
    least = 0.95 - 3 * np.sqrt(0.95 * 0.05 / ranks.size)
    shown = f"{inside:.0%} of the true parameters lie in the central 95 % of their marginals"
    return verdict(inside >= least), f"{shown} ({len(ranks)} problems)"


def paper_counts(results: Results) -> Answer:
    del results
    found = networks.rock_paper_scissors_weights()
    return verdict(found == (8768, 4200, 612)), f"{found[0]} + {found[1]} + {found[2]}"


# Complexity


def quadratic_terms(results: Results, method: str) -> dict[tuple[int, int], np.ndarray]:
    """Coefficients of M², M and 1 in the operations of a step, by dim(x) and units."""
    found: dict[tuple[int, int], dict[int, float]] = {}
    for line in results.of("complexity", method, "one core"):
        m = line["metrics"]
        found.setdefault((m["dim_x"], m["units"]), {})[m["atoms"]] = m["operations"]
    return {
        shape: np.polyfit(list(counts), list(counts.values()), 2)
        for shape, counts in found.items()
        if len(counts) > 2
    }


def pair_term_without_d(results: Results) -> Answer:
    parts = {family: quadratic_terms(results, f"{family}, atomic") for family in ("MDN", "MAF")}
    if not all((10, 50) in part and (1000, 50) in part for part in parts.values()):
        return MISSING
    pairs = {family: (part[10, 50][0], part[1000, 50][0]) for family, part in parts.items()}
    shown = "; ".join(
        f"{family} {a:,.0f} M² at dim(x) = 10, {b:,.0f} M² at 1000" for family, (a, b) in pairs.items()
    )
    return verdict(all(abs(a - b) < 0.01 * a for a, b in pairs.values())), shown


def pair_term_without_network(results: Results) -> Answer:
    part = quadratic_terms(results, "MDN, atomic")
    if (10, 50) not in part or (10, 100) not in part:
        return MISSING
    a, b = part[10, 50][0], part[10, 100][0]
    return verdict(abs(a - b) < 0.01 * a), f"{a:,.0f} M² with 50 units, {b:,.0f} M² with 100"


def linear_without_atoms(results: Results) -> Answer:
    parts = {family: quadratic_terms(results, f"{family}, maximum likelihood") for family in ("MDN", "MAF")}
    if not all((10, 50) in part for part in parts.values()):
        return MISSING
    shares = {family: abs(part[10, 50][0]) * 100 / part[10, 50][1] for family, part in parts.items()}
    shown = "; ".join(
        # Below that it is the fit's rounding, which differs between machines.
        f"{family}: at M = 100 the quadratic term is {f'{share:.1e}' if share > 1e-6 else 'less than 1e-06'} "
        f"of the linear one"
        for family, share in shares.items()
    )
    return verdict(all(share < 0.01 for share in shares.values())), shown


def no_difference_on_gpu(results: Results) -> Answer:
    shown, ratios = [], []
    for family in ("MDN", "MAF"):
        times = {
            line["metrics"]["atoms"]: line["metrics"]["milliseconds"]
            for line in results.of("complexity", f"{family}, atomic", "device")
            if line["device"] != "CPU core"
            and (line["metrics"]["dim_x"], line["metrics"]["units"]) == (10, 50)
        }
        if times:
            ratios.append(times[100] / times[10])
            shown.append(f"{family} {times[10]:.2g} ms at M = 10, {times[100]:.2g} ms at M = 100")
        else:
            shown.append(f"{family} not yet run")
    return (verdict(max(ratios) < 1.2), "; ".join(shown)) if ratios else MISSING


def simulations_take_longest(results: Results) -> Answer:
    shown, shares = [], []
    for figure, method in (("5", "RNN-APT"), ("6", "APT")):
        ended = [line for line in results.last(figure, method) if "seconds_simulating" in line]
        if not ended:
            return MISSING
        line = ended[0]
        own = [
            x["seconds_simulating"]
            for x in results.of(figure, method, line["problem"])
            if x["seed"] == line["seed"]
        ]
        share = sum(own) * line["at_once"] / line["seconds"]
        shares.append(share)
        shown.append(f"figure {figure}: {share:.0%} of the run")
    return verdict(min(shares) > 0.5), "; ".join(shown)


# Proposition 1 and leakage


def ratios_right(results: Results) -> Answer:
    excess = mean_of(results.at_end("proposition_1", "MAF-APT", "excess"))
    if not excess.count:
        return MISSING
    wrong = mean_of(results.at_end("proposition_1", "MAF-APT", "ratios_wrong"))
    first = mean_of(results.by_round("proposition_1", "MAF-APT", "excess")[1])
    learned = f"the loss exceeds its least value by {first} nats after round 1 and {excess} at the end"
    shown = f"{learned}; {wrong.value:.1%} of the log-ratios' variance is wrong"
    return verdict(wrong.value < 0.1 and excess.value < 0.1 * np.log(100)), f"{shown} ({seeds(excess)})"


def leaks_more(results: Results) -> Answer:
    by_round = proposition_1.leakage(results, "APT")
    if len(by_round) < 2:
        return MISSING
    first, last = by_round[min(by_round)], by_round[max(by_round)]
    shown = (
        f"SLCP: {first} of the mass outside after round 1, {last} after round {max(by_round)} ({seeds(last)})"
    )
    return compared(first, last), shown


def ours_keeps_inside(results: Results) -> Answer:
    by_round = proposition_1.leakage(results, "aptinfer default")
    if not by_round:
        return MISSING
    largest = max(mean.value for mean in by_round.values())
    return verdict(largest == 0), f"SLCP: {largest:g} in all {len(by_round)} rounds"
