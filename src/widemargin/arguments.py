"""Sentences for arguments that a call does not take: what they are called here, or else the right call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

ELSEWHERE = {
    "lr": "learning_rate learning_rate_init step_lr",
    "schedule": "scheduler lr_schedule lr_scheduler",
    "eps": "epsilon epsilons radius radii eps_train",
    "alpha": "step_size eps_step eps_iter",
    "steps": "num_steps n_steps nb_iter max_iter iterations iters n_iter",
    "weight": "beta lambda lam reg trades_beta",
    "batch": "batch_size bs",
    "epochs": "num_epochs n_epochs max_epochs",
    "data": "dataset train input",
    "network": "model arch architecture net",
    "method": "loss algorithm attack defense",
    "label": "target target_column y",
    "points": "n_examples n_ex num_samples n_samples limit",
    "out": "output output_dir out_dir save_dir folder",
    "seed": "random_state random_seed",
    "device": "gpu cuda",
    "fit": "temperature scaling",
    "weights": "checkpoint ckpt state_dict",
    "members": "ensemble ensemble_size n_members",
    "fixed": "immutable frozen",
    "judge_eps": "eval_eps evaluation_eps",
    "validate_eps": "val_eps validation_eps",
    "validate_every": "val_every eval_every",
    "stop_after": "time_limit max_time",
    "budget": "time_limit max_time timeout",
    "workers": "n_jobs num_workers jobs",
    "trials": "n_trials num_trials",
}
"""What options and arguments are called in other libraries."""
ELSEWHERE_IN_PYTHON = {
    "radius": "eps epsilon",
    "batch_size": "batch bs",
    "model": "network net",
    "x": "inputs images",
    "y": "labels",
    "targeted": "target targets",
    "bins": "n_bins num_bins",
}
"""The same of arguments that are no options of the command line, or have no name there."""
EXAMPLES = {
    "ball": "wm.Linf(8 / 255)",
    "radius": "8 / 255",
    "eps": "eps=8 / 255",
    "alpha": "alpha=2 / 255",
    "steps": "steps=10",
    "weight": "weight=1.0",
    "patience": "patience=1",
    "scale": "scale=0.1",
    "data": "(x, y)",
    "method": "wm.udp(wm.Linf(8 / 255), alpha=2 / 255, steps=10)",
    "plan": "wm.Plan(wm.Epochs(20), wm.Adam(0.01))",
}
"""What a call gives for an argument that it must have; others stand there by their names."""
Made = TypeVar("Made", bound=Callable[..., Any])


def called_here(word: str, known: Collection[str], table: Mapping[str, str] = ELSEWHERE) -> str | None:
    """Which of the known words is meant by one of another library."""
    return next((ours for ours, others in table.items() if ours in known and word in others.split()), None)


def called_as(example: str = "") -> Callable[[Made], Made]:
    """Arguments that a class or function at the front door does not take get a sentence with the right name or call.

    Without an example the call follows from the arguments that must be given.
    """

    def explain(made: Made) -> Made:
        right = example or right_call(made)
        if isinstance(made, type):
            made.__init__ = _checked(made.__init__, made.__name__, right)  # type: ignore[misc]
            return made
        return cast(Made, _checked(made, made.__name__, right))

    return explain


def right_call(made: Callable[..., Any]) -> str:
    """Such as wm.Linf(8 / 255)."""
    required = [name for name, one in inspect.signature(made).parameters.items() if one.default is one.empty]
    return f"wm.{made.__name__}({', '.join(EXAMPLES.get(name, name) for name in required)})"


def _checked(call: Callable[..., Any], name: str, right: str) -> Callable[..., Any]:
    signature = inspect.signature(call)

    @wraps(call)
    def checked(*values: object, **named: object) -> Any:
        for word in named:
            if word not in signature.parameters:
                ours = called_here(word, signature.parameters.keys() - named.keys(), ELSEWHERE | ELSEWHERE_IN_PYTHON)
                raise TypeError(f"{name} has no argument {word}: {f'it is called {ours}' if ours else f'give {right}'}")
        try:
            signature.bind(*values, **named)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}: give {right}") from None
        return call(*values, **named)

    return checked
