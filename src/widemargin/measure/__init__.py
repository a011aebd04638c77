"""Numbers of a trained model: accuracy, robustness, margins, certificates, calibration, diagnostics."""
