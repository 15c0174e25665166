//! Shares in closed form.

use gangline_allocation::{Allocator, Ask, FastestFirst};
use gangline_model::{GpuType, JobId};

fn typed(name: &str) -> GpuType {
    GpuType {
        name: name.to_owned(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    }
}

#[test]
fn fastest_first_breaks_ties_by_name_stops_at_no_room_and_passes_over_rate_zero() {
    let mut allocator = FastestFirst::default();
    allocator.start(&[typed("b"), typed("a")]).expect("fine");
    let ask = Ask {
        jobs: (0..5).map(JobId).collect(),
        gangs: vec![1.0, 1.0, 1.0, 2.0, 1.0],
        capacity: vec![2.0, 1.0],
        // The jobs are, in this order: one with a tie; one for which only the slower type is left; one with rate 0 on
        // the remaining type; one without room; one that is never reached.
        rates: vec![3.0, 3.0, 2.0, 9.0, 0.0, 5.0, 4.0, 4.0, 4.0, 4.0],
        ..Ask::default()
    };
    let shares = allocator.allocate(&ask).expect("a closed form");
    assert_eq!(shares, [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
