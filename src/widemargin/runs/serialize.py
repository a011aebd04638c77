"""How is a run written down so that it can be repeated?  As plain YAML of named parts; reading it runs no code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from widemargin.data.augment import CropFlip
from widemargin.data.images import ImageSet
from widemargin.data.limits import MOST_DEPTH, MOST_DESCRIPTION, listed, quoted, reason, short, size_of
from widemargin.data.local import ImageFolder, LocalData, Npz, Table
from widemargin.data.toy import LMS5, FromSklearn, NarrowCorridor, TwoDistances, TwoGaussians
from widemargin.files import Damaged, unsealed_text
from widemargin.method import BoundaryWeights, Method, SelfScaledBoundaryWeights, UniformWeights
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.perturb import objectives
from widemargin.perturb.ascent import (
    Ascent,
    AtCenter,
    Fixed,
    FullStep,
    Gaussian,
    InBall,
    LinearDecay,
    Misclassified,
    Never,
    ProjectToBoundary,
    RandomFraction,
    Steepest,
    Uniform,
)
from widemargin.perturb.balls import L1, L2, Box, Linf
from widemargin.perturb.boundary_distance import WithBoundaryDistance
from widemargin.perturb.objectives import Objective, Term
from widemargin.perturb.search import InTrainMode, Search, Unperturbed
from widemargin.runs.run import (
    AtInput,
    AtModule,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    MCDropoutSpec,
    SingleSpec,
    Trial,
    Validation,
)
from widemargin.runs.user_network import UserNetwork
from widemargin.training.plan import (
    EMA,
    SGD,
    SWA,
    Adam,
    Constant,
    Cosine,
    Epochs,
    Multistep,
    NoAugment,
    NoAverage,
    Plan,
    Triangle,
    Updates,
)
from widemargin.uncertainty.drawn import PerSearch, PerStep
from widemargin.uncertainty.dropout import EveryDropout, LastDropout

_DATA = (ImageSet, LocalData, Table, Npz, ImageFolder, NarrowCorridor, LMS5, TwoDistances, TwoGaussians, FromSklearn)
_NETWORKS = (
    LeNetSpec,
    ResNetSpec,
    DropoutResNetSpec,
    ResidualMLPSpec,
    MLPSpec,
    UserNetwork,
    AtInput,
    BeforeHead,
    AtModule,
)
_MEMBERS = (SingleSpec, EnsembleSpec, MCDropoutSpec, DeepKernelSpec, PerSearch, PerStep, EveryDropout, LastDropout)
_ASCENT = (
    Ascent,
    AtCenter,
    LinearDecay,
    Fixed,
    Gaussian,
    InBall,
    Misclassified,
    Never,
    RandomFraction,
    Steepest,
    ProjectToBoundary,
    Uniform,
    FullStep,
)
_METHODS = (
    Method,
    Search,
    WithBoundaryDistance,
    InTrainMode,
    Unperturbed,
    UniformWeights,
    BoundaryWeights,
    SelfScaledBoundaryWeights,
    Linf,
    L2,
    L1,
    Box,
)
_PLANS = (
    Plan,
    Epochs,
    Updates,
    Adam,
    SGD,
    Constant,
    Cosine,
    Triangle,
    Multistep,
    NoAugment,
    CropFlip,
    NoAverage,
    EMA,
    SWA,
)
_ALL: tuple[type, ...] = (*_DATA, *_NETWORKS, *_MEMBERS, *_ASCENT, *_METHODS, *_PLANS, Trial, Validation)
PARTS: dict[str, type] = {part.__name__: part for part in _ALL}
"""The only names that a file can use."""
TERMS: dict[str, Term] = {
    term.name: term for value in vars(objectives).values() if isinstance(value, Objective) for _, term in value.terms
}
_OWN = "own"
_RENAMED = {
    "LeNetShape": "LeNetSpec",
    "ResNetShape": "ResNetSpec",
    "DropoutResNetShape": "DropoutResNetSpec",
    "ResidualShape": "ResidualMLPSpec",
    "Widths": "MLPSpec",
    "OwnNetwork": "UserNetwork",
    "OwnData": "LocalData",
    "OneNetwork": "SingleSpec",
    "Members": "EnsembleSpec",
    "DropoutDraws": "MCDropoutSpec",
    "DeepKernelGP": "DeepKernelSpec",
    "Whole": "FullStep",
    "Part": "RandomFraction",
    "Fading": "LinearDecay",
    "ToZero": "ProjectToBoundary",
    "Even": "UniformWeights",
    "Nearness": "BoundaryWeights",
    "SelfScaledNearness": "SelfScaledBoundaryWeights",
    "AsTheyAre": "NoAugment",
    "LastWeights": "NoAverage",
}
"""Names of parts in runs that were written before version 0.2."""
_RENAMED_FIELDS = {"Adam": {"rate": "lr", "decay": "schedule"}, "SGD": {"rate": "lr", "decay": "schedule"}}
# In C where PyYAML was built with it: a description with a box of each feature's own is long.
# Of numbers such as 1:30:00 the reading takes a time that grows with the square of their length.
_LONG_NUMBER = re.compile(r"[-+0-9:._]{1000}")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def plain(part: Any) -> Any:
    """A part as numbers, text, lists and mappings: `Adam(0.1)` is `{"Adam": {"lr": 0.1, ...}}`.

    What is the user's own is written as its repr, under a name that cannot be read back.
    """
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, tuple):
        return [plain(item) for item in part]
    if isinstance(part, Objective):
        return {"Objective": [[weight, _term(term)] for weight, term in part.terms]}
    if is_dataclass(part) and PARTS.get(type(part).__name__) is type(part):
        return {type(part).__name__: {field.name: plain(getattr(part, field.name)) for field in fields(part)}}
    return {_OWN: repr(part)}


def _term(term: Term) -> Any:
    return term.name if TERMS.get(term.name) == term else {_OWN: term.name}


def made(value: Any) -> Any:
    """The part that `plain` wrote."""
    if isinstance(value, list):
        return tuple(made(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1:
        raise ValueError(f"a part must be one name with its fields, got {listed(value) or 'nothing'}")
    ((name, inner),) = value.items()
    if name == _OWN:
        raise ValueError(
            f"{inner} is your own and cannot be read from a file: go on by calling fit again from Python with the same "
            "arguments"
        )
    if name == "Objective":
        return _objective(inner)
    name = _RENAMED.get(name, name)
    if name not in PARTS:
        raise ValueError(f"{quoted(str(name))} is no part of widemargin: it can be one of {', '.join(sorted(PARTS))}")
    if not isinstance(inner, Mapping):
        raise ValueError(f"{name} must have fields, got {short(repr(inner))}")
    inner = {_RENAMED_FIELDS.get(name, {}).get(field, field): content for field, content in inner.items()}
    known = {field.name for field in fields(PARTS[name])}
    strange = [str(field) for field in inner if field not in known]
    if strange:
        raise ValueError(f"{name} has no field {strange[0]!r}: it has {', '.join(sorted(known)) or 'none'}")
    try:
        return PARTS[name](**{str(field): made(content) for field, content in inner.items()})
    except (TypeError, AttributeError, ArithmeticError, LookupError, RuntimeError) as problem:
        raise ValueError(f"{name} cannot be made of {short(str(dict(inner)))}: {reason(problem)}") from None


def _objective(terms: Any) -> Objective:
    try:
        pairs = [(float(weight), name) for weight, name in terms]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"an Objective must be a list of weights and names, got {short(repr(terms))}") from None
    if not pairs:
        raise ValueError("an Objective must have at least one term, got none")
    found = []
    for weight, name in pairs:
        if isinstance(name, Mapping):
            made(name)
        if not isinstance(name, str) or name not in TERMS:
            raise ValueError(
                f"{short(repr(name))} is no term of an objective: it can be one of {', '.join(sorted(TERMS))}"
            )
        found.append((weight, TERMS[name]))
    return Objective(tuple(found))


def written(description: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(description), sort_keys=False, width=120, allow_unicode=True)


def loaded(text: str) -> Any:
    """What YAML says, without aliases: one may stand for far more than the file has, or for what it is inside of."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("an alias, which no run needs")
            if isinstance(event, yaml.ScalarEvent) and _LONG_NUMBER.match(event.value):
                raise ValueError("a number of more than 1,000 characters")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ValueError(f"lists and mappings more than {MOST_DEPTH} deep")
        return yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, AttributeError) as problem:
        # Constructors of dates and numbers raise what their parts do.
        raise ValueError(" ".join(str(problem).split()) or type(problem).__name__) from None


