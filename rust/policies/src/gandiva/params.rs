//! Parameters of `gandiva`.

use crate::place::PlacementParams;
use gangline_model::SimSpan;

/// Parameters of [`super::Gandiva`].
#[derive(Clone, Debug)]
pub(crate) struct GandivaParams {
    /// Most residents of a group, at least 1.
    pub max_residents: usize,
    /// Length of a turn, counted in progress.
    pub quantum: SimSpan,
    /// Time without progress of a resident that resumes where it ran before; `None` = the run's.
    pub switch: Option<SimSpan>,
    /// Most migrations of one decision.
    pub moves_per_event: usize,
    /// Whether two residents may run together.
    pub pack: bool,
    /// Sum of speeds above which a pair stays together.
    pub pack_gain: f64,
    /// Length of a trial, counted in progress.
    pub trial: SimSpan,
    /// Where groups are made.
    pub placement: PlacementParams,
}
