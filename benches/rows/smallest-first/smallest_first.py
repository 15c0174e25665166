"""The policy of the guide to policies in Python, as a row of the bench by others."""

import gangline as gl


class SmallestFirst(gl.Policy):
    """Fewest GPUs first; a job that does not fit is passed over."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        """Start the waiting jobs that fit, those with the fewest GPUs first."""
        plan, gpus = gl.Plan(view), view.waiting.gpus
        for i in gpus.argsort(kind="stable"):
            plan.place(view.waiting.job[i])
        return plan
