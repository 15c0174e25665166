//! The number of entries that a query inspects must not grow with the cluster: 10^3 against 10^5 servers. The test
//! counts inspections instead of measuring time, because a clock would also measure the other work of the machine.

use super::{Demand, World, all_settings, demand, placer};
use gangline_engine::work::looks;
use gangline_model::GpuTypeId;

/// A linear scan would grow 100 times, while two logarithms explain a factor of a few.
const GROWTH_MAX: u64 = 4;

fn world(servers: usize) -> World {
    let rows: Vec<(u32, u32, u32)> = (0..servers).map(|at| (0, 8, (at / 40) as u32)).collect();
    let mut world = World::new(&rows, &[]);
    // Every twentieth server is wholly free; the others have 0 to 3 free GPUs.
    for at in (0..servers).filter(|at| at % 20 != 0) {
        world.set(at, 0b111 >> (at % 4));
    }
    world
}

/// Returns the number of inspections of a batch of queries. After each query, the GPUs found are taken and given back.
fn batch(world: &mut World, settings: &[(&str, &str)], gpus: u32) -> u64 {
    let mut placer = placer(settings);
    let mut ask = |questions: u32| {
        let before = looks();
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
            for part in found.by_server() {
                let left = world.index.free_mask(part.server) & !part.mask;
                world.index.set_free_mask(part.server, left);
            }
            world.index.rollback(mark);
        }
        looks() - before
    };
    ask(1); // This builds the structures that are built lazily.
    ask(100)
}

#[test]
fn a_query_inspects_as_much_on_a_large_cluster() {
    let (mut small, mut large) = (world(1000), world(100_000));
    let mut costly = Vec::new();
    let mut looks = 0;
    // `fewest_servers` compares the racks with each other, so it may inspect all of them.
    let compares_racks = ("rack_choice", "fewest_servers");
    for settings in all_settings()
        .into_iter()
        .filter(|set| !set.contains(&compares_racks))
    {
        for gpus in [1, 8, 12, 90] {
            let (there, here) = (
                batch(&mut large, &settings, gpus),
                batch(&mut small, &settings, gpus),
            );
            if there > GROWTH_MAX * here {
                costly.push((settings.clone(), gpus, there, here));
            }
            looks += here;
        }
    }
    assert!(costly.is_empty(), "{costly:#?}");
    assert!(looks > 100_000, "looks are counted: {looks}");
}
