//! Parameters of `gandiva`.

use crate::place::PlacementParams;
use gangline_model::SimSpan;

/// Parameters of [`super::Gandiva`].
#[derive(Clone, Debug)]
pub(crate) struct GandivaParams {
    /// Maximum number of residents in a group, at least 1.
    pub max_residents: usize,
    /// Length of a turn; only time with progress counts.
    pub quantum: SimSpan,
    /// Overhead of a resident that resumes on the GPUs on which it ran before; `None` means the run's restart overhead.
    pub switch: Option<SimSpan>,
    /// Maximum number of migrations in one decision.
    pub moves_per_event: usize,
    /// Whether two residents may run together.
    pub pack: bool,
    /// A pair stays together if its relative speeds add up to more than this.
    pub pack_gain: f64,
    /// Length of a trial; only time with progress counts.
    pub trial: SimSpan,
    /// Placement of new groups.
    pub placement: PlacementParams,
}
