"""A method of your own: maximise your own measure of uncertainty, and train on the perturbed points."""

import widemargin as wm


@wm.perturb.objective
def ambiguity(pair: wm.perturb.Pair):
    """Minus the lead of the first class over the second: 0 on the boundary."""
    best_two = pair.perturbed().log_softmax(-1).mean(0).topk(2, -1).values
    return -(best_two[:, 0] - best_two[:, 1])


def main(updates: int = 1_000) -> wm.measure.Margins:
    search = wm.perturb.Search(
        ambiguity, wm.L2(0.3, wm.OPEN), wm.perturb.Ascent(wm.perturb.Uniform(1, 10), wm.perturb.Steepest(0.03))
    )
    method = wm.Method(search, wm.perturb.clean_loss + 0.5 * wm.perturb.perturbed_loss)
    print(method)

    data = wm.data.TwoDistances().draw()
    network = wm.Single(wm.at_input(wm.networks.MLPSpec((2, 64, 64, 2)).build(wm.rng.Rng.seeded(0).generators[0])))
    plan = wm.Plan(wm.Updates(updates), wm.Adam(5e-3, wm.Cosine()))
    for record in wm.train(network, data, method, plan, seed=0):
        if record.update % 250 == 0:
            print(f"update {record.update}: loss {record.loss:.4f}")

    found = wm.margins(network, data)
    print(
        f"errors {found.errors}, worst margin {found.worst_fraction:.2f} of the best possible, mean "
        f"{found.mean_fraction:.2f}"
    )
    return found


if __name__ == "__main__":
    main()
