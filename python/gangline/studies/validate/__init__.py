"""Measures, job by job, how far simulated runs are from observed times."""

from __future__ import annotations

from gangline.studies.validate.face import TOLERANCE_S, validate
from gangline.studies.validate.result import PolicyValidation, Validation
from gangline.studies.validate.runtime import RuntimeFit, fit_runtime

__all__ = ["TOLERANCE_S", "PolicyValidation", "RuntimeFit", "Validation", "fit_runtime", "validate"]
