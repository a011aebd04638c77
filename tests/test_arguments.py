import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import widemargin as wm
from widemargin import api, recipes
from widemargin.arguments import called_here, right_call
from widemargin.method import Method

BALL = wm.Linf(0.1, wm.OPEN)
X, Y = torch.rand(6, 3), torch.arange(6) % 3
NET = nn.Linear(3, 3)
PLAN = wm.Plan(wm.Epochs(1), wm.Adam(0.01))
FRONT_DOOR = [
    value
    for name in wm.__all__
    if inspect.isfunction(value := getattr(wm, name))
    and value.__module__ in (api.__name__, recipes.__name__, wm.fit.__module__)
]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: wm.attack(NET, X, Y, BALL, n_steps=3), "attack has no argument n_steps: it is called steps"),
        (lambda: wm.attack(NET, images=X, labels=Y, ball=BALL), "attack has no argument images: it is called x"),
        (
            lambda: wm.attack(NET, X, Y, epsilon=0.1),
            "attack has no argument epsilon: give wm.attack(model, x, y, wm.Linf(8 / 255))",
        ),
        (
            lambda: wm.attack(NET, X, Y),
            "attack: missing a required argument: 'ball': give wm.attack(model, x, y, wm.Linf(8 / 255))",
        ),
        (
            lambda: wm.robust_accuracy(NET, X, Y, eps=0.1),
            "robust_accuracy has no argument eps: give wm.robust_accuracy(model, (x, y), wm.Linf(8 / 255))",
        ),
        (lambda: wm.audit(NET, (X, Y), epsilon=0.1), "audit has no argument epsilon: it is called eps"),
        (lambda: wm.audit(NET, (X, Y), 0.1, n_ex=3), "audit has no argument n_ex: it is called points"),
        (lambda: wm.predict(network=NET, x=X), "predict has no argument network: it is called model"),
        (
            lambda: wm.fit(NET, (X, Y), wm.standard(), lr=0.1, epochs=3),
            "fit has no argument lr: give wm.fit(network, (x, y), wm.udp(wm.Linf(8 / 255), alpha=2 / 255, steps=10), "
            "wm.Plan(wm.Epochs(20), wm.Adam(0.01)))",
        ),
        (
            lambda: wm.fit(model=NET, data=(X, Y), method=wm.standard(), plan=PLAN),
            "fit has no argument model: it is called network",
        ),
        (lambda: wm.pgd(BALL, 0.1, num_steps=3), "pgd has no argument num_steps: it is called steps"),
        (lambda: wm.pgd(BALL, step_size=0.1, steps=3), "pgd has no argument step_size: it is called alpha"),
        (lambda: wm.trades(BALL, 0.1, 3, beta=6), "trades has no argument beta: it is called weight"),
        (
            lambda: wm.pgd(epsilon=0.1, alpha=0.1, steps=3),
            "pgd has no argument epsilon: give wm.pgd(wm.Linf(8 / 255), alpha=2 / 255, steps=10)",
        ),
        (lambda: wm.Linf(eps=0.1), "Linf has no argument eps: it is called radius"),
        (lambda: wm.L2(), "L2: missing a required argument: 'radius': give wm.L2(8 / 255)"),
        (
            lambda: wm.Plan(wm.Epochs(1), wm.Adam(0.1), batch_size=3),
            "Plan has no argument batch_size: it is called batch",
        ),
    ],
)
def test_a_wrong_argument_gets_the_right_name_or_call(call: Any, sentence: str) -> None:
    with pytest.raises(TypeError) as refused:
        call()
    assert str(refused.value) == sentence


@pytest.mark.parametrize("function", FRONT_DOOR, ids=lambda function: function.__name__)
def test_every_call_that_is_advised_is_one(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__name__} has no argument nonsense: give wm."):
        function(nonsense=1)
    # What it does not bind is a TypeError.
    bind, names = inspect.signature(function).bind, {name: name for name in ("model", "network", "x", "y")}
    assert eval(right_call(function).replace(f"wm.{function.__name__}", "bind", 1), {"wm": wm, "bind": bind, **names})
    if function.__module__ == recipes.__name__:
        assert isinstance(eval(right_call(function), {"wm": wm}), Method)


def test_functions_are_found_by_their_names() -> None:
    assert len(FRONT_DOOR) > 25
    assert pickle.loads(pickle.dumps(wm.pgd)) is wm.pgd
    assert inspect.signature(wm.pgd).parameters.keys() == {"ball", "alpha", "steps"}


def test_only_words_that_are_known_are_advised() -> None:
    assert called_here("n_steps", ["steps", "alpha"]) == "steps"
    assert called_here("n_steps", ["alpha"]) is None
    assert called_here("max_time", ["budget"]) == "budget"
    assert called_here("steps", ["steps"]) is None
