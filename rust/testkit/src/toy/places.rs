//! Where toys place jobs.

use gangline_policies::kit::Places;
use gangline_policies::place::{Level, PlacementParams};

/// The places of a toy, up to a level.
pub(super) fn places(max_level: Level) -> Places {
    Places::new(PlacementParams {
        max_level,
        ..PlacementParams::default()
    })
}
