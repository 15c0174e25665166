//! Placement of the toys.

use gangline_policies::kit::Places;
use gangline_policies::place::{Level, PlacementParams};

/// Creates a toy policy's placement rule, which accepts placements up to a given locality level.
pub(super) fn places(max_level: Level) -> Places {
    Places::new(PlacementParams {
        max_level,
        ..PlacementParams::default()
    })
}
