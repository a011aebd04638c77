"""What do the axes mean?  M members, B batch, C classes, F features of a point, E features of an encoded point."""

from jaxtyping import Float, Int
from torch import Tensor

Points = Float[Tensor, "B *F"]
Encoded = Float[Tensor, "B *E"]
Labels = Int[Tensor, " B"]
MemberLogits = Float[Tensor, "M B C"]
LogProbs = Float[Tensor, "B C"]
PerSample = Float[Tensor, " B"]
StepCounts = Int[Tensor, " B"]
