//! Placement of the toys.

use gangline_policies::kit::Places;
use gangline_policies::place::{Level, PlacementParams};

/// Creates the placement rule of a toy, which accepts places up to a level.
pub(super) fn places(max_level: Level) -> Places {
    Places::new(PlacementParams {
        max_level,
        ..PlacementParams::default()
    })
}
