"""Your own network and data, perturbed at the input and in latent space."""

import torch
from torch import nn

import widemargin as wm


def main(updates: int = 600) -> dict[str, wm.measure.Margins]:
    # Your data: floats [rows, features] and whole-number labels [rows]; here three blobs.
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(150) % 3
    centers = torch.tensor([[0.0, 1.0], [-1.0, -0.6], [1.0, -0.6]])
    data = wm.Dataset(centers[labels] + 0.25 * torch.randn(150, 2, generator=generator), labels)

    found = {}
    for where in ("input", "latent space"):
        # Your network: any module that returns logits.
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
        )
        cut = wm.at_input(net) if where == "input" else wm.uncertainty.after(net, 5)
        network = wm.Single(cut)
        method = wm.udpr(wm.L2(0.5, wm.OPEN), alpha=0.05, steps=10, weight=1.0)
        plan = wm.Plan(wm.Updates(updates), wm.Adam(5e-3, wm.Cosine()), batch=50)
        for _ in wm.train(network, data, method, plan, seed=0):
            pass
        found[where] = wm.margins(network, data)
        print(f"perturbed at the {where}: errors {found[where].errors}, mean share {found[where].mean_fraction:.2f}")
    return found


if __name__ == "__main__":
    main()
