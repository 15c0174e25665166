//! Parameters of `gandiva`.

use crate::place::PlacementParams;
use gangline_model::SimSpan;

/// Parameters of [`super::Gandiva`].
#[derive(Clone, Debug)]
pub(crate) struct GandivaParams {
    /// Maximum number of residents of a group, at least 1.
    pub max_residents: usize,
    /// Length of a turn, counted in progress.
    pub quantum: SimSpan,
    /// Overhead of a resident that resumes on the GPUs on which it ran before; `None` means the overhead of the run.
    pub switch: Option<SimSpan>,
    /// Maximum number of migrations in one decision.
    pub moves_per_event: usize,
    /// Whether two residents may run together.
    pub pack: bool,
    /// Sum of relative speeds above which a pair stays together.
    pub pack_gain: f64,
    /// Length of a trial, counted in progress.
    pub trial: SimSpan,
    /// Placement of new groups.
    pub placement: PlacementParams,
}
