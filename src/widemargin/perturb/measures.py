"""What a search climbs for each measure of uncertainty, by the measure's plain name."""

from widemargin.perturb.objectives import (
    perturbed_log_entropy as entropy,
)
from widemargin.perturb.objectives import (
    perturbed_log_expected_entropy as expected_entropy,
)
from widemargin.perturb.objectives import (
    perturbed_log_mutual_information as mutual_information,
)
from widemargin.perturb.objectives import (
    perturbed_log_variation_ratio as variation_ratio,
)

__all__ = ["entropy", "expected_entropy", "mutual_information", "variation_ratio"]
