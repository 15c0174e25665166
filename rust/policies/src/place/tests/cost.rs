//! The time of a question must not grow with the cluster: 10^3 against 10^5 servers.

use super::{Demand, World, all_settings, demand, placer};
use gangline_model::GpuTypeId;
use std::time::Duration;

/// A linear walk would grow 100 times; the logarithm and the caches of the machine explain a few.
const GROWTH_MAX: f64 = 12.0;

fn world(servers: usize) -> World {
    let rows: Vec<(u32, u32, u32)> = (0..servers).map(|at| (0, 8, (at / 40) as u32)).collect();
    let mut world = World::new(&rows, &[]);
    // every twentieth server is wholly free, the others have 0 to 3 free GPUs
    for at in (0..servers).filter(|at| at % 20 != 0) {
        world.set(at, 0b111 >> (at % 4));
    }
    world
}

/// Shortest time of a batch of questions, each followed by taking and giving back what it found.
#[expect(clippy::disallowed_methods, reason = "a test of time needs a clock")]
fn batch(world: &mut World, settings: &[(&str, &str)], gpus: u32) -> Duration {
    let mut placer = placer(settings);
    let mut ask = |questions: u32| {
        let start = std::time::Instant::now();
        for job in 0..questions {
            let asked = Demand {
                job: gangline_model::JobId(job),
                ..demand(gpus)
            };
            placer.can(&mut world.index, GpuTypeId(0), &asked);
            let Some(found) = placer.place(&mut world.index, GpuTypeId(0), &asked) else {
                continue;
            };
            let mark = world.index.mark();
            for part in found.parts() {
                let left = world.index.free_mask(part.server) & !part.mask;
                world.index.set_free_mask(part.server, left);
            }
            world.index.rollback(mark);
        }
        start.elapsed()
    };
    ask(50); // builds what is built lazily
    (0..5).map(|_| ask(400)).min().expect("five batches")
}

#[test]
fn a_question_costs_the_same_on_a_large_cluster() {
    let (mut small, mut large) = (world(1000), world(100_000));
    let mut slow = Vec::new();
    // `fewest_servers` compares the racks with each other: it may look at all of them
    let compares_racks = ("rack_choice", "fewest_servers");
    for settings in all_settings()
        .into_iter()
        .filter(|set| !set.contains(&compares_racks))
    {
        for gpus in [1, 8, 12, 90] {
            // a busy machine can only make it slower: what is too slow is measured again
            let growth = (0..4)
                .map(|_| {
                    let there = batch(&mut large, &settings, gpus).as_secs_f64();
                    there / batch(&mut small, &settings, gpus).as_secs_f64()
                })
                .find(|&growth| growth <= GROWTH_MAX);
            if growth.is_none() {
                slow.push((settings.clone(), gpus));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
