"""Forecasts when the jobs that wait in a queue will start."""

from __future__ import annotations

from gangline.studies.eta.forecast import eta
from gangline.studies.eta.result import Cause, Eta, Forecast, Spread

__all__ = ["Cause", "Eta", "Forecast", "Spread", "eta"]
