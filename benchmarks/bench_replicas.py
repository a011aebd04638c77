"""Many seeds in one batched product against a loop over seeds."""

from timing import header, ratio, show

import widemargin as wm

METHOD = wm.udp(wm.Linf(0.5, wm.OPEN), 0.05, 10)
PLAN = wm.Plan(wm.Updates(20), wm.Adam(5e-3))
CLOUD = wm.data.NarrowCorridor().draw()


def fresh(seed: int) -> wm.networks.MLP:
    return wm.networks.MLPSpec((2, 64, 64, 2)).build(wm.rng.Rng.seeded(seed, purpose="weights").generators[0])


def loop(seeds: range) -> None:
    for seed in seeds:
        list(wm.train(wm.Single(wm.at_input(fresh(seed))), CLOUD, METHOD, PLAN, (seed,)))


def replicas(seeds: range) -> None:
    network = wm.uncertainty.Replicas([fresh(seed) for seed in seeds])
    list(wm.train(network, CLOUD.repeat(len(seeds)), METHOD, PLAN, tuple(seeds)))


if __name__ == "__main__":
    header("Training many seeds of a 2-64-64-2 MLP on the corridor, 20 updates of UDP with 1..10 steps")
    for count in (1, 5, 10, 50):
        seeds = range(count)
        result = ratio(
            lambda seeds=seeds: loop(seeds), lambda seeds=seeds: replicas(seeds), rounds=3 if count > 10 else 5
        )
        show(f"{count} seeds: loop -> replicas", *result)
