"""Hooks of a module: the one place that looks for them."""

from torch import nn


def is_hooked(module: nn.Module) -> bool:
    """Whether this module itself has a hook.  Its layers may then not be taken out of it or computed together."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def any_hooked(module: nn.Module) -> bool:
    """Whether it or any of its parts has one."""
    return any(map(is_hooked, module.modules()))


def hooked_as(module: nn.Module, other: nn.Module) -> nn.Module:
    """A module that takes the place of another and has its hooks before and after a call."""
    module._forward_pre_hooks, module._forward_hooks = other._forward_pre_hooks, other._forward_hooks
    return module
