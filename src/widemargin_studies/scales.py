"""How much of the published work is done?  All of it, or so much less of everything that it takes minutes."""

from widemargin_studies.pixels import Scale

PAPER = Scale("paper", seeds=(0, 1, 2))
ONE_SEED = Scale("one seed", seeds=(0,), attacked=1_000, stages=(30, 60, 100))
"""Fashion-MNIST as published, but for one seed and 1,000 attacked images; its learning rate is constant, so that the
network of an epoch is that of a shorter training."""
FASHION_SMALL = Scale("small", seeds=(0,), fraction=0.1, epochs=0.1, batch=64, tests=100, attacked=100)
CIFAR_SMALL = Scale(
    "small",
    seeds=(0,),
    fraction=0.05,
    epochs=0.1,
    width=0.125,
    most_steps=4,
    batch=64,
    tests=300,
    attacked=300,
    standard_attack=False,
)
LATENT_SMALL = Scale("small", seeds=(0, 1), epochs=0.15, width=0.125, batch=64, tests=2_000)