def read_description(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"{path.parent} holds no run (no {path.name}): {_where_it_is(path.parent)}")
    size_of(path, MOST_DESCRIPTION)
    try:
        content = loaded(unsealed_text(path.read_text(encoding="utf-8"), path))
    except Damaged as problem:
        raise Damaged(f"{problem}: {_as_it_was(path.parent)}") from None
    except (OSError, ValueError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else " ".join(str(problem).split())
        raise Damaged(f"{path} must be the YAML file of a run, got {said}: {_as_it_was(path.parent)}") from None
    if not isinstance(content, dict):
        found = type(content).__name__
        raise Damaged(f"{path} must be the YAML file of a run, got a {found}: {_as_it_was(path.parent)}")
    return content


def _where_it_is(folder: Path) -> str:
    if (folder / "checkpoint.safetensors").exists():
        return f"`widemargin resume {folder}` writes it anew from the checkpoint"
    return "`widemargin runs` lists those there are"


def _as_it_was(folder: Path) -> str:
    if (folder / "checkpoint.safetensors").exists():
        return (
            f"delete it, and `widemargin resume {folder}` writes it as it was; other settings are another run, which "
            "`widemargin train` begins in another folder"
        )
    return "there is no checkpoint that knows it, so begin the run anew with `widemargin train` in another folder"


def read_run(path: Path) -> Trial:
    """The run of a run.yaml; ValueError in one sentence if it is none, or holds what is the user's own."""
    content = read_description(path)
    if "fitted" in content:
        raise ValueError(
            f"{path} is of a network or data that Python made, which a file cannot: go on by calling fit again with "
            "the same arguments"
        )
    try:
        trial = made(content.get("run"))
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    if not isinstance(trial, Trial):
        raise ValueError(f"{path} must describe a run, got {type(trial).__name__}")
    return trial
